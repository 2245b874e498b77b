// SPDX-License-Identifier: Apache-2.0
// expect: compile this file without it
// flags: -ffast-math
#include <qk/qk.hpp>
