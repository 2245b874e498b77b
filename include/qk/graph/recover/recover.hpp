// SPDX-License-Identifier: Apache-2.0
// Turns a model with Q/DQ pairs, Cast pairs, portable functions or AMD's operators back into the float model underneath and its plan.
// docs/guide/plan.md.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

struct recovered_plan {
    model plain;                     ///< without the quantizers; constants that were stored as codes are float32 again, already rounded
    precision_plan plan;             ///< for `plain`; names are the original model's wherever the tool that quantized it kept them
    std::vector<std::string> notes;  ///< what could not be recovered, a sentence each
};

/// Understands QuantizeLinear / DequantizeLinear (also com.microsoft's, without zero points, of 16-bit floats) with constant parameters,
/// DequantizeLinear of constant codes, DynamicQuantizeLinear with DequantizeLinear, MatMulInteger or ConvInteger behind it, MatMulNBits,
/// Cast to fp16 or bf16 and back, com.amd.quark's quantizers, calls and rounded constants of style portable, which say what they are
/// (export/description.hpp). Evaluating `plain` under `plan` computes what the model computes. Throws error when the model has none of
/// these.
recovered_plan recover_plan(const model& quantized);

/// Records in an exported model which int8 activations of the plan are stored as uint8 (store_activations_unsigned), for recover_plan.
void remember_int8(model& exported, const precision_plan& asked, const precision_plan& written);

}  // namespace qk::graph
