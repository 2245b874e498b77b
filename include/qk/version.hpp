// SPDX-License-Identifier: Apache-2.0
// The version of qk: the one place where it stands. CMake reads it from here.
#pragma once

#define QK_VERSION_MAJOR 0
#define QK_VERSION_MINOR 3
#define QK_VERSION_PATCH 0
