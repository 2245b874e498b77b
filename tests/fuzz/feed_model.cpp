// SPDX-License-Identifier: Apache-2.0
// Definition of feed_model.hpp.
#include "feed_model.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "graph/ops/half.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk_fuzz {
namespace {

using namespace qk::graph;

constexpr std::size_t most_input_elements = 1024, most_elements = 1 << 20;
constexpr run_limits small{.memory = std::size_t{4} << 20, .body_steps = 2000};

/// FNV-1a. What the bytes leave open (values of inputs, formats) is drawn from this hash, so that a file always does the same.
std::uint32_t hash_of(std::string_view bytes) {
    std::uint32_t h = 2166136261u;
    for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
    return h;
}

/// Returns small integers (random, some negative, 0 1 2 3 4 in turn, or some absurd), or quarters of them for floats. Advances `state`.
tensor values_for(data_type type, const dims& shape, std::uint32_t& state) {
    tensor t(type, shape);
    const std::uint32_t kind = state % 4;
    for (std::size_t i = 0; i < t.size(); ++i) {
        state = state * 1664525u + 1013904223u;
        std::int64_t v = static_cast<std::int64_t>(state >> 24) % 8;
        if (kind == 1) v -= 4;
        if (kind == 2) v = static_cast<std::int64_t>(i % 5);
        if (kind == 3 && (state >> 16) % 7 == 0)
            v = std::array<std::int64_t, 6>{INT64_MIN, INT64_MAX, -1, INT32_MAX, std::int64_t{1} << 40, 1 << 20}[(state >> 8) % 6];
        const auto f = static_cast<float>(v) * 0.25f;
        switch (type) {
            case data_type::float32: t.as<float>()[i] = f; break;
            case data_type::float64: t.as<double>()[i] = static_cast<double>(f); break;
            case data_type::float16: t.as<half>()[i] = ops::to_half(f); break;
            case data_type::bfloat16: t.as<brain>()[i] = ops::to_brain(f); break;
            case data_type::boolean: t.as<std::uint8_t>()[i] = v & 1; break;
            case data_type::int4:
            case data_type::int2: t.as<std::int8_t>()[i] = static_cast<std::int8_t>(v & 1); break;
            case data_type::uint4:
            case data_type::uint2:
            case data_type::float4e2m1: t.as<std::uint8_t>()[i] = v & 3; break;
            default: std::memcpy(t.bytes() + i * size_of(type), &v, std::min<std::size_t>(size_of(type), sizeof v));
        }
    }
    return t;
}

/// Makes data for the inputs that the model declares. Returns false if one is no tensor or too large.
bool make_inputs(const model& m, std::uint32_t state, named_tensors& inputs) {
    for (const value_info& v : m.inputs()) {
        const data_type type = v.type == data_type::undefined ? data_type::float32 : v.type;
        if (static_cast<int>(type) < 0 || static_cast<int>(type) > 26 || size_of(type) == 0) return false;
        dims shape;
        std::size_t count = 1;
        for (const dimension& d : v.shape) {
            shape.push_back(d.value >= 0 ? d.value : 2);
            if (count != 0 && static_cast<std::size_t>(shape.back()) > most_input_elements / count) return false;
            count *= static_cast<std::size_t>(shape.back());
        }
        inputs[v.name] = values_for(type, shape, state);
    }
    return true;
}

evaluate_options options() { return {.threads = 1, .limits = small}; }

void plan_and_export(const model& m, const named_tensors& inputs, std::uint32_t choice) {
    static constexpr std::array formats{"int8", "uint8", "int4", "bfp16", "mx6", "mxfp4", "fp8_e4m3fn", "nvfp4", "fp16", "int16"};
    const char* const format = formats[choice % formats.size()];
    calibrate_options gathering{.threads = 1};
    gathering.limits = small;
    gathering.histograms = choice % 3 != 0;
    const calibration seen = calibrate(m, inputs, gathering);
    quantize_options how;
    how.where = static_cast<placement>(choice / 16 % 3);
    how.how = static_cast<approach>(choice / 64 % 3);
    how.per_channel = (choice & 1024) != 0;
    if (gathering.histograms)
        how.method =
            std::array{range_method::min_max, range_method::percentile, range_method::mse, range_method::entropy}[choice / 4096 % 4];
    const auto made = quantize(m, precision_requests().set_default(format, format), seen, how);
    static_cast<void>(made.report.text());
    try {
        static_cast<void>(evaluator(m, options()).run(inputs, made.plan));
    } catch (const error&) {
    }
    const auto written = export_model(
        m, made.plan,
        {.style = export_styles()[choice / 32768 % export_styles().size()], .weights = static_cast<weight_storage>(choice >> 24 & 1)});
    const model again = model::parse(written.exported.proto().SerializeAsString());
    static_cast<void>(evaluator(again, options()).run(inputs));
}

}  // namespace

void feed_model(std::string_view bytes) {
    const std::uint32_t choice = hash_of(bytes);
    try {
        model m = model::parse(bytes);
        named_tensors inputs;
        const bool runs = make_inputs(m, choice, inputs);
        if (runs) {
            try {
                static_cast<void>(evaluator(m, options()).run(inputs));
            } catch (const error&) {
            }
        }
        fold_constants(m, most_elements);
        fold_batch_normalization(m);
        if (!runs) return;
        static_cast<void>(evaluator(m, {.threads = 1, .plain_kernels = true, .limits = small}).run(inputs));
        plan_and_export(m, inputs, choice);
    } catch (const error&) {  // a sentence: what bad bytes should end in
    }
}

}  // namespace qk_fuzz
