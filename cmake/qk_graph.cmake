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
