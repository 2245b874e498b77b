# SPDX-License-Identifier: Apache-2.0
# Finds xsimd, for this build and for whoever finds qk installed.
if(NOT TARGET xsimd)
  find_package(xsimd 8.1 REQUIRED)
endif()
if(NOT TARGET xtl)  # Debian's xsimd links xtl, which it neither installs nor needs here
  get_target_property(qk_xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
  if("xtl" IN_LIST qk_xsimd_links)
    set_property(TARGET xsimd PROPERTY INTERFACE_LINK_LIBRARIES "")
  endif()
endif()
