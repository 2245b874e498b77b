# SPDX-License-Identifier: Apache-2.0
# Tests dot products against the oracle: 10^5 of every kind by default, 10^8 in the exhaustive tests.
find_package(Threads REQUIRED)
set(dot_tests accumulator_test aligned_columns_test devices_x86_test dot_test)
if(TARGET qk::dispatch)
  qk_tests(dot_tests ${dot_tests} dot_codec_test LIBRARIES qk::dispatch Threads::Threads)
else()
  qk_tests(dot_tests ${dot_tests} LIBRARIES qk::qk Threads::Threads)
endif()
set_tests_properties(dot_test PROPERTIES TIMEOUT 600)
one_of_tests(dot_exhaustive dot_test --test-case=every?kind*)
set_tests_properties(dot_exhaustive PROPERTIES LABELS exhaustive TIMEOUT 86400 ENVIRONMENT QK_DOT_COUNT=100000000)
