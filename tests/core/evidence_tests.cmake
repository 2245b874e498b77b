# SPDX-License-Identifier: Apache-2.0
# The oracle against packages of Python: the environment that ./dev test makes, or QK_PYTHON.
add_executable(oracle_tool oracle_tool.cpp)
target_link_libraries(oracle_tool PRIVATE qk::qk)
set_target_properties(oracle_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
qk_own(oracle_tool)
add_test(NAME ml_dtypes_evidence COMMAND ${CMAKE_COMMAND} -DSCRIPT=${CMAKE_CURRENT_SOURCE_DIR}/ml_dtypes_evidence.py -DARGUMENT=$<TARGET_FILE:oracle_tool>
         -DVENV=${PROJECT_SOURCE_DIR}/build/venv -P ${CMAKE_CURRENT_SOURCE_DIR}/run_python.cmake)
set_tests_properties(ml_dtypes_evidence PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no")
