# SPDX-License-Identifier: Apache-2.0
# Installs headers, targets, find_package(qk) and pkg-config's qk.pc. Each file belongs to a component, which is a Debian package in
# qk_packages.cmake: command, library (libqk), development (all that needs only the core), graph_development.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

set(QK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qk)
install(TARGETS qk EXPORT qk_core FILE_SET HEADERS)
install(EXPORT qk_core NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
foreach(part dispatch compare disk checkpoint systems)
  if(TARGET qk_${part})
    install(TARGETS qk_${part} EXPORT qk_${part})
    install(EXPORT qk_${part} NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
  endif()
endforeach()
if(TARGET qk_c)
  install(TARGETS qk_c EXPORT qk_c LIBRARY COMPONENT library NAMELINK_COMPONENT development FILE_SET HEADERS)
  install(EXPORT qk_c NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR})
  install(FILES include/qk/qk_pkg.sv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/qk)
  # The .pc file computes the prefix from its own place, since an installation may be moved or made with --prefix.
  file(RELATIVE_PATH QK_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(cmake/libqk.pc.in libqk.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/libqk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
if(TARGET qk_graph)
  set_target_properties(qk_graph PROPERTIES EXPORT_NAME graph)
  install(TARGETS qk_graph EXPORT qk_graph ARCHIVE COMPONENT graph_development FILE_SET HEADERS COMPONENT graph_development)
  install(EXPORT qk_graph NAMESPACE qk:: DESTINATION ${QK_CMAKE_DIR} COMPONENT graph_development)
endif()
if(TARGET qk_tool)
  install(TARGETS qk_tool COMPONENT command)
  # Manual pages and completions come from the command itself, which a cross-compiler's host cannot run.
  if(UNIX AND NOT CMAKE_CROSSCOMPILING)
    set(share ${PROJECT_BINARY_DIR}/share)
    install(CODE "execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/cmake/man_pages.sh\" \"$<TARGET_FILE:qk_tool>\" \"${share}\" COMMAND_ERROR_IS_FATAL ANY)"
            COMPONENT command)
    install(DIRECTORY ${share}/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT command)
  endif()
endif()

configure_package_config_file(cmake/qkConfig.cmake.in qkConfig.cmake INSTALL_DESTINATION ${QK_CMAKE_DIR})
write_basic_package_version_file(qkConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/qkConfig.cmake ${PROJECT_BINARY_DIR}/qkConfigVersion.cmake DESTINATION ${QK_CMAKE_DIR})

# qk.pc, too, computes the prefix from its own place; libqk.pc lies elsewhere (above).
file(RELATIVE_PATH QK_PC_TO_PREFIX /${CMAKE_INSTALL_DATADIR}/pkgconfig /)
set(QK_PC_REQUIRES "")
if(QK_NEEDS_XSIMD)
  set(QK_PC_REQUIRES "xsimd >= 8.1")
endif()
configure_file(cmake/qk.pc.in qk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qk.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
include(qk_packages)
