# SPDX-License-Identifier: Apache-2.0
# qk::graph, the headers with what they need; qk::graph_compiled (src/graph) is the same compiled once.
find_package(Protobuf REQUIRED)  # before ONNX, whose package file expects it
find_package(ONNX CONFIG REQUIRED)
find_package(Eigen3 3.4 REQUIRED)
find_package(TBB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)  # deflated .npz

add_library(qk_graph INTERFACE)
add_library(qk::graph ALIAS qk_graph)
target_link_libraries(qk_graph INTERFACE qk::qk onnx onnx_proto protobuf::libprotobuf Eigen3::Eigen TBB::tbb nlohmann_json::nlohmann_json ZLIB::ZLIB)

file(GLOB_RECURSE QK_GRAPH_HEADERS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/qk/graph/*.hpp)
target_sources(qk_graph INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${QK_GRAPH_HEADERS})

# oneDNN makes convolutions two to four times as fast as the Eigen path, which is always there.
option(QK_ONEDNN "use oneDNN when it is found" ON)
# Found by name: the package file of Debian's asks for OpenCL, which nothing here needs.
find_path(QK_DNNL_HEADER dnnl.hpp)
find_library(QK_DNNL_LIBRARY dnnl)
if(QK_ONEDNN AND QK_DNNL_HEADER AND QK_DNNL_LIBRARY)
  target_link_libraries(qk_graph INTERFACE dnnl ${CMAKE_DL_LIBS})
  target_compile_definitions(qk_graph INTERFACE QK_HAVE_ONEDNN)
endif()
