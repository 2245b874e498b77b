# SPDX-License-Identifier: Apache-2.0
# Uses gold, which comes with Debian's binutils: more than a hundred programs link all of qk::graph, and gold takes a quarter of the time.
include(CheckLinkerFlag)
option(QK_GOLD "link with gold where it is found" ON)
if(QK_GOLD AND NOT QK_SANITIZE AND NOT QK_SANITIZE_THREADS AND NOT QK_FUZZ)
  check_linker_flag(CXX -fuse-ld=gold QK_HAS_GOLD)
  if(QK_HAS_GOLD)
    add_link_options(-fuse-ld=gold)
  endif()
endif()
