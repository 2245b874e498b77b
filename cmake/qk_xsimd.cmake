# SPDX-License-Identifier: Apache-2.0
# The kernels' vectors lie over xsimd's, 8.1 or later, on the processors that qk has vectors for; elsewhere qk needs nothing. What is installed is
# used, else xsimd is fetched. cmake/qkConfig.cmake.in does the same for users of an installed qk, which fetches nothing.
set(QK_NEEDS_XSIMD OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|x86|i[3-6]86|aarch64|arm64)$")
  set(QK_NEEDS_XSIMD ON)
  include(FetchContent)
  FetchContent_Declare(xsimd SYSTEM
    URL https://github.com/xtensor-stack/xsimd/archive/refs/tags/13.2.0.tar.gz
    URL_HASH SHA256=edd8cd3d548c185adc70321c53c36df41abe64c1fe2c67bc6d93c3ecda82447a
    DOWNLOAD_EXTRACT_TIMESTAMP ON
    FIND_PACKAGE_ARGS)  # no version: xsimd's package file takes none but its own major version
  FetchContent_MakeAvailable(xsimd)
  if(xsimd_VERSION AND xsimd_VERSION VERSION_LESS 8.1)
    message(FATAL_ERROR "qk needs xsimd 8.1 or later, and ${xsimd_DIR} has ${xsimd_VERSION}")
  endif()
  # Only the folder: Debian's target links xtl, which its package does not bring and qk does not need.
  get_target_property(QK_XSIMD_INCLUDE xsimd INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(qk SYSTEM INTERFACE "$<BUILD_INTERFACE:${QK_XSIMD_INCLUDE}>")
endif()
