// SPDX-License-Identifier: Apache-2.0
// The accuracy level of MatMulNBits: how a runtime may round activations, and what that costs on samples.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "qk/graph/model/model.hpp"
#include "qk/graph/pipeline/data.hpp"

namespace qk::graph::pipeline {

/// What a level costs in onnxruntime: signal to noise beside the float model, in decibels, with the level and without.
struct level_price {
    int level = 0;
    std::string runtime{};
    double with = 0, without = 0;
    std::string not_measured{};  ///< why it was not
    std::string text() const;
    nlohmann::ordered_json json() const;
};

/// Writes the level to every MatMulNBits of an exported model. Throws where there is none, and no product of integers that has level 4.
void set_accuracy_level(model& exported, int level);

/// Returns the exported model with no MatMulNBits of a level.
model without_level(const model& exported);

/// Runs the float model, and the exported one with and without its level, on at most 32 samples.
level_price price_of_level(const model& plain, const model& without, const model& exported, int level, const data_settings& data);

}  // namespace qk::graph::pipeline
