# SPDX-License-Identifier: Apache-2.0
# Installs a build in which nothing but the headers was built: what is missing is left out, and find_package names it.
set(work ${qk_build}/tests/consumer_partial)
file(REMOVE_RECURSE ${work})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${qk_source} -B ${work}/qk -G ${generator} -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_BUILD_TYPE=Release
                        -D QK_BUILD_GRAPH=OFF -D QK_BUILD_LEARN=OFF -D QK_BUILD_TOOL=OFF -D QK_BUILD_PYTHON=OFF -D QK_BUILD_BENCH=OFF -D QK_BUILD_TESTS=OFF
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${work}/qk --prefix ${work}/prefix OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted "" "COMPONENTS dispatch c")
  file(WRITE ${work}/user/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(user CXX)\nfind_package(qk REQUIRED ${wanted})\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/user -B ${work}/user_build -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
                          -D CMAKE_PREFIX_PATH=${work}/prefix RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  if(wanted STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "the headers alone are not found:\n${said}")
  elseif(wanted AND NOT said MATCHES "lacks:[ \n]+dispatch,[ \n]+c")
    message(FATAL_ERROR "the missing components are not named:\n${said}")
  endif()
endforeach()
