# SPDX-License-Identifier: Apache-2.0
# An overlay port of this checkout: vcpkg install qk[graph] --overlay-ports=packaging/vcpkg
cmake_path(SET SOURCE_PATH NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../..")
vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES
                     dispatch QK_BUILD_DISPATCH hardware QK_BUILD_HARDWARE systems QK_BUILD_SYSTEMS checkpoint QK_BUILD_CHECKPOINT graph QK_BUILD_GRAPH)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
                      OPTIONS ${options} -DQK_BUILD_TOOL=OFF -DQK_BUILD_TESTS=OFF -DQK_BUILD_BENCH=OFF -DQK_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME qk CONFIG_PATH lib/cmake/qk)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
