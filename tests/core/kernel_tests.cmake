# SPDX-License-Identifier: Apache-2.0
# Tests kernels against the oracle: programs over qk::dispatch run for each instruction set, and programs compile the kernels as a consumer
# would. If a CPU's instructions or the cross compiler are missing, the test says so and counts as skipped.

# on_each_isa(PROGRAM ARCH ...) adds the program as a test for each instruction set of qk::dispatch.
function(on_each_isa program)
  foreach(arch ${ARGN})
    one_of_tests(${program}_${arch} ${program})
    set_tests_properties(${program}_${arch} PROPERTIES ENVIRONMENT QK_ARCH=${arch} SKIP_REGULAR_EXPRESSION "^skipped: QK_ARCH")
  endforeach()
endfunction()

if(TARGET qk::dispatch)
  set(programs kernel_test kernel_scales_test codec_test encode_codes_test decode_values_test stored_forms_test searched_scales_test product_test
               product_attention_test product_random_test)
  test_programs(kernel_tests ${programs} LIBRARIES qk::dispatch)
  foreach(program ${programs})
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      on_each_isa(${program} sse2 avx2 avx512)
      set_property(TEST ${program}_sse2 APPEND PROPERTY ENVIRONMENT QK_TEST_ONE_IN=5)
      if(program MATCHES "^product_")
        on_each_isa(${program} avx512_vnni)
      endif()
    else()
      on_each_isa(${program} neon)
    endif()
  endforeach()
  one_of_tests(exhaustive.kernel_test_sse2 kernel_test)
  set_tests_properties(exhaustive.kernel_test_sse2 PROPERTIES LABELS exhaustive ENVIRONMENT QK_ARCH=sse2 SKIP_REGULAR_EXPRESSION "^skipped: QK_ARCH")
  one_of_tests(exhaustive.product_random product_random_test)  # 10^6 draws beyond those of the tests above
  set_tests_properties(exhaustive.product_random PROPERTIES LABELS exhaustive TIMEOUT 7200 ENVIRONMENT "QK_PRODUCT_FIRST=2000;QK_PRODUCT_COUNT=1000000")
endif()

# These three instantiate the same kernels, so programs that need all of them compile them as one source.
set(consumer_sources kernel_test.cpp kernel_scales_test.cpp kernel_forms_test.cpp)
function(one_source out name)
  set(text "")
  foreach(source ${ARGN})
    string(APPEND text "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "${text}")
  set(${out} ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp PARENT_SCOPE)
endfunction()
one_source(consumer_source consumer_test ${consumer_sources})

# consumer_program(NAME ISA SOURCES [FLAGS ...]) adds a program compiled for exactly that instruction set, even with QK_NATIVE.
function(consumer_program name isa sources)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE doctest_main qk::qk)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE QK_SOURCE_DIR="${PROJECT_SOURCE_DIR}" QK_TEST_ISA="${isa}" QK_TEST_SAMPLED=1)
  set(QK_NATIVE OFF)
  qk_own(${name})
  target_compile_options(${name} PRIVATE ${ARGN})
endfunction()

# run_on(NAME CPU_FLAGS) adds the program as a test, which is skipped if the CPU lacks a flag.
function(run_on name cpu_flags)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${name}> -DCPU_FLAGS=${cpu_flags} -P ${CMAKE_CURRENT_SOURCE_DIR}/run_on_cpu.cmake)
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: this CPU has no")
endfunction()

# Every operation on vectors, on each instruction set that they have.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(isa "sse2" "sse4.1" "avx,fma" "avx2,fma" "avx512f,avx512cd,avx512bw,avx512dq,avx512vl,fma")
    string(REGEX REPLACE ",.*,|[,.]" "_" name lanes_test_${isa})
    string(REPLACE "," ";-m" flags -m${isa})
    consumer_program(${name} ${isa} lanes_test.cpp -march=x86-64 ${flags})
    string(REPLACE "sse4.1" "sse4_1" cpu_flags ${isa})
    run_on(${name} ${cpu_flags})
  endforeach()
else()
  consumer_program(lanes_test native lanes_test.cpp)
  run_on(lanes_test "")
endif()

# Compile-time formats have loops of their own on each instruction set.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  consumer_program(kernel_forms_test_avx2 AVX2+FMA kernel_forms_test.cpp -march=x86-64 -mavx2 -mfma)
  run_on(kernel_forms_test_avx2 "avx2,fma")
  consumer_program(codec_forms_test_avx2 AVX2+FMA codec_forms_test.cpp -march=x86-64 -mavx2 -mfma)
  run_on(codec_forms_test_avx2 "avx2,fma")
  consumer_program(kernel_forms_test_avx512 AVX-512 kernel_forms_test.cpp -march=x86-64 -mavx512f -mavx512cd -mavx512bw -mavx512dq -mavx512vl -mfma)
  run_on(kernel_forms_test_avx512 "avx512f,avx512cd,avx512bw,avx512dq,avx512vl")
else()
  consumer_program(kernel_forms_test_native ${CMAKE_SYSTEM_PROCESSOR} kernel_forms_test.cpp)
  run_on(kernel_forms_test_native "")
endif()
# Where this machine's own instructions are AVX2, the program above is the same.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS -march=native)
check_cxx_source_compiles("#if defined(__AVX2__) && !defined(__AVX512F__)\nint main() {}\n#else\n#error\n#endif" QK_NATIVE_IS_AVX2)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT (QK_NATIVE AND QK_NATIVE_IS_AVX2))
  qk_test(codec_forms_test qk::qk)
endif()
find_package(Threads REQUIRED)
qk_test(product_forms_test qk::qk Threads::Threads)

# One program of two objects, the core compiled for two instruction sets, linked in both orders: on a processor that has but the lesser one
# it must run. The first test looks at the symbols. Compiling both takes minutes, so these are exhaustive tests; dispatch_symbols looks at
# the symbols of qk::dispatch in every run.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  function(linked_object name function)
    add_library(${name} OBJECT linked_isas_calls.cpp)
    target_link_libraries(${name} PRIVATE qk::qk)
    target_compile_definitions(${name} PRIVATE QK_LINKED_NAME=${function})
    set(QK_NATIVE OFF)
    qk_own(${name})
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    target_compile_options(${name} PRIVATE -O2 -UNDEBUG ${ARGN})  # assertions, which have functions of their own
  endfunction()
  linked_object(linked_base run_base)
  linked_object(linked_other run_other -march=x86-64-v4)
  add_test(NAME linked_isas.symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DBASE=$<TARGET_OBJECTS:linked_base> -DOTHER=$<TARGET_OBJECTS:linked_other>
           -P ${CMAKE_CURRENT_SOURCE_DIR}/linked_isas.cmake)
  set_tests_properties(linked_isas.symbols PROPERTIES LABELS exhaustive)
  find_program(QK_QEMU_X86_64 NAMES qemu-x86_64 qemu-x86_64-static)
  foreach(order base_first other_first)
    set(objects $<TARGET_OBJECTS:linked_base> $<TARGET_OBJECTS:linked_other>)
    if(order STREQUAL "other_first")
      list(REVERSE objects)
    endif()
    add_executable(linked_isas_${order} linked_isas.cpp ${objects})
    set_target_properties(linked_isas_${order} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests EXCLUDE_FROM_ALL ON)
    qk_own(linked_isas_${order})
    foreach(processor Nehalem Haswell max)
      set(test linked_isas.${order}.${processor})
      if(QK_QEMU_X86_64)
        add_test(NAME ${test} COMMAND ${QK_QEMU_X86_64} -cpu ${processor} $<TARGET_FILE:linked_isas_${order}>)
      else()
        add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} -E echo "skipped: no qemu-x86_64 here (qemu-user)")
        set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
      endif()
      set_tests_properties(${test} PROPERTIES LABELS exhaustive)
    endforeach()
  endforeach()
  add_test(NAME linked_isas.same_bits COMMAND ${CMAKE_COMMAND} "-DPROGRAM=$<TARGET_FILE:linked_isas_base_first>;both"
           -DCPU_FLAGS=avx512f,avx512bw,avx512cd,avx512dq,avx512vl -P ${CMAKE_CURRENT_SOURCE_DIR}/run_on_cpu.cmake)
  set_tests_properties(linked_isas.same_bits PROPERTIES LABELS exhaustive SKIP_REGULAR_EXPRESSION "skipped: this CPU has no")
endif()

# kernel_object(OBJECT SOURCE ISA COMPILER [FLAGS ...]) compiles the source with a compiler other than CMake's.
function(kernel_object object source isa compiler)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${compiler} -std=c++20 -O2 -c -Wall -Wextra -I${PROJECT_SOURCE_DIR}/include ${ARGN} "-DQK_TEST_ISA=\"${isa}\""
            -DQK_TEST_SAMPLED=1 -MD -MF ${object}.d -MT ${object} -o ${object} ${source}
    DEPENDS ${source}
    DEPFILE ${object}.d
    VERBATIM)
endfunction()

# NEON kernels are cross-compiled for aarch64 and run by qemu-user. doctest and xsimd are linked into a folder of their own, so that the cross compiler
# sees no header of this machine's architecture.
find_program(QK_AARCH64_CXX aarch64-linux-gnu-g++)
find_program(QK_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND QK_AARCH64_CXX AND QK_QEMU_AARCH64)
  set(cross ${CMAKE_CURRENT_BINARY_DIR}/aarch64)
  file(MAKE_DIRECTORY ${cross}/include)
  find_path(QK_DOCTEST_FOLDER doctest/doctest.h REQUIRED)
  file(CREATE_LINK ${QK_DOCTEST_FOLDER}/doctest ${cross}/include/doctest SYMBOLIC)
  find_path(QK_XSIMD_FOLDER xsimd/xsimd.hpp PATHS ${QK_XSIMD_INCLUDE} REQUIRED)
  file(CREATE_LINK ${QK_XSIMD_FOLDER}/xsimd ${cross}/include/xsimd SYMBOLIC)
  set(neon ${PROJECT_BINARY_DIR}/tests/kernel_test_neon)
  one_source(neon_source neon_test ../doctest_main.cpp ${consumer_sources} codec_test.cpp product_test.cpp product_attention_test.cpp lanes_test.cpp)
  kernel_object(${cross}/tests.o ${neon_source} NEON ${QK_AARCH64_CXX} ${QK_SELDOM_COLLECT} -isystem ${cross}/include)
  add_custom_command(
    OUTPUT ${neon}
    COMMAND ${QK_AARCH64_CXX} -static -o ${neon} ${cross}/tests.o
    DEPENDS ${cross}/tests.o
    VERBATIM)
  add_custom_target(kernel_test_neon ALL DEPENDS ${neon})
  add_test(NAME kernel_test_neon COMMAND ${QK_QEMU_AARCH64} -E QK_TEST_ONE_IN=20 ${neon})
  set_tests_properties(kernel_test_neon PROPERTIES COST 100)  # starts first, because it takes longest
  add_test(NAME exhaustive.kernel_test_neon COMMAND ${QK_QEMU_AARCH64} -E QK_TEST_WHOLE=1 ${neon})
  set_tests_properties(exhaustive.kernel_test_neon PROPERTIES LABELS exhaustive TIMEOUT 7200)
else()
  add_test(NAME kernel_test_neon COMMAND ${CMAKE_COMMAND} -E echo "skipped: no aarch64-linux-gnu-g++ and qemu-aarch64 here (g++-aarch64-linux-gnu, qemu-user)")
  set_tests_properties(kernel_test_neon PROPERTIES SKIP_REGULAR_EXPRESSION "skipped:")
endif()

# The kernels of processors that qk has no vectors for: one value a vector.
one_source(scalar_source scalar_test ${consumer_sources} codec_test.cpp codec_forms_test.cpp lanes_test.cpp)
consumer_program(kernel_test_scalar scalar ${scalar_source} -O2 -DQK_SCALAR)
set_target_properties(kernel_test_scalar PROPERTIES EXCLUDE_FROM_ALL ON)
add_test(NAME kernel_test_scalar COMMAND kernel_test_scalar)
set_tests_properties(kernel_test_scalar PROPERTIES LABELS exhaustive ENVIRONMENT QK_TEST_WHOLE=1)
# The same in seconds, with dot products: the program of tests/processors.sh.
add_executable(processor_test processor_test.cpp)
target_link_libraries(processor_test PRIVATE qk::qk)
target_compile_definitions(processor_test PRIVATE QK_SCALAR)
set_target_properties(processor_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
qk_own(processor_test)
add_test(NAME processor_test COMMAND processor_test)
# Other processors' compilers, where they are installed, read the core and its oracle; tests/processors.sh without --compile runs it there.
add_test(NAME processors COMMAND bash ${PROJECT_SOURCE_DIR}/tests/processors.sh --compile i386 riscv64 cortex_m4 wasm32 sve256 rvv256 wasm_simd128)
set_tests_properties(processors PROPERTIES SKIP_REGULAR_EXPRESSION "nothing was tried")

# Consumers may compile with contraction of products and sums, or with another compiler.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  consumer_program(kernel_test_contracted "-O2 -mfma" ${consumer_source} -O2 -march=x86-64 -mfma -ffp-contract=fast)
  run_on(kernel_test_contracted "fma")
endif()
find_program(QK_CLANG NAMES clang++-14 clang++ clang++-15 clang++-16 clang++-19)
if(QK_CLANG AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(clang_program ${PROJECT_BINARY_DIR}/tests/kernel_test_clang)
  kernel_object(${clang_program}.o ${consumer_source} "AVX2+FMA, clang" ${QK_CLANG} -mavx2 -mfma)
  add_custom_command(
    OUTPUT ${clang_program}
    COMMAND ${QK_CLANG} -o ${clang_program} ${clang_program}.o $<TARGET_OBJECTS:doctest_main>
    DEPENDS ${clang_program}.o doctest_main $<TARGET_OBJECTS:doctest_main>
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(kernel_test_clang ALL DEPENDS ${clang_program})
  add_test(NAME kernel_test_clang COMMAND ${CMAKE_COMMAND} -DPROGRAM=${clang_program} -DCPU_FLAGS=avx2,fma -P ${CMAKE_CURRENT_SOURCE_DIR}/run_on_cpu.cmake)
  set_tests_properties(kernel_test_clang PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: this CPU has no")
endif()
# Each compiler flag that permits other sums, zeros or quotients is refused or changes no bit.
python_test(math_flags ${CMAKE_CURRENT_SOURCE_DIR}/math_flags.py ${PROJECT_SOURCE_DIR})
python_test(exhaustive.math_flags ${CMAKE_CURRENT_SOURCE_DIR}/math_flags.py ${PROJECT_SOURCE_DIR} all)
set_tests_properties(math_flags exhaustive.math_flags PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: this CPU has no")
set_tests_properties(exhaustive.math_flags PROPERTIES LABELS exhaustive)
# Sweeps all 2^32 floats, and blocks of every float beside chosen largest values, through qk::dispatch for each instruction set and through
# compile-time formats on this machine's processor. Each runs on one thread; ctest -j runs them side by side. Every test run sweeps two
# formats, `./dev test --exhaustive` the others; it also builds the last program, which takes half a minute to compile.
find_package(Threads REQUIRED)
set(swept_formats fp32 fp24 tf32 fp16 bf16 fp8_e4m3fn fp8_e5m2 fp8_e4m3fnuz fp8_e5m2fnuz fp8_e4m3 fp8_e3m4 fp8_e4m3b11fnuz e8m0 fp6_e3m2 fp6_e2m3
    fp4_e2m1 int2 int4 int8 int16 int32 uint2 uint4 uint8 uint16 uint32)
set(swept_blocks bfp16 mx9 mx6 mx4 mxint8 mxfp8_e4m3 mxfp8_e5m2 mxfp6_e3m2 mxfp6_e2m3 mxfp4 nvfp4)
function(sweep_program name)
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE ${ARGN} Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  qk_own(${name})
endfunction()
function(sweep_test name)
  add_test(NAME exhaustive.${name} COMMAND ${ARGN})
  set_tests_properties(exhaustive.${name} PROPERTIES LABELS exhaustive COST 100 TIMEOUT 3600 SKIP_REGULAR_EXPRESSION "skipped: this CPU has no;^skipped: QK_ARCH")
endfunction()
# sweep_on_each_isa(PROGRAM WHAT ...) adds sweeps through qk::dispatch for each instruction set.
function(sweep_on_each_isa program)
  sweep_program(${program} qk::dispatch)
  set(isas neon)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(isas sse2 avx2 avx512)
  endif()
  foreach(what ${ARGN})
    foreach(arch ${isas})
      sweep_test(${what}_${arch} ${program} ${what})
      set_tests_properties(exhaustive.${what}_${arch} PROPERTIES ENVIRONMENT QK_ARCH=${arch})
      if(what MATCHES "^(bf16|fp8_e4m3fn)$" AND NOT arch STREQUAL "sse2")
        set_tests_properties(exhaustive.${what}_${arch} PROPERTIES LABELS "")
      endif()
    endforeach()
  endforeach()
endfunction()
if(TARGET qk::dispatch)
  sweep_on_each_isa(exhaustive_test ${swept_formats} splits)
  sweep_on_each_isa(exhaustive_blocks_test ${swept_blocks})
endif()
sweep_program(exhaustive_forms_test qk::qk)
set_target_properties(exhaustive_forms_test PROPERTIES EXCLUDE_FROM_ALL ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # a false alarm about the undefined operand of g++ 12's AVX-512 intrinsics
  target_compile_options(exhaustive_forms_test PRIVATE -Wno-uninitialized)
endif()
foreach(what ${swept_formats} cpu-fp16 cpu-bf16)
  sweep_test(${what} exhaustive_forms_test ${what})
endforeach()

# Which driver and form made a value, as a build with QK_TRACE_PATH says.
python_test(trace_path_test ${CMAKE_CURRENT_SOURCE_DIR}/trace_path_test.py ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
