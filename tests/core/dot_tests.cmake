# SPDX-License-Identifier: Apache-2.0
# Dot products against the oracle: 10^5 of every kind by default, 10^8 with the exhaustive tests.
find_package(Threads REQUIRED)
qk_test(dot_test qk::qk Threads::Threads)
qk_test(accumulator_test qk::qk)
qk_test(aligned_columns_test qk::qk)
qk_test(devices_x86_test qk::qk)
if(TARGET qk::dispatch)
  qk_test(dot_codec_test qk::dispatch)
endif()
set_tests_properties(dot_test PROPERTIES TIMEOUT 600)
add_test(NAME dot_exhaustive COMMAND dot_test --test-case=every?kind*)
set_tests_properties(dot_exhaustive PROPERTIES LABELS exhaustive TIMEOUT 86400 ENVIRONMENT QK_DOT_COUNT=100000000)
