# SPDX-License-Identifier: Apache-2.0
# Installs headers, targets, find_package(qk) and pkg-config's qk.pc.
include(CMakePackageConfigHelpers)

set(QK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qk)
install(TARGETS qk EXPORT qk_core FILE_SET HEADERS)
install(EXPORT qk_core NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
if(TARGET qk_dispatch)
  set_target_properties(qk_dispatch PROPERTIES EXPORT_NAME dispatch)
  install(TARGETS qk_dispatch EXPORT qk_dispatch)
  install(EXPORT qk_dispatch NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
endif()
if(TARGET qk_graph)
  set_target_properties(qk_graph PROPERTIES EXPORT_NAME graph)
  install(TARGETS qk_graph EXPORT qk_graph FILE_SET HEADERS)
  install(EXPORT qk_graph NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
endif()
if(TARGET qk_tool)
  install(TARGETS qk_tool)
endif()

configure_package_config_file(cmake/qkConfig.cmake.in qkConfig.cmake INSTALL_DESTINATION ${QK_CMAKE_DIR})
write_basic_package_version_file(qkConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/qkConfig.cmake ${PROJECT_BINARY_DIR}/qkConfigVersion.cmake cmake/qk_xsimd.cmake DESTINATION ${QK_CMAKE_DIR})

configure_file(cmake/qk.pc.in qk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qk.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
