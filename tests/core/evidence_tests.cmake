# SPDX-License-Identifier: Apache-2.0
# Tests the oracle, and the golden files, against Python packages, from the environment that ./dev test makes or from QK_PYTHON.
add_executable(oracle_tool oracle_tool.cpp)
target_link_libraries(oracle_tool PRIVATE qk::qk)
set_target_properties(oracle_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
qk_own(oracle_tool)
function(python_evidence name argument)
  python_test(${name} ${CMAKE_CURRENT_SOURCE_DIR}/${name}.py ${argument})
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no")
endfunction()
python_evidence(ml_dtypes_evidence $<TARGET_FILE:oracle_tool>)
python_evidence(goldens_evidence $<TARGET_FILE:oracle_tool>)
python_evidence(p3109_evidence $<TARGET_FILE:oracle_tool>)

# The compiler refuses wrong use with a clear sentence.
file(GLOB wrong_uses ${CMAKE_CURRENT_SOURCE_DIR}/must_not_compile/*.cpp)
foreach(file ${wrong_uses})
  get_filename_component(name ${file} NAME_WE)
  add_test(NAME must_not_compile.${name} COMMAND ${CMAKE_COMMAND} -DCXX=${CMAKE_CXX_COMPILER} -DINCLUDE=${PROJECT_SOURCE_DIR}/include -DFILE=${file}
           -P ${CMAKE_CURRENT_SOURCE_DIR}/must_not_compile.cmake)
endforeach()

# The tests catch defects planted in the kernels. This takes minutes, so it belongs to the exhaustive tests.
find_program(QK_PYTHON3 python3)
if(QK_PYTHON3)
  add_test(NAME mutation_check COMMAND ${QK_PYTHON3} ${PROJECT_SOURCE_DIR}/tests/mutation/mutation_check.py ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
  set_tests_properties(mutation_check PROPERTIES LABELS exhaustive TIMEOUT 3600)
  add_test(NAME mutation_check_applies COMMAND ${QK_PYTHON3} ${PROJECT_SOURCE_DIR}/tests/mutation/mutation_check.py ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER} --look)
endif()
