# SPDX-License-Identifier: Apache-2.0
# Finds the packages that qk::graph needs, and has what its folder and those above it share. cmake/qkConfig.cmake.in names the same packages
# for users of an installed qk.
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

# The headers that most sources of the graph module, of what stands above it and of their tests include are parsed once.
set(QK_GRAPH_PRECOMPILED <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
    <unordered_map> <variant> <vector> <onnx/onnx_pb.h>)

# qk_above_graph(NAME SOURCE ...) adds the library qk::NAME of a component that stands above this module, with its headers of include/qk/graph.
function(qk_above_graph name)
  add_library(qk_${name} STATIC ${ARGN})
  add_library(qk::${name} ALIAS qk_${name})
  set_target_properties(qk_${name} PROPERTIES EXPORT_NAME ${name})
  file(GLOB_RECURSE own CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/qk/graph/${name}/*.hpp)
  target_sources(qk_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${PROJECT_SOURCE_DIR}/include/qk/graph/${name}.hpp ${own})
  target_include_directories(qk_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(qk_${name} PUBLIC qk::graph)
  target_precompile_headers(qk_${name} PRIVATE ${QK_GRAPH_PRECOMPILED})
  qk_own(qk_${name} LOOPS)
  qk_shareable(qk_${name})
endfunction()
