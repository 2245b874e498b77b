// SPDX-License-Identifier: Apache-2.0
// Computes scores from outputs: terms for each (candidate, sample), summed in sample order.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/elements.hpp"
#include "graph/search/child_process.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph {
namespace detail {

inline std::string quoted(const std::filesystem::path& p) { return "'" + p.string() + "'"; }

/// Is true when all of these outputs are there, each with the rows of one sample behind those of another.
inline bool has_rows(const named_tensors& all, const std::vector<std::string>& names, std::size_t samples) {
    if (!all.ragged.empty() || !all.joined_along.empty()) return false;
    return std::ranges::all_of(names, [&](const std::string& name) {
        const auto own = all.find(name);
        return own != all.end() && own->second.rank() > 0 && own->second.dim(0) % static_cast<std::int64_t>(samples) == 0;
    });
}

}  // namespace detail

user_metric metric_from_command(const std::string& command) {
    return [command](const tensor& outputs, const tensor& reference, std::span<const std::int64_t> labels) {
        const temporary_folder folder("qk-metric", "--metric-command");
        write_npy(folder / "output.npy", outputs);
        write_npy(folder / "reference.npy", reference);
        std::string line = command + " " + detail::quoted(folder / "output.npy") + " " + detail::quoted(folder / "reference.npy");
        if (!labels.empty()) {
            write_npy(folder / "labels.npy", labels_by_sample(labels, outputs));
            line += " " + detail::quoted(folder / "labels.npy");
        }
        std::FILE* pipe = ::popen(line.c_str(), "r");
        if (!pipe) throw error("--metric-command: cannot run '" + command + "'");
        std::string text;
        std::array<char, 256> part{};
        while (std::fgets(part.data(), part.size(), pipe))
            if (text.size() < 4096) text += part.data();  // the number comes first
        const int status = ::pclose(pipe);
        if (status != 0) throw error("--metric-command '" + command + "' " + detail::ending_of(status));
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end == text.c_str()) throw error("--metric-command '" + command + "' printed no number first, but: " + text.substr(0, 80));
        return value;
    };
}

scorer::scorer(const model& m, named_tensors inputs, score_options options)
    : options_(std::move(options)),
      metric_(options_.has_user() ? qk::graph::metric{"user", options_.user_higher_is_better, false, false, false, nullptr, nullptr, ""}
                                  : find_metric(options_.metric)),
      session_(m, inputs, options_.session) {
    const auto& outputs = m.outputs();
    if (options_.output_index < 0 || static_cast<std::size_t>(options_.output_index) >= outputs.size()) {
        throw error("--output-index " + std::to_string(options_.output_index) + " is out of range: the model has " +
                    std::to_string(outputs.size()) + " outputs, counted from 0");
    }
    output_name_ = outputs[static_cast<std::size_t>(options_.output_index)].name;
    for (const value_info& o : outputs) names_.push_back(o.name);
    positions_ = qk::graph::positions(m, inputs, session_.samples(), options_.labels, options_.positions);
    if (metric_.needs_labels && !positions_.has_labels())
        throw error("metric " + std::string(metric_.name) + " needs --labels, or --next-token for a language model");
    options_.labels = positions_.labels();
    const named_tensors known = std::exchange(options_.float_outputs, {});
    if (detail::has_rows(known, options_.of_outputs ? names_ : std::vector{output_name_}, session_.samples())) {
        take_reference(known.at(output_name_));
        if (options_.of_outputs)
            for (const std::string& name : names_) references_[name] = known.at(name);
    } else {
        set_reference({});
    }
    if (options_.has_user()) return;  // what labels mean is the user's to say
    for (std::size_t s = 0; s < reference_shapes_.size(); ++s)
        if (options_.session.together.own(s)) positions_.check(reference_shapes_[s], s);
}

std::string scorer::title() const {
    if (options_.user_title.empty()) return std::string(metric_.name);
    const bool taken = std::ranges::any_of(all_metrics(), [&](const auto& m) { return m.name == options_.user_title; });
    return options_.user_title + (taken ? "()" : "");
}

void scorer::take_reference(const tensor& all) {
    reference_.resize(session_.samples());
    reference_shapes_.resize(session_.samples());
    const std::size_t rows = static_cast<std::size_t>(all.dim(0)) / reference_.size();
    for (std::size_t s = 0; s < reference_.size(); ++s)
        if (options_.session.together.own(s)) {
            const tensor own = execute::rows(all, s * rows, rows);
            reference_[s] = sample_of(own), reference_shapes_[s] = own.shape();
        }
    if (options_.has_user()) reference_tensor_ = all;
}

std::vector<float> scorer::sample_of(const tensor& output) const {
    std::vector<float> values(output.size());
    if (!ops::read_elements(output.type(), output.bytes(), std::span<float>(values))) {
        throw error("output '" + output_name_ + "' has type " + name_of(output.type()) + ", which no metric can compare");
    }
    return values;
}

void scorer::set_reference(const precision_plan& plan) {
    reference_plan_ = plan;
    named_tensors all;  // joined, as a user's metric sees them
    if (options_.has_user() && options_.session.together.first()) all = session_.outputs(plan);
    if (options_.session.together.alone() && detail::has_rows(all, {output_name_}, session_.samples())) {
        take_reference(all.at(output_name_));
    } else {
        std::vector<std::vector<float>> reference(session_.samples());
        reference_shapes_.resize(reference.size());
        session_.evaluate(std::span(&plan, 1), [&](std::size_t, std::size_t sample, std::span<const tensor> outputs) {
            const tensor& own = outputs[static_cast<std::size_t>(options_.output_index)];
            reference[sample] = sample_of(own), reference_shapes_[sample] = own.shape();
            return 0.0;
        });
        reference_ = std::move(reference);
        if (!all.empty()) reference_tensor_ = all.at(output_name_);
    }
    if (options_.of_outputs) references_ = std::move(all);
}

score scorer::finish(std::span<const metric_terms> terms, std::span<const double> errors) const {
    metric_terms sums{};
    for (const metric_terms& t : terms) {
        for (std::size_t i = 0; i < t.size(); ++i) sums[i] += t[i];
    }
    double error_sum = 0;
    for (const double e : errors) error_sum += e;
    return {positions_.finish(metric_, sums), error_sum / double(std::max<std::size_t>(errors.size(), 1))};
}

std::pair<metric_terms, double> scorer::terms_of(std::size_t sample, std::span<const tensor> outputs) const {
    const tensor& own = outputs[static_cast<std::size_t>(options_.output_index)];
    const std::vector<float> y = sample_of(own);
    const std::vector<float>& r = reference_[sample];
    if (y.size() != r.size()) {  // the number of outputs may depend on values, as with NonMaxSuppression
        throw error("output '" + output_name_ + "' of sample " + std::to_string(sample) + " has " + std::to_string(y.size()) +
                    " values, its reference " + std::to_string(r.size()) + "; choose another --output-index or a --metric-command");
    }
    return {positions_.terms(metric_, own.shape(), y, r, sample), y.empty() ? 0 : detail::squared_distance(y, r) / double(y.size())};
}

std::optional<double> scorer::peek(const precision_plan& candidate) {
    const std::size_t n = session_.samples() / 16;
    if (options_.has_user() || options_.elsewhere || n < 8) return std::nullopt;
    std::vector<metric_terms> terms(n);
    const bool done = session_.peek(candidate, n, [&](std::size_t, std::size_t s, std::span<const tensor> outputs) {
        terms[s] = terms_of(s, outputs).first;
        return 0.0;
    });
    const bool counts = std::ranges::any_of(terms, [](const metric_terms& t) { return t[counted] > 0; });
    return done && counts ? std::optional(finish(terms, {}).metric) : std::nullopt;
}

std::vector<score> scorer::operator()(std::span<const precision_plan> candidates) {
    last_terms_.clear();  // nothing is known of what is measured elsewhere
    return options_.elsewhere ? options_.elsewhere(candidates) : here(candidates);
}

std::vector<score> scorer::here(std::span<const precision_plan> candidates) {
    return options_.has_user() ? score_whole(candidates) : score_samples(candidates);
}

std::vector<score> scorer::score_samples(std::span<const precision_plan> candidates) {
    const std::size_t n = session_.samples();
    std::vector<metric_terms> terms(candidates.size() * n);
    std::vector<double> errors(candidates.size() * n);
    const auto done = session_.evaluate(candidates, [&](std::size_t c, std::size_t s, std::span<const tensor> outputs) {
        std::tie(terms[c * n + s], errors[c * n + s]) = terms_of(s, outputs);
        return 0.0;
    });
    if (done.size() != candidates.size()) throw search_stopped{"interrupted"};
    share(terms);
    share(errors);
    std::vector<score> scores;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
        scores.push_back(finish(std::span(terms).subspan(c * n, n), std::span(errors).subspan(c * n, n)));
    }
    last_terms_ = std::move(terms);
    return scores;
}

std::optional<measured_difference> scorer::compare(const precision_plan& before, const precision_plan& after) {
    if (options_.server || options_.of_plan || options_.user) return std::nullopt;
    const precision_plan both[] = {before, after};
    if (options_.of_outputs) return options_.of_any_samples ? compare_by_user(both) : std::nullopt;
    score_samples(both);
    const std::size_t n = last_terms_.size() / 2;
    return difference_of(metric_, std::span(last_terms_).first(n), std::span(last_terms_).last(n));
}

/// Returns the samples of these numbers from joined outputs, one behind the other.
static std::vector<tensor> drawn_from(const std::vector<tensor>& joined, std::span<const std::size_t> which) {
    std::vector<tensor> drawn;
    for (const tensor& all : joined) {
        drawn.emplace_back(all.type(), all.shape());
        const std::size_t bytes = all.size_bytes() / which.size();
        for (std::size_t i = 0; i < which.size(); ++i) std::memcpy(drawn.back().bytes() + i * bytes, all.bytes() + which[i] * bytes, bytes);
    }
    return drawn;
}

std::optional<measured_difference> scorer::compare_by_user(std::span<const precision_plan> both) {
    if (!joins_simply() || !options_.session.together.alone()) return std::nullopt;
    const std::vector<named_tensors> outputs = outputs_of(both);
    if (outputs.size() != 2) return std::nullopt;
    const std::size_t n = session_.samples(), each = options_.labels.size() / n;
    const std::vector<tensor> reference = in_order(references_), first = in_order(outputs[0]), second = in_order(outputs[1]);
    const auto measured = [&](std::span<const std::size_t> which) {
        const std::vector<tensor> r = drawn_from(reference, which);
        std::vector<std::int64_t> labels;
        for (const std::size_t s : which)
            for (std::size_t k = 0; k < each; ++k) labels.push_back(options_.labels[s * each + k]);
        const double a = options_.of_outputs(drawn_from(first, which), r, labels);
        return std::pair(a, options_.of_outputs(drawn_from(second, which), r, labels));
    };
    std::vector<std::size_t> which(n);
    for (std::size_t i = 0; i < n; ++i) which[i] = i;
    try {
        const auto start = std::chrono::steady_clock::now();
        const auto [a, b] = measured(which);
        const bool is_fast = std::chrono::steady_clock::now() - start < std::chrono::milliseconds(100);
        return is_fast ? std::optional(difference_by_draws(a, b, n, 40, measured)) : std::nullopt;  // else the user would wait
    } catch (const std::exception&) {  // the function wants the samples as they were given; the search is done
        return std::nullopt;
    }
}

void scorer::share(std::vector<double>& values) const {
    if (!options_.session.together.alone()) options_.session.together.sum(values);
}

void scorer::share(std::vector<metric_terms>& terms) const {
    if (options_.session.together.alone()) return;
    std::vector<double> values;
    for (const metric_terms& t : terms) values.insert(values.end(), t.begin(), t.end());
    options_.session.together.sum(values);
    for (std::size_t i = 0; i < terms.size(); ++i)
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * terms[i].size()), terms[i].size(), terms[i].begin());
}

/// A user's own metric sees all samples at once: the first process measures, the others receive its scores.
std::vector<score> scorer::score_whole(std::span<const precision_plan> candidates) {
    std::vector<double> values(2 * candidates.size());
    if (options_.session.together.first()) {
        const std::vector<score> scores = measure_whole(candidates);
        for (std::size_t i = 0; i < scores.size(); ++i) values[2 * i] = scores[i].metric, values[2 * i + 1] = scores[i].error;
    }
    share(values);
    std::vector<score> scores;
    for (std::size_t i = 0; i < candidates.size(); ++i) scores.push_back({values[2 * i], values[2 * i + 1]});
    return scores;
}

bool scorer::joins_simply() const {
    if (references_.empty() || !references_.ragged.empty() || !references_.joined_along.empty()) return false;
    return std::ranges::all_of(references_, [&](const auto& output) {
        const tensor& y = output.second;
        return y.rank() > 0 && y.dim(0) > 0 && y.dim(0) % static_cast<std::int64_t>(session_.samples()) == 0;
    });
}

/// Evaluates candidates together, which shares what they have in common, and joins the outputs of each.
std::vector<named_tensors> scorer::outputs_of(std::span<const precision_plan> candidates) {
    const std::size_t n = session_.samples();
    std::vector<named_tensors> all(candidates.size());
    for (named_tensors& joined : all)
        for (const auto& [name, y] : references_) joined[name] = tensor(y.type(), y.shape());
    std::atomic<bool> fit = true;  // samples run on several threads
    const auto done = session_.evaluate(candidates, [&](std::size_t c, std::size_t s, std::span<const tensor> outputs) {
        for (std::size_t i = 0; i < names_.size(); ++i) {
            tensor& joined = all[c].at(names_[i]);
            const std::size_t bytes = joined.size_bytes() / n;
            if (outputs[i].type() != joined.type() || outputs[i].size_bytes() != bytes) {
                fit = false;
                continue;
            }
            std::memcpy(joined.bytes() + s * bytes, outputs[i].bytes(), bytes);
        }
        return 0.0;
    });
    if (done.size() != candidates.size()) throw search_stopped{"interrupted"};
    if (!fit) all.clear();
    return all;
}

std::vector<score> scorer::measure_whole(std::span<const precision_plan> candidates) {
    std::vector<score> scores;
    std::size_t bytes = 1;  // of what one candidate gives
    for (const auto& [name, y] : references_) bytes += y.size_bytes();
    // Candidates that run together share what they have in common; their outputs are held until all have run.
    const std::size_t at_once = std::max<std::size_t>((std::size_t{512} << 20) / bytes, 1);
    if (options_.of_outputs && joins_simply())
        for (std::size_t first = 0; first < candidates.size(); first += at_once) {
            const auto part = candidates.subspan(first, std::min(at_once, candidates.size() - first));
            const std::vector<named_tensors> outputs = outputs_of(part);
            if (outputs.empty()) break;
            for (std::size_t i = 0; i < part.size(); ++i) scores.push_back(score_of(outputs[i], part[i]));
        }
    if (scores.size() == candidates.size()) return scores;
    scores.clear();
    for (const precision_plan& plan : candidates) {
        if (options_.session.stop && options_.session.stop()) throw search_stopped{"interrupted"};
        scores.push_back(score_of(session_.outputs(plan), plan));
    }
    return scores;
}

score scorer::score_of(const named_tensors& all, const precision_plan& plan) const {
    if (options_.session.stop && options_.session.stop()) throw search_stopped{"interrupted"};
    const std::vector<float> values = sample_of(all.at(output_name_)), reference = sample_of(reference_tensor_);
    const double distance = values.size() == reference.size() && !values.empty()
                                ? detail::squared_distance(values, reference) / double(values.size())
                                : std::numeric_limits<double>::quiet_NaN();
    return {measure_user(all, plan), distance};
}

std::vector<tensor> scorer::in_order(const named_tensors& outputs) const {
    std::vector<tensor> all;
    for (const std::string& name : names_) all.push_back(outputs.at(name));
    return all;
}

double scorer::measure_user(const named_tensors& outputs, const precision_plan& plan) const {
    if (options_.of_plan) return options_.of_plan(plan);
    if (options_.of_outputs) return options_.of_outputs(in_order(outputs), in_order(references_), options_.labels);
    const tensor& own = outputs.at(output_name_);
    if (options_.server) return options_.server->measure(own, reference_tensor_, options_.labels, plan);
    return options_.user(own, reference_tensor_, options_.labels);
}

std::string scorer::description() const {
    std::string text = std::string(metric_.name) + " of " + output_name_ + " " + options_.user_name + positions_.description();
    for (const std::int64_t label : options_.labels) text += " " + std::to_string(label);
    if (!reference_plan_.tensors.empty() || !reference_plan_.edges.empty()) text += " against a plan";
    return text;
}

score scorer::reference_score() {
    if (options_.has_user()) {
        std::vector<double> value(1);
        if (options_.session.together.first()) {
            named_tensors all = references_;
            if (all.empty()) all[output_name_] = reference_tensor_;
            value[0] = measure_user(all, reference_plan_);
        }
        share(value);
        return {value[0], 0};
    }
    std::vector<metric_terms> terms;
    for (std::size_t s = 0; s < reference_.size(); ++s) {
        terms.emplace_back();
        if (!reference_[s].empty()) terms.back() = positions_.terms(metric_, reference_shapes_[s], reference_[s], reference_[s], s);
    }
    share(terms);
    return finish(terms, {});
}

}  // namespace qk::graph
