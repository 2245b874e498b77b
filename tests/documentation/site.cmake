# SPDX-License-Identifier: Apache-2.0
# Builds the site as ./dev docs does; it fails at a broken link, a page that is in no list, or a warning of Doxygen.
cmake_minimum_required(VERSION 3.25)
find_program(doxygen doxygen)
if(NOT doxygen)
  message(STATUS "skipped: no doxygen here (./dev docs installs it)")
  return()
endif()
execute_process(COMMAND ${source}/dev docs RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(status AND said MATCHES "No matching distribution|Failed to establish|Could not find a version|Network is unreachable|Temporary failure")
  message(STATUS "skipped: no mkdocs-material can be installed here")
elseif(status)
  message(FATAL_ERROR "./dev docs ended with ${status}:\n${said}")
endif()
