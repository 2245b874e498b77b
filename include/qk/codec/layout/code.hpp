// SPDX-License-Identifier: Apache-2.0
// The old name of qk/formats/codes/code.hpp; 0.4.0 takes it away.
#pragma once

#include "qk/formats/codes/code.hpp"
