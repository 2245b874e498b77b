# SPDX-License-Identifier: Apache-2.0
# Flags of our own builds only; they never reach a user through a target. qk_own(target) puts them on.
function(qk_own target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms on "text" + std::string: GCC bugs 105651 and 105329.
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
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
endfunction()

# Loops from a cache line on: those of the kernels lose up to a sixth where they happen to lie badly.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-falign-loops=64 QK_HAS_ALIGN_LOOPS)
function(qk_align_loops target)
  if(QK_HAS_ALIGN_LOOPS)
    target_compile_options(${target} PRIVATE -falign-loops=64)
  endif()
endfunction()

# Compiled quickly rather than for speed: at -O1, or at -Og, which takes a third less where hardly a loop is over numbers. g++ 12 sees more of its
# AVX-512 intrinsics' undefined operand at -O1.
function(qk_quickly target)
  set(level ${ARGN} -O1)
  list(GET level 0 level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-uninitialized>)
endfunction()

# g++ looks for garbage whenever its memory doubles, which takes seconds and finds little. From 1.4 GB on it still looks. What it
# makes stays the same.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(QK_SELDOM_COLLECT --param=ggc-min-heapsize=700000)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${QK_SELDOM_COLLECT}>)
endif()

option(QK_UNITY "compile sources that run once, or share much, several at a time" ON)
# qk_together(TARGET GROUP SOURCES ...): sources that include and instantiate the same, compiled as one.
function(qk_together target group)
  if(QK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()

# What runs once for a model or a command: several sources at a time, too.
function(qk_runs_once target level)
  qk_quickly(${target} ${level})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${QK_UNITY} UNITY_BUILD_BATCH_SIZE 24)
endfunction()
