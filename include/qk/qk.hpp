// SPDX-License-Identifier: Apache-2.0
// Everything below the graph layer.
#pragma once

#include "qk/backward.hpp"
#include "qk/codec.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/formats/format.hpp"
#include "qk/formats/parse.hpp"
#include "qk/observe.hpp"
#include "qk/parameters.hpp"
#include "qk/rounding.hpp"
#include "qk/scales.hpp"
#include "qk/semantics.hpp"
#include "qk/version.hpp"
