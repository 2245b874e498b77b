# SPDX-License-Identifier: Apache-2.0
# Finds the packages that qk::graph needs. cmake/qkConfig.cmake.in names the same packages for users of an installed qk.
find_package(Protobuf REQUIRED)  # before ONNX, whose package file expects it
find_package(ONNX CONFIG REQUIRED)
find_package(Eigen3 3.4 REQUIRED)
find_package(TBB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # deflated .npz
find_package(PNG)            # PNG and JPEG read images as data; without one of them its files are an error that says so
find_package(JPEG)

# oneDNN makes convolutions two to four times as fast as the Eigen path, which is always built.
option(QK_ONEDNN "use oneDNN when it is found" ON)
# oneDNN is found by file name, because Debian's package file requires OpenCL, which qk does not need.
find_path(QK_DNNL_HEADER dnnl.hpp)
find_library(QK_DNNL_LIBRARY dnnl)
