# SPDX-License-Identifier: Apache-2.0
# Runs PROGRAM if this CPU has all of CPU_FLAGS (as /proc/cpuinfo spells them); says that it was skipped otherwise.
cmake_minimum_required(VERSION 3.25)
file(STRINGS /proc/cpuinfo lines REGEX "^(flags|Features)" LIMIT_COUNT 1)
string(REPLACE " " ";" has "${lines}")
string(REPLACE "," ";" wanted "${CPU_FLAGS}")
foreach(flag ${wanted})
  if(NOT flag IN_LIST has)
    message(STATUS "skipped: this CPU has no ${flag}")
    return()
  endif()
endforeach()
execute_process(COMMAND ${PROGRAM} COMMAND_ERROR_IS_FATAL ANY)
