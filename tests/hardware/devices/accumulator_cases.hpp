// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of layers under an accumulator: operands encoded as codes, and a run of a model with units assigned to layers.
#pragma once

#include <doctest/doctest.h>

#include "graph/base/kernel_calls.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/plan/plan.hpp"

/// An operand's format, scale and zero point; `of` encodes float32 values under them.
struct coded {
    qk::format format;
    float scale = 1;
    std::int64_t zero_point = 0;
    std::vector<std::byte> of(const std::vector<float>& x) const {
        std::vector<std::byte> bytes(qk::packed_bytes(format, {1, x.size(), 1}));
        REQUIRE(qk::graph::kernel_calls::encode(format, x, bytes, qk::affine{scale, zero_point}) == qk::encode_status::done);
        return bytes;
    }
};

inline qk::graph::evaluate_result under(const qk::graph::model& m, const qk::graph::layer_accumulators& units,
                                        const qk::graph::named_tensors& inputs, qk::graph::precision_plan plan = {}, int threads = 1) {
    plan.accumulators = units;
    return qk::graph::evaluator(m, {.threads = threads}).run(inputs, plan);
}
