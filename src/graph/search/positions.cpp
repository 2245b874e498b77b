// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/ops/elements.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph {
namespace detail {

inline constexpr std::int64_t no_label = -1, ignored = -100;

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
    : options_(std::move(options)), labels_(std::move(labels)) {
    samples = std::max<std::size_t>(samples, 1);
    if (!options_.mask.empty()) {
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
    if (options_.next_token && labels_.empty()) {
        const std::string ids = token_input(m, options_.mask);
        if (ids.empty()) throw error("--next-token needs --labels: the model has no input of token ids [N,S]");
        labels_ = as_integers(inputs.at(ids));
        if (const auto own = inputs.ragged.find(ids); own != inputs.ragged.end()) {  // behind a short sample's end there are no tokens
            const std::size_t longest = labels_.size() / samples;
            for (std::size_t s = 0; s < samples; ++s)
                for (std::size_t p = static_cast<std::size_t>(own->second.at(s).back()); p < longest; ++p)
                    labels_[s * longest + p] = detail::ignored;
        }
    }
    if (labels_.size() % samples != 0)
        throw error("there are " + std::to_string(labels_.size()) + " labels for " + std::to_string(samples) +
                    " samples: give one for each, or [N,S]");
    labels_per_sample_ = labels_.size() / samples;
}

bool positions::by_position(const metric& m) const {
    return m.by_position || (options_.per_position && (m.name == "cosine" || m.name == "l2"));
}

std::int64_t positions::label_of(std::size_t sample, std::size_t position, std::size_t length) const {
    if (labels_.empty()) return detail::no_label;
    const std::size_t at = position + (options_.next_token ? 1 : 0);
    if (at >= length || at >= labels_per_sample_) return detail::no_label;
    return labels_[sample * labels_per_sample_ + at];
}

bool positions::counts(std::size_t sample, std::size_t position, std::size_t length, bool with_label) const {
    const std::size_t before = mask_per_sample_ - std::min(mask_per_sample_, length);
    const auto real = [&](std::size_t p) { return mask_.empty() || mask_[sample * mask_per_sample_ + before + p] != 0; };
    if (!real(position)) return false;
    if (labels_.empty()) return true;
    const std::int64_t label = label_of(sample, position, length);
    const bool last = options_.next_token && position + 1 >= length;
    if (with_label) return label >= 0 && (!options_.next_token || real(position + 1));
    return label >= 0 || last;
}

metric_terms positions::terms(const metric& m, const dims& shape, std::span<const float> y, std::span<const float> reference,
                              std::size_t sample) const {
    const auto each = static_cast<std::int64_t>(labels_per_sample_);
    if (shape.size() == 2 && each > 1 && shape[0] == each)  // a fixed batch: a label for each of its rows
        return terms(m, {1, shape[0], shape[1]}, y, reference, sample);
    metric_terms sums{};
    const bool sequence = shape.size() == 3 && shape[0] * shape[1] > 0;
    const std::size_t rows = sequence ? static_cast<std::size_t>(shape[0] * shape[1]) : 1;
    const std::size_t length = sequence ? static_cast<std::size_t>(shape[1]) : 1, classes = y.size() / rows;
    const auto text = [&] { return "an output of shape " + to_string(shape) + " for each sample"; };
    if (!sequence) {
        const std::int64_t label = labels_.empty() ? detail::no_label : labels_[sample * labels_per_sample_];
        if (labels_per_sample_ > 1)
            throw error("labels are [N," + std::to_string(labels_per_sample_) + "] and do not fit " + text() +
                        ": give one for each sample");
        if (m.needs_labels && label < 0 && label != detail::no_label) return sums;
        sums = m.sample(y, reference, label);
        sums[counted] = 1;
        return sums;
    }
    if (!mask_.empty() && mask_per_sample_ < length)
        throw error("--mask '" + options_.mask + "' has " + std::to_string(mask_per_sample_) + " positions and does not fit " + text());
    if (!labels_.empty() && labels_per_sample_ < length)
        throw error("there are " + std::to_string(labels_per_sample_) + " labels for each sample and " + text() +
                    ": give a label for each position, [N," + std::to_string(length) + "], -100 where none counts");
    if (by_position(m)) {
        for (std::size_t r = 0; r < rows; ++r) {
            const std::size_t p = r % length;
            if (!counts(sample, p, length, m.needs_labels)) continue;
            const std::int64_t label = label_of(sample, p, length);
            if (label >= static_cast<std::int64_t>(classes))
                throw error("label " + std::to_string(label) + " of sample " + std::to_string(sample) + ", position " + std::to_string(p) +
                            " is outside of " + std::to_string(classes) + " classes");
            const metric_terms one =
                m.sample(y.subspan(r * classes, classes), reference.empty() ? reference : reference.subspan(r * classes, classes), label);
            for (std::size_t i = 0; i < counted; ++i) sums[i] += one[i];
            sums[counted] += 1;
        }
        return sums;
    }
    std::vector<float> kept, kept_reference;
    for (std::size_t r = 0; r < rows; ++r) {
        if (!counts(sample, r % length, length, false)) continue;
        const auto from = static_cast<std::ptrdiff_t>(r * classes), to = from + static_cast<std::ptrdiff_t>(classes);
        kept.insert(kept.end(), y.begin() + from, y.begin() + to);
        kept_reference.insert(kept_reference.end(), reference.begin() + from, reference.begin() + to);
    }
    sums = m.sample(kept, kept_reference, detail::no_label);
    sums[counted] = 1;
    return sums;
}

double positions::finish(const metric& m, const metric_terms& sums, std::size_t samples) const {
    return m.finish(sums, by_position(m) ? static_cast<std::size_t>(sums[counted]) : samples);
}

std::string positions::description() const {
    return (options_.mask.empty() ? "" : " mask " + options_.mask) + (options_.next_token ? " next token" : "") +
           (options_.per_position ? " per position" : "");
}

tensor labels_by_sample(std::span<const std::int64_t> labels, const tensor& output) {
    const auto all = static_cast<std::int64_t>(labels.size());
    const std::int64_t samples = output.rank() == 0 ? all : std::max<std::int64_t>(output.dim(0), 1);
    const bool several = all > samples && all % samples == 0;
    return make_tensor<std::int64_t>(several ? dims{samples, all / samples} : dims{all}, labels);
}

}  // namespace qk::graph
