// SPDX-License-Identifier: Apache-2.0
// Layouts as values, and moving a quantized matrix from one to another without a detour through floats:
//
//   constexpr qk::layout from = qk::layouts::modelopt_nvfp4, to = qk::layouts::compressed_tensors_nvfp4;
//   const auto changes = qk::compare_layouts(from, to);   // can it be done, and what is not the same
//   const auto made = qk::repack(from, {8, 64}, in, to, out);
//
// qk/layout/values.hpp has the layouts, planes.hpp codes and scales one by one, ggml.hpp ggml's blocks.
#pragma once

#include "qk/layout/ggml.hpp"
#include "qk/layout/names.hpp"
#include "qk/layout/planes.hpp"
#include "qk/layout/repack.hpp"
#include "qk/layout/values.hpp"
