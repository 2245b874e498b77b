// SPDX-License-Identifier: Apache-2.0
// Ranks formats of weights without a network, and chooses a mix for a size.
#include <algorithm>
#include <map>
#include <set>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

std::function<std::optional<row_format>(const std::string&)>& more_formats() {
    static std::function<std::optional<row_format>(const std::string&)> more;
    return more;
}

/// One format being measured on one weight.
struct trial_format {
    row_format how;
    block_quantizer quantize;  ///< of a type of ggml's; else `how` rounds
    ggml_type type{};
    format_error sums;
};

/// Returns the trial of a format on a weight; nullopt where its rows are no whole blocks.
std::optional<trial_format> trial_of(const weight& w, const std::string& name) {
    trial_format t;
    t.sums.tensor = w.name, t.sums.format = name, t.sums.values = w.elements();
    const std::uint64_t columns = w.shape.back(), rows = w.elements() / columns;
    if (const auto type = ggml_type_named(name)) {
        t.type = *type, t.quantize = quantizer_of(*type);
        const ggml_facts f = facts_of(*type);
        t.how.multiple = f.values;
        t.sums.bytes = w.elements() / f.values * f.bytes;
    } else if (auto other = more_formats() ? more_formats()(name) : std::nullopt) {
        t.how = *std::move(other);
        t.sums.bytes = t.how.bytes(rows, columns);
    }
    if (!t.quantize && !t.how.round)
        throw error("format " + shown(name) +
                    " is none that weights can be quantized to here; ggml's names are meant, as q4_k, or those of `qk formats`");
    if (columns % t.how.multiple != 0) return std::nullopt;
    return t;
}

/// What a row adds to the sums of a trial.
struct row_error {
    double power = 0, error = 0;
};

row_error measure_row(const trial_format& t, std::span<const float> row, std::span<const float> columns, std::vector<std::byte>& blocks,
                      std::vector<float>& back) {
    back.resize(row.size());
    if (t.quantize) {
        const ggml_facts f = facts_of(t.type);
        blocks.assign(row.size() / f.values * f.bytes, std::byte{0});
        t.quantize(row, columns, blocks);
        for (std::size_t k = 0; k < row.size(); k += f.values)
            decode_ggml(t.type, layout_parts::raw(std::span<const std::byte>(blocks)) + k / f.values * f.bytes, back.data() + k);
    } else {
        t.how.round(row, back);
    }
    row_error sum;
    for (std::size_t k = 0; k < row.size(); ++k) {
        const double x = row[k], d = x - static_cast<double>(back[k]), weighted = columns.empty() ? 1.0 : static_cast<double>(columns[k]);
        sum.power += weighted * x * x, sum.error += weighted * d * d;
    }
    return sum;
}

/// Measures all trials on whole rows, of which the first is row `begin` of its tensor. Sums are added in the order of rows, so that they
/// do not depend on threads.
void measure_rows(std::vector<trial_format>& trials, std::span<const float> values, std::size_t columns, const importance_rows& importance,
                  std::uint64_t begin, int threads) {
    const std::size_t rows = values.size() / columns;
    std::vector<row_error> sums(rows * trials.size());
    in_parts(rows, threads, [&](std::size_t first, std::size_t last) {
        std::vector<std::byte> blocks;
        std::vector<float> back;
        for (std::size_t r = first; r < last; ++r)
            for (std::size_t t = 0; t < trials.size(); ++t)
                sums[r * trials.size() + t] =
                    measure_row(trials[t], values.subspan(r * columns, columns), importance.of(begin + r), blocks, back);
    });
    for (std::size_t i = 0; i < sums.size(); ++i) {
        format_error& to = trials[i % trials.size()].sums;
        to.power += sums[i].power, to.error += sums[i].error;
    }
}

/// Tensors that get one format, and how each format would do for them together.
struct unit {
    std::vector<std::string> tensors;
    struct choice {
        std::vector<std::size_t> entries;  ///< numbers of the errors, one for each tensor
        std::uint64_t bytes = 0;
        double relative = 0;
    };
    std::vector<choice> choices;
};

/// Joins the tensors of groups; the others are by themselves. Units are in the order of their first tensors.
std::vector<unit> units_of(const std::vector<format_error>& errors, const std::vector<std::vector<std::string>>& groups) {
    std::map<std::string, std::string> leader;  // of each tensor, that of its group
    const auto lead = [&](std::string name) {
        while (leader.contains(name) && leader[name] != name) name = leader[name];
        return name;
    };
    for (const auto& group : groups)
        for (const std::string& name : group) leader[lead(name)] = lead(group.front());
    std::vector<unit> units;
    std::map<std::string, std::size_t> place;
    std::map<std::string, std::map<std::string, std::size_t>> of_tensor;  // tensor, format: number of the entry
    std::map<std::string, std::vector<std::string>> formats;              // of the first tensor of a unit, in their order
    for (std::size_t i = 0; i < errors.size(); ++i) {
        const format_error& e = errors[i];
        const std::string of = lead(e.tensor);
        const auto [at, fresh] = place.try_emplace(of, units.size());
        if (fresh) units.emplace_back();
        unit& u = units[at->second];
        if (of_tensor[e.tensor].empty()) u.tensors.push_back(e.tensor);
        of_tensor[e.tensor].try_emplace(e.format, i);
        if (e.tensor == u.tensors.front()) formats[e.tensor].push_back(e.format);
    }
    for (unit& u : units) {
        for (const std::string& format : formats[u.tensors.front()]) {
            unit::choice c;
            for (const std::string& t : u.tensors)
                if (const auto found = of_tensor[t].find(format); found != of_tensor[t].end()) {
                    c.entries.push_back(found->second);
                    c.bytes += errors[found->second].bytes, c.relative += errors[found->second].relative();
                }
            if (c.entries.size() == u.tensors.size()) u.choices.push_back(std::move(c));
        }
        if (u.choices.empty())
            throw error(u.tensors.front() + " and " + u.tensors.back() + " share a format, and none of those given is possible for both");
    }
    return units;
}

}  // namespace

void use_row_formats(std::function<std::optional<row_format>(const std::string&)> more) { more_formats() = std::move(more); }

std::vector<format_error> measure_formats(const checkpoint& c, const std::vector<std::string>& formats,
                                          const std::function<std::vector<float>(const weight&)>& columns, const progress& told,
                                          int threads) {
    std::vector<format_error> all;
    std::uint64_t done = 0, total = 0;
    for (const weight& w : c.weights)
        if (w.shape.size() >= 2 && !w.problem) total += w.elements();
    for (const weight& w : c.weights) {
        if (w.shape.size() < 2 || w.problem || w.elements() == 0) continue;
        std::vector<trial_format> trials;
        for (const std::string& name : formats)
            if (auto trial = trial_of(w, name)) trials.push_back(*std::move(trial));
        const importance_rows importance(w, columns ? columns(w) : std::vector<float>());
        std::vector<float> rest;
        const std::size_t row = w.shape.back();
        std::uint64_t rows = 0;
        c.decode_with_factor(w, [&](std::span<const float> part) {
            rest.insert(rest.end(), part.begin(), part.end());
            const std::size_t whole = rest.size() / row * row;
            measure_rows(trials, std::span(rest).first(whole), row, importance, rows, threads);
            rows += whole / row;
            rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(whole));
            done += part.size();
            if (told) told(done, total);
        });
        for (trial_format& t : trials) all.push_back(std::move(t.sums));
    }
    return all;
}

std::vector<std::vector<std::string>> groups_by_layer(const checkpoint& c, const std::vector<std::string>& globs) {
    std::map<std::string, std::vector<std::string>> by_layer;
    std::set<std::string> fitted;
    for (const weight& w : c.weights) {
        bool fit = false;
        for (const std::string& glob : globs)
            if (fits(glob, w.name) || fits(glob + ".weight", w.name)) fit = true, fitted.insert(glob);
        if (!fit) continue;
        std::size_t end = 0;
        std::string layer;
        while (end < w.name.size() && layer.empty()) {
            const std::size_t dot = std::min(w.name.find('.', end), w.name.size());
            const std::string part = w.name.substr(end, dot - end);
            if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) layer = w.name.substr(0, dot);
            end = dot + 1;
        }
        by_layer[layer].push_back(w.name);
    }
    for (const std::string& glob : globs)
        if (!fitted.contains(glob)) throw error("no weight of " + c.path.string() + " fits '" + glob + "'");
    std::vector<std::vector<std::string>> groups;
    for (auto& [layer, names] : by_layer) groups.push_back(std::move(names));
    return groups;
}

std::vector<std::size_t> choose_formats(const std::vector<format_error>& errors, std::uint64_t budget,
                                        const std::vector<std::vector<std::string>>& groups) {
    const std::vector<unit> units = units_of(errors, groups);
    std::vector<const unit::choice*> chosen;
    std::uint64_t bytes = 0;
    for (const unit& u : units) {
        chosen.push_back(&*std::ranges::min_element(u.choices, {}, [](const unit::choice& c) { return std::pair(c.bytes, c.relative); }));
        bytes += chosen.back()->bytes;
    }
    if (bytes > budget) return {};
    while (true) {
        std::size_t best_unit = 0;
        const unit::choice* best = nullptr;
        double most = 0;
        for (std::size_t u = 0; u < units.size(); ++u)
            for (const unit::choice& then : units[u].choices) {
                const unit::choice& now = *chosen[u];
                if (then.relative >= now.relative || (then.bytes > now.bytes && then.bytes - now.bytes > budget - bytes)) continue;
                const double cost = then.bytes > now.bytes ? static_cast<double>(then.bytes - now.bytes) : 0.5;
                const double gain = (now.relative - then.relative) / cost;
                if (gain > most) most = gain, best = &then, best_unit = u;
            }
        if (best == nullptr) break;
        bytes = bytes - chosen[best_unit]->bytes + best->bytes;
        chosen[best_unit] = best;
    }
    std::vector<std::size_t> entries;
    for (const unit::choice* c : chosen) entries.insert(entries.end(), c->entries.begin(), c->entries.end());
    std::ranges::sort(entries);
    return entries;
}

}  // namespace qk::checkpoint
