# SPDX-License-Identifier: Apache-2.0
# What qk::graph needs: for this build, and for whoever finds qk installed (cmake/qkConfig.cmake.in names the same packages).
find_package(Protobuf REQUIRED)  # before ONNX, whose package file expects it
find_package(ONNX CONFIG REQUIRED)
find_package(Eigen3 3.4 REQUIRED)
find_package(TBB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # deflated .npz
find_package(PNG)            # images as data; without one of these two its files are an error that says so
find_package(JPEG)

# oneDNN makes convolutions two to four times as fast as the Eigen path, which is always there.
option(QK_ONEDNN "use oneDNN when it is found" ON)
# Found by name: the package file of Debian's asks for OpenCL, which nothing here needs.
find_path(QK_DNNL_HEADER dnnl.hpp)
find_library(QK_DNNL_LIBRARY dnnl)
