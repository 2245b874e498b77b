// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/bad_samples.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>

#include "graph/evaluate/execute/runner.hpp"
#include "graph/ops/widened.hpp"

namespace qk::graph::pipeline {
namespace {

bool expects_missing_values(const model& m) {
    return std::ranges::any_of(m.graph().node(), [](const onnx::NodeProto& n) { return facts_of(n).has(ops::finds_nan); });
}

bool has_nan(const tensor& given) {
    if ((given.type() != data_type::float32 && !ops::is_half(given.type())) || given.size() == 0) return false;
    const tensor value = ops::widened(given);
    return std::ranges::any_of(value.as<float>(), [](float v) { return std::isnan(v); });
}

tensor without_rows(const tensor& t, int axis, const std::vector<std::size_t>& gone, std::size_t samples) {
    dims shape = t.shape();
    std::int64_t& extent = shape[static_cast<std::size_t>(axis)];
    const std::size_t each = static_cast<std::size_t>(extent) / samples;
    extent = static_cast<std::int64_t>(each * (samples - gone.size()));
    tensor kept(t.type(), shape);
    std::size_t at = 0;
    for (std::size_t s = 0; s < samples; ++s) {
        if (std::ranges::binary_search(gone, s)) continue;
        execute::put_rows(kept, axis, at, execute::rows_along(t, axis, s * each, each));
        at += each;
    }
    return kept;
}

}  // namespace

execute::sample_set samples_of(const model& m, const named_tensors& data) {
    execute::sample_set samples = execute::make_samples(m, data);
    if (samples.ragged || !samples.symbolic) return samples;
    const auto network = execute::make_network(m, execute::large_constants::late);
    if (execute::follow_samples(*network, samples, samples.axes).rows()) return samples;
    if (!samples.wider.empty() && execute::follow_samples(*network, samples, samples.wider).rows()) samples.axes = samples.wider;
    else samples.count = 1, samples.axes.assign(samples.inputs.size(), -1);
    return samples;
}

named_tensors remaining_samples(const model& m, const named_tensors& data, const execute::sample_set& samples,
                                const std::vector<std::size_t>& gone) {
    named_tensors kept = data;
    for (std::size_t i = 0; i < m.inputs().size(); ++i) {
        if (samples.axes[i] < 0) continue;
        const std::string& name = m.inputs()[i].name;
        kept.at(name) = without_rows(data.at(name), samples.axes[i], gone, samples.count);
        if (const auto own = kept.ragged.find(name); own != kept.ragged.end())
            for (auto s = gone.rbegin(); s != gone.rend(); ++s) own->second.erase(own->second.begin() + static_cast<std::ptrdiff_t>(*s));
    }
    return kept;
}

std::string bad_samples::text() const {
    return "sample " + std::to_string(which.front()) + " (from 0) of input '" + input + "' holds NaN (" + std::to_string(which.size()) +
           " of " + std::to_string(of) + (of == 1 ? " sample" : " samples") + (which.size() == 1 ? " does)" : " do)");
}

bad_samples find_bad_samples(const model& m, const named_tensors& data) {
    bad_samples found;
    if (expects_missing_values(m)) return found;
    const auto has = [&](const value_info& input) {
        const auto at = data.find(input.name);
        return at != data.end() && has_nan(at->second);
    };
    if (std::ranges::none_of(m.inputs(), has)) return found;
    const execute::sample_set samples = samples_of(m, data);
    found.of = samples.count;
    for (std::size_t s = 0; s < samples.count; ++s) {
        const std::vector<tensor> own = samples.slice(s, 1);
        const auto bad = std::ranges::find_if(own, has_nan);
        if (bad == own.end()) continue;
        if (found.which.empty()) found.input = m.inputs()[static_cast<std::size_t>(bad - own.begin())].name;
        found.which.push_back(s);
    }
    return found;
}

named_tensors without_samples(const model& m, const named_tensors& data, const bad_samples& bad, const std::string& option) {
    if (bad.which.size() == bad.of) throw error(option + ": no sample is left: " + bad.text());
    named_tensors kept = remaining_samples(m, data, samples_of(m, data), bad.which);
    kept.left_out = bad.which;
    return kept;
}

}  // namespace qk::graph::pipeline
