// SPDX-License-Identifier: Apache-2.0
// What a rule of the walk sees of one node: what is known of its inputs, and where to say what follows of its outputs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/model/operator_name.hpp"
#include "graph/ops/walk/walk.hpp"

namespace qk::graph::ops {

/// Ends a rule: the samples are mixed, or it is not known.
struct walk_end {
    walked::kind is;
    std::string what;
};

class walk_call {
  public:
    walk_call(const node_view& node, std::size_t outputs, std::vector<const walked*> in, const walk_counts& counts)
        : out(outputs), node_(&node), in_(std::move(in)), counts_(&counts) {}

    const node_view& view() const { return *node_; }
    operator_name op() const { return operator_of(*node_); }
    int version() const { return node_->version(); }
    const walk_counts& counts() const { return *counts_; }
    bool has_samples() const { return counts_->back() != 1; }

    std::size_t inputs() const { return in_.size(); }
    bool has(std::size_t i) const { return i < in_.size() && in_[i] != nullptr; }
    const walked& in(std::size_t i) const {
        if (!has(i)) undecided("lacks an input");
        return *in_[i];
    }
    bool is_rows(std::size_t i) const { return has(i) && in_[i]->is_rows(); }
    /// Returns input i, of known rank.
    const walked& ranked(std::size_t i) const {
        if (!in(i).ranked) undecided("reads a value of a rank that is not known");
        return in(i);
    }
    std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(ranked(i).shape.size()); }
    /// Returns the integers that input i holds for the number of samples counts()[at]; nullopt if they are not known.
    std::optional<dims> integers(std::size_t i, std::size_t at) const;
    /// Returns the integers that input i holds for any number of samples.
    std::optional<dims> integers(std::size_t i) const;
    /// Returns an axis of a value of this rank, counted from its front.
    std::int64_t normal(std::int64_t axis, std::int64_t rank) const {
        const std::int64_t a = axis < 0 ? axis + rank : axis;
        if (a < 0 || a >= rank) undecided("has an axis outside of the rank");
        return a;
    }
    std::int64_t axis_attribute(const char* name, std::int64_t otherwise, std::int64_t rank) const {
        return normal(view().get_int(name, otherwise), rank);
    }
    /// Requires that input i is the same for every sample; `role` says what it is.
    void shared(std::size_t i, const char* role) const {
        if (is_rows(i)) undecided(std::string("takes its ") + role + " from the samples");
    }
    /// Requires that samples stand along axis 0 of input i, if it has them.
    void along_first(std::size_t i, const char* role) const {
        if (is_rows(i) && (in(i).axis != 0 || in(i).outer != 1)) mixed(std::string("has the samples along another axis of its ") + role);
    }

    /// Output k has the samples where `like` has them.
    void make(std::size_t k, const walked& like, dims shape, std::int64_t axis) {
        if (k >= out.size()) return;
        for (const std::int64_t d : shape)
            if (d > longest) undecided("makes a value of " + std::to_string(d) + " elements along an axis");
        if (like.is_rows() && (axis < 0 || static_cast<std::size_t>(axis) >= shape.size() || shape[static_cast<std::size_t>(axis)] < 0))
            undecided("makes rows whose number is not known");
        out[k] = walked{.is = like.is,
                        .axis = like.is_rows() ? static_cast<int>(axis) : -1,
                        .outer = like.outer,
                        .ranked = true,
                        .shape = std::move(shape),
                        .content = {},
                        .why = {}};
    }
    void make(std::size_t k, const walked& like, dims shape) { make(k, like, std::move(shape), like.axis); }
    /// Output k is like an input in all but its content.
    void keep(std::size_t k, const walked& like) {
        if (k >= out.size()) return;
        out[k] = like;
        out[k].content.clear();
        out[k].numbers = walked::numbering::none;
    }
    /// Output k has the elements of `x` in another shape, which is given for each of counts(); a length of -1 is what is left.
    void regroup(std::size_t k, const walked& x, std::array<dims, 4> shapes);
    /// Output k repeats `x`, if there is one, to a shape that is given for each of counts().
    void spread(std::size_t k, const walked* x, const std::array<dims, 4>& shapes);

    /// Output k alone is lost.
    void lose(std::size_t k, walked::kind is, const std::string& what) {
        if (k >= out.size()) return;
        out[k] = walked{};
        out[k].is = is;
        out[k].why = "node '" + std::string(view().name()) + "' (" + std::string(view().op_type()) + ") " + what;
    }

    [[noreturn]] void mixed(std::string what) const { throw walk_end{walked::kind::mixed, std::move(what)}; }
    [[noreturn]] void undecided(std::string what) const { throw walk_end{walked::kind::undecided, std::move(what)}; }

    static constexpr std::int64_t longest = std::int64_t{1} << 40;  ///< of a length: their products with the counts do not overflow
    std::vector<walked> out;

  private:
    const node_view* node_;
    std::vector<const walked*> in_;
    const walk_counts* counts_;
};

/// Returns the length that two broadcast lengths give. Lengths above 1 that differ do not fit each other: one of them stands for an open
/// length, whose numbers are large, and the smaller one holds.
inline std::int64_t common_length(std::int64_t a, std::int64_t b) {
    if (a == 1) return b;
    if (b == 1 || b < 0) return a;
    return a < 0 ? b : std::min(a, b);
}

/// Returns the broadcast of values: samples must stand along the same axis, counted from the end, and what all samples share must not
/// lie along it. Only the inputs that `which` names take part.
walked broadcast(walk_call& c, std::span<const std::size_t> which);

}  // namespace qk::graph::ops
