// SPDX-License-Identifier: Apache-2.0
// The formats of small floats in blocks under scales: what is known of them, without their kernels, which lie beside them.
#pragma once

#include "qk/formats/microscaling/format.hpp"
#include "qk/formats/nvfloat/format.hpp"
