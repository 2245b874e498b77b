// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/ops/elements.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph {
namespace detail {

inline bool is_integer_type(data_type t) {
    return t == data_type::int64 || t == data_type::int32 || t == data_type::int16 || t == data_type::uint8 || t == data_type::int8;
}

/// Throws for a mask that belongs to another sequence than the tokens, such as an encoder's: without a cache before the tokens both have
/// the same length.
inline void check_mask(const model& m, const named_tensors& inputs, const std::string& mask, std::size_t samples) {
    const std::string ids = token_input(m, mask);
    const bool cached = std::ranges::any_of(m.inputs(), [](const value_info& v) { return v.shape.size() > 3; });
    if (ids.empty() || cached || !inputs.contains(ids)) return;
    const auto length = [&](const std::string& name, std::size_t s) {
        const auto own = inputs.ragged.find(name);
        return own != inputs.ragged.end() ? own->second.at(s).back() : inputs.at(name).shape().back();
    };
    for (std::size_t s = 0; s < samples; ++s)
        if (length(mask, s) != length(ids, s))
            throw error("--mask '" + mask + "' has " + std::to_string(length(mask, s)) + " positions and '" + ids + "' " +
                        std::to_string(length(ids, s)) + ": it is the mask of another sequence");
}

}  // namespace detail

std::vector<std::int64_t> as_integers(const tensor& t) {
    std::vector<std::int64_t> v(t.size());
    ops::read_elements(t.type(), t.bytes(), std::span(v));
    return v;
}

std::string token_input(const model& m, const std::string& mask) {
    std::string first;
    for (const value_info& v : m.inputs()) {
        if (!detail::is_integer_type(v.type) || v.shape.size() != 2 || v.name == mask) continue;
        if (v.name.ends_with("input_ids")) return v.name;
        const bool other = v.name.find("mask") != std::string::npos || v.name.find("position") != std::string::npos ||
                           v.name.find("type") != std::string::npos;
        if (first.empty() && !other) first = v.name;
    }
    return first;
}

positions::positions(const model& m, const named_tensors& inputs, std::size_t samples, std::vector<std::int64_t> labels,
                     position_options options)
    : options_(std::move(options)), labels_(std::move(labels)), given_(!labels_.empty()) {
    samples = std::max<std::size_t>(samples, 1);
    if (!options_.mask.empty()) read_mask(m, inputs, samples);
    if (options_.next_token && !given_) read_ids(m, inputs, samples);
    if (labels_.size() % samples != 0)
        throw error("there are " + std::to_string(labels_.size()) + " labels for " + std::to_string(samples) + " samples" +
                    (labels_.size() > samples ? ", and label " + std::to_string(labels_[samples]) + " at index " + std::to_string(samples) +
                                                    " is of none of them"
                                              : "") +
                    ": give one for each, or [N,S]");
    labels_per_sample_ = labels_.size() / samples;
    if (!labels_.empty()) counting_labels(labels_, options_.ignore_label, "the labels");
}

void positions::read_mask(const model& m, const named_tensors& inputs, std::size_t samples) {
    const auto found = inputs.find(options_.mask);
    if (found == inputs.end()) {
        std::vector<std::string> names;
        for (const value_info& v : m.inputs()) names.push_back(v.name);
        throw error("--mask '" + options_.mask + "' is no input of the model; its inputs are " + comma_separated(names) + "." +
                    did_you_mean(options_.mask, names));
    }
    const tensor& t = found->second;
    if (t.rank() != 2 || t.size() % samples != 0)
        throw error("--mask '" + options_.mask + "' has shape " + to_string(t.shape()) + "; a mask of positions is [N,S]");
    mask_per_sample_ = t.size() / samples;
    detail::check_mask(m, inputs, options_.mask, samples);
    for (const std::int64_t v : as_integers(t)) mask_.push_back(v != 0);
    // If a mask begins with the positions of a cache, it ends where the output does: each sample's own values move to the end of its
    // row.
    if (const auto own = inputs.ragged.find(options_.mask); own != inputs.ragged.end())
        for (std::size_t s = 0; s < samples; ++s) {
            const auto row = mask_.begin() + static_cast<std::ptrdiff_t>(s * mask_per_sample_);
            std::rotate(row, row + static_cast<std::ptrdiff_t>(own->second.at(s).back()),
                        row + static_cast<std::ptrdiff_t>(mask_per_sample_));
        }
}

/// Takes the ids that the model reads as labels.
void positions::read_ids(const model& m, const named_tensors& inputs, std::size_t samples) {
    const std::string ids = token_input(m, options_.mask);
    if (ids.empty()) throw error("--next-token needs --labels: the model has no input of token ids [N,S]");
    labels_ = as_integers(inputs.at(ids));
    const auto own = inputs.ragged.find(ids);
    if (own == inputs.ragged.end()) return;
    const std::size_t longest = labels_.size() / samples;
    for (std::size_t s = 0; s < samples; ++s)  // behind a short sample's end there are no tokens
        for (std::size_t p = static_cast<std::size_t>(own->second.at(s).back()); p < longest; ++p)
            labels_[s * longest + p] = options_.ignore_label;
}

bool positions::by_position(const metric& m) const {
    return m.by_position || (options_.per_position && (m.name == "cosine" || m.name == "l2"));
}

/// Returns the label that a row is measured against; nullopt if there is none.
std::optional<std::int64_t> positions::label_of(std::size_t sample, std::size_t row, const choice_rows& of) const {
    const std::size_t each = labels_per_sample_ / (of.rows / of.length), at = row % of.length + (options_.next_token ? 1 : 0);
    if (at >= of.length || at >= each) return std::nullopt;
    return labels_[sample * labels_per_sample_ + row / of.length * each + at];
}

/// Is true where a row is no padding. The sequences of a sample have masks of their own, or share one.
bool positions::is_real(std::size_t sample, std::size_t row, const choice_rows& of) const {
    if (mask_.empty()) return true;
    const std::size_t sequences = of.rows / of.length, own = mask_per_sample_ / sequences;
    const bool shared = mask_per_sample_ % sequences != 0 || own < of.length;
    const std::size_t each = shared ? mask_per_sample_ : own, before = each - std::min(each, of.length);
    return mask_[sample * mask_per_sample_ + (shared ? 0 : row / of.length * each) + before + row % of.length] != 0;
}

bool positions::counts(std::size_t sample, std::size_t row, const choice_rows& of, bool with_label) const {
    if (!is_real(sample, row, of)) return false;
    if (labels_.empty()) return true;
    const std::optional<std::int64_t> label = label_of(sample, row, of);
    if (!label) return !with_label && options_.next_token && row % of.length + 1 == of.length;  // the last position has no next one
    return *label != options_.ignore_label && (!with_label || !options_.next_token || is_real(sample, row + 1, of));
}

void positions::check(const dims& shape, std::size_t sample) const {
    const choice_rows of = choices_of(shape, labels_per_sample_);
    const auto text = [&] { return "an output of shape " + to_string(shape) + " for each sample"; };
    if (of.positions && !mask_.empty() && mask_per_sample_ < of.length)
        throw error("--mask '" + options_.mask + "' has " + std::to_string(mask_per_sample_) + " positions and does not fit " + text());
    if (labels_.empty()) return;
    const std::size_t each = labels_per_sample_, first = sample * each, sequences = of.rows / of.length;
    if (!of.positions && each > 1)
        throw error("labels are [N," + std::to_string(each) + "] and do not fit " + text() + ": give one for each sample; label " +
                    std::to_string(labels_[first + 1]) + " at " + label_index(first + 1, each) + " is of none");
    if (given_ && of.positions && (each < of.rows || each % sequences != 0))
        throw error("there are " + std::to_string(each) + " labels for each sample and " + text() +
                    ": give a label for each position, [N," + std::to_string(of.rows) + "], " + std::to_string(options_.ignore_label) +
                    " where none counts");
    for (std::size_t i = 0; given_ && i < each; ++i)  // samples of other lengths may be longer
        if (i % (each / sequences) >= of.length && labels_[first + i] != options_.ignore_label)
            throw error("label " + std::to_string(labels_[first + i]) + " at " + label_index(first + i, each) + " has no position in " +
                        text() + ": it has to be " + std::to_string(options_.ignore_label) + ", which --ignore-label leaves out");
    check_labels(std::span(labels_).first(first + each), each, of.classes, options_.ignore_label, first);
}

metric_terms positions::terms(const metric& m, const dims& shape, std::span<const float> y, std::span<const float> reference,
                              std::size_t sample) const {
    check(shape, sample);
    const choice_rows of = choices_of(shape, labels_per_sample_);
    metric_terms sums{};
    if (!of.positions) {
        if (is_ignored(sample)) return sums;
        sums = m.sample(y, reference, labels_.empty() ? -1 : labels_[sample]);
        sums[counted] = 1;
        return sums;
    }
    if (by_position(m)) {
        for (std::size_t r = 0; r < of.rows; ++r) {
            if (!counts(sample, r, of, m.needs_labels)) continue;
            const auto row = [&](std::span<const float> of_all) {
                return of_all.empty() ? of_all : of_all.subspan(r * of.classes, of.classes);
            };
            const metric_terms one = m.sample(row(y), row(reference), labels_.empty() ? -1 : label_of(sample, r, of).value_or(-1));
            for (std::size_t i = 0; i < counted; ++i) sums[i] += one[i];
            sums[counted] += 1;
        }
        return sums;
    }
    std::vector<float> kept, kept_reference;
    bool any = false;
    for (std::size_t r = 0; r < of.rows; ++r) {
        if (!counts(sample, r, of, false)) continue;
        const auto from = static_cast<std::ptrdiff_t>(r * of.classes), to = from + static_cast<std::ptrdiff_t>(of.classes);
        kept.insert(kept.end(), y.begin() + from, y.begin() + to);
        kept_reference.insert(kept_reference.end(), reference.begin() + from, reference.begin() + to);
        any = true;
    }
    if (!any) return sums;
    sums = m.sample(kept, kept_reference, -1);
    sums[counted] = 1;
    return sums;
}

double positions::finish(const metric& m, const metric_terms& sums) const {
    if (sums[counted] == 0 && (!labels_.empty() || !mask_.empty()))
        throw error("nothing counts: every " + std::string(mask_.empty() ? "label" : "position") + " is left out" +
                    (options_.next_token ? ", and --next-token needs two positions of a sample" : "") +
                    (mask_.empty() ? "" : ", by --mask '" + options_.mask + "' or its label"));
    return m.finish(sums, static_cast<std::size_t>(sums[counted]));
}

std::string positions::description() const {
    const bool named = options_.ignore_label != ignored_label && !labels_.empty();
    const bool left_out = labels_per_sample_ == 1 && std::ranges::find(labels_, options_.ignore_label) != labels_.end();
    return (options_.mask.empty() ? "" : " mask " + options_.mask) + (options_.next_token ? " next token" : "") +
           (options_.per_position ? " per position" : "") + (named || left_out ? " ignore " + std::to_string(options_.ignore_label) : "");
}

tensor labels_by_sample(std::span<const std::int64_t> labels, const tensor& output) {
    const auto all = static_cast<std::int64_t>(labels.size());
    const std::int64_t samples = output.rank() == 0 ? all : std::max<std::int64_t>(output.dim(0), 1);
    const bool several = all > samples && all % samples == 0;
    return make_tensor<std::int64_t>(several ? dims{samples, all / samples} : dims{all}, labels);
}

}  // namespace qk::graph
