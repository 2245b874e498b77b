# SPDX-License-Identifier: Apache-2.0
# qk_instrument(target) adds what ThreadSanitizer and the count of lines need.
function(qk_instrument target)
  if(QK_SANITIZE_THREADS)
    target_compile_options(${target} PRIVATE -fsanitize=thread)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  endif()
  if(QK_COVERAGE)  # atomic counters: threads count, too
    target_compile_options(${target} PRIVATE --coverage -fprofile-update=atomic)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# g++ 12.2 fills a constant of 32 bytes or more whose last words are 0, such as {1, 1, 0, 0}, with its first word where it has AVX-512 (14
# does not): constants go to memory 16 bytes at a time then.
include(CheckCXXCompilerFlag)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  check_cxx_compiler_flag("-mmove-max=128 -mstore-max=128" QK_HAS_MOVE_MAX)
endif()

option(QK_QUICK "for people who change qk: -Og; the build takes half the time, the programs are slow" OFF)

# qk_own(target [LOOPS]) adds the compiler flags of qk's own builds; no target passes them on to users. Release is -O2 with loops of any
# length vectorised, whatever the source. LOOPS is for a target whose loops run for each value of each sample: -O3, under QK_QUICK too.
function(qk_own target)
  if(ARGN STREQUAL "LOOPS")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
  elseif(QK_QUICK)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-ftree-loop-vectorize> $<$<CONFIG:Release>:-fvect-cost-model=dynamic>)
    endif()
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms on "text" + std::string: GCC bugs 105651 and 105329.
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
  endif()
  if(QK_HAS_MOVE_MAX)
    target_compile_options(${target} PRIVATE -mmove-max=128 -mstore-max=128)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms of g++ 12: the undefined operand of its AVX-512 intrinsics; comparing byte vectors
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-stringop-overread)
  endif()
  if(QK_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(QK_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(QK_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(QK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
  qk_instrument(${target})
endfunction()

# qk_together(target) compiles the target's sources QK_TOGETHER at a time, which parses what they share once: names in their unnamed namespaces
# must differ.
set(QK_TOGETHER 8 CACHE STRING "how many sources of the graph module, checkpoints and the command are compiled at a time; 1: each by itself")
function(qk_together target)
  if(QK_TOGETHER GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${QK_TOGETHER})
    target_compile_options(${target} PRIVATE -Wno-shadow)  # of a neighbour's names; preset `dev` compiles each source by itself, and warns
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # once more the undefined operand of AVX-512 intrinsics
      target_compile_options(${target} PRIVATE -Wno-uninitialized)
    endif()
  endif()
endfunction()

# Aligns loops to cache lines: a badly placed loop of a kernel loses up to a sixth of its speed.
check_cxx_compiler_flag(-falign-loops=64 QK_HAS_ALIGN_LOOPS)
function(qk_align_loops target)
  if(QK_HAS_ALIGN_LOOPS)
    target_compile_options(${target} PRIVATE -falign-loops=64)
  endif()
endfunction()

# g++ collects garbage whenever its memory doubles, which takes seconds and frees little. This makes it collect from 1.4 GB on only; its
# output stays the same.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(QK_SELDOM_COLLECT --param=ggc-min-heapsize=700000)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${QK_SELDOM_COLLECT}>)
endif()

# qk_shareable(target): its objects may become part of a shared library (the Python module), and calls within the library stay direct. The
# model of thread-local variables is left to the linker: a program finds them without a call, and a module that claimed static room for them
# could not be loaded behind other packages ("cannot allocate memory in static TLS block").
function(qk_shareable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
endfunction()
