// SPDX-License-Identifier: Apache-2.0
// Ranks formats of weights without a network, and chooses a mix for a size.
#include <algorithm>
#include <map>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

/// One format being measured on one weight.
struct trial_format {
    ggml_type type;
    block_quantizer quantize;
    ggml_facts facts;
    format_error sums;
};

void measure_row(trial_format& t, std::span<const float> row, std::span<const float> columns, std::vector<std::byte>& blocks,
                 std::vector<float>& back) {
    blocks.assign(row.size() / t.facts.values * t.facts.bytes, std::byte{0});
    back.resize(row.size());
    t.quantize(row, columns, blocks);
    for (std::size_t k = 0; k < row.size(); k += t.facts.values)
        decode_ggml(t.type, layout_parts::raw(std::span<const std::byte>(blocks)) + k / t.facts.values * t.facts.bytes, back.data() + k);
    for (std::size_t k = 0; k < row.size(); ++k) {
        const double x = row[k], d = x - static_cast<double>(back[k]), weighted = columns.empty() ? 1.0 : static_cast<double>(columns[k]);
        t.sums.power += weighted * x * x, t.sums.error += weighted * d * d;
    }
}

}  // namespace

std::vector<format_error> measure_formats(const checkpoint& c, const std::vector<std::string>& formats,
                                          const std::function<std::vector<float>(const weight&)>& columns, const progress& told) {
    std::vector<format_error> all;
    std::uint64_t done = 0, total = 0;
    for (const weight& w : c.weights)
        if (w.shape.size() >= 2 && !w.problem) total += w.elements();
    for (const weight& w : c.weights) {
        if (w.shape.size() < 2 || w.problem || w.elements() == 0) continue;
        std::vector<trial_format> trials;
        for (const std::string& name : formats) {
            const auto type = ggml_type_named(name);
            const block_quantizer quantize = type ? quantizer_of(*type) : block_quantizer();
            if (!quantize)
                throw error("format " + shown(name) + " is none that weights can be quantized to here; ggml's names are meant, as q4_k");
            const ggml_facts f = facts_of(*type);
            if (w.shape.back() % f.values != 0) continue;
            trials.push_back({*type,
                              quantize,
                              f,
                              {.tensor = w.name, .format = name, .values = w.elements(), .bytes = w.elements() / f.values * f.bytes}});
        }
        const std::vector<float> of_columns = columns ? columns(w) : std::vector<float>();
        if (!of_columns.empty() && of_columns.size() != w.shape.back())
            throw error(w.name + " has " + std::to_string(w.shape.back()) + " columns and weights for " +
                        std::to_string(of_columns.size()));
        std::vector<float> rest, back;
        std::vector<std::byte> blocks;
        const std::size_t row = w.shape.back();
        c.decode_with_factor(w, [&](std::span<const float> part) {
            rest.insert(rest.end(), part.begin(), part.end());
            const std::size_t whole = rest.size() / row * row;
            for (std::size_t i = 0; i < whole; i += row)
                for (trial_format& t : trials) measure_row(t, std::span(rest).subspan(i, row), of_columns, blocks, back);
            rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(whole));
            done += part.size();
            if (told) told(done, total);
        });
        for (trial_format& t : trials) all.push_back(std::move(t.sums));
    }
    return all;
}

std::vector<std::size_t> choose_formats(const std::vector<format_error>& errors, std::uint64_t budget) {
    std::map<std::string, std::vector<std::size_t>> of_tensor;
    std::vector<std::string> order;
    for (std::size_t i = 0; i < errors.size(); ++i) {
        auto& list = of_tensor[errors[i].tensor];
        if (list.empty()) order.push_back(errors[i].tensor);
        list.push_back(i);
    }
    std::vector<std::size_t> chosen;
    std::uint64_t bytes = 0;
    for (const std::string& name : order) {
        const auto& list = of_tensor[name];
        chosen.push_back(
            *std::ranges::min_element(list, {}, [&](std::size_t i) { return std::pair(errors[i].bytes, errors[i].relative()); }));
        bytes += errors[chosen.back()].bytes;
    }
    if (bytes > budget) return {};
    while (true) {
        std::size_t best_tensor = 0, best = errors.size();
        double most = 0;
        for (std::size_t t = 0; t < order.size(); ++t)
            for (const std::size_t i : of_tensor[order[t]]) {
                const format_error &now = errors[chosen[t]], &then = errors[i];
                if (then.relative() >= now.relative() || (then.bytes > now.bytes && then.bytes - now.bytes > budget - bytes)) continue;
                const double cost = then.bytes > now.bytes ? static_cast<double>(then.bytes - now.bytes) : 0.5;
                const double gain = (now.relative() - then.relative()) / cost;
                if (gain > most) most = gain, best = i, best_tensor = t;
            }
        if (best == errors.size()) return chosen;
        bytes = bytes - errors[chosen[best_tensor]].bytes + errors[best].bytes;
        chosen[best_tensor] = best;
    }
}

}  // namespace qk::checkpoint
