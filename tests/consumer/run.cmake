# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs the project `way` (installed | subdirectory) in a new folder of the build tree.
set(work ${qk_build}/tests/consumer_${way})
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed with ${status}: ${ARGV}")
  endif()
endfunction()

if(way STREQUAL "installed")
  run(${CMAKE_COMMAND} --install ${qk_build} --prefix ${work}/prefix)
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${way} -B ${work}/build -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${work}/prefix -D qk_source=${qk_source} -D qk_version=${qk_version})
run(${CMAKE_COMMAND} --build ${work}/build)
file(GLOB programs ${work}/build/consumer_*)
foreach(program ${programs})
  if(NOT IS_DIRECTORY ${program})
    run(${program})
  endif()
endforeach()
