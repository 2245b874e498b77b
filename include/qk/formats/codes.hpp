// SPDX-License-Identifier: Apache-2.0
// The codes of all families: what the codec asks, which names none of them.
#pragma once

#include "qk/formats/block_float/codes.hpp"
#include "qk/formats/floating/codes.hpp"
#include "qk/formats/integer/codes.hpp"
#include "qk/formats/microexponent/codes.hpp"
#include "qk/formats/microscaling/codes.hpp"
#include "qk/formats/nvfloat/codes.hpp"
#include "qk/formats/table/codes.hpp"
