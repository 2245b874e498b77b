# SPDX-License-Identifier: Apache-2.0
# qk_own(target) adds the compiler flags of qk's own builds; no target passes them on to users.
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
  if(QK_SANITIZE_THREADS)
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  endif()
  if(QK_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage -fprofile-update=atomic)
    target_link_options(${target} PRIVATE --coverage)
  endif()
endfunction()

# Aligns loops to cache lines: a badly placed loop of a kernel loses up to a sixth of its speed.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-falign-loops=64 QK_HAS_ALIGN_LOOPS)
function(qk_align_loops target)
  if(QK_HAS_ALIGN_LOOPS)
    target_compile_options(${target} PRIVATE -falign-loops=64)
  endif()
endfunction()

# qk_quickly(target [level]) compiles for short build times, at -O1 or at `level`. -Og takes a third less time and suits code with few loops
# over numbers. At -O1 g++ 12 warns more about the undefined operand of its AVX-512 intrinsics.
function(qk_quickly target)
  set(level ${ARGN} -O1)
  list(GET level 0 level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-uninitialized>)
endfunction()
# qk_vectorize(target) has the loops of a target at -O1 vectorised, in two thirds of the time of -O3. -fexpensive-optimizations includes
# contraction to FMA, so the bits are those of -O3.
function(qk_vectorize target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    foreach(option -ftree-loop-vectorize -fvect-cost-model=dynamic -fstrict-aliasing -fexpensive-optimizations)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${option}>)
    endforeach()
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-fvectorize>)
  endif()
endfunction()

# g++ collects garbage whenever its memory doubles, which takes seconds and frees little. This makes it collect from 1.4 GB on only; its
# output stays the same.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(QK_SELDOM_COLLECT --param=ggc-min-heapsize=700000)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${QK_SELDOM_COLLECT}>)
endif()

option(QK_UNITY "compile sources that run once, or share much, several at a time" ON)
# qk_together(TARGET GROUP SOURCES ...) compiles sources that share includes and instantiations as one unit.
function(qk_together target group)
  if(QK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()

# qk_runs_once(TARGET LEVEL): for code that runs once for a model or a command; compiles quickly, several sources at a time.
function(qk_runs_once target level)
  qk_quickly(${target} ${level})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${QK_UNITY} UNITY_BUILD_BATCH_SIZE 24)
endfunction()
