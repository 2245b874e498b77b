// SPDX-License-Identifier: Apache-2.0
// What the rules of batch_axis.hpp see of one node: where the samples stand in its inputs, and where to say it of its outputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/evaluate/execute/network.hpp"

namespace qk::graph::execute {

/// Numbers of samples that shapes are computed for: what is a multiple of the number for all of them is one for any. The first is 1.
using batch_counts = std::array<std::int64_t, 4>;

/// What is known of a value while samples stand along an axis of it.
struct batch_value {
    enum class kind : std::uint8_t {
        shared,    ///< the same for any number of samples
        counted,   ///< small, and computed from the number of samples alone
        rows,      ///< samples stand along `axis`, each computed by itself
        mixed,     ///< computed with several samples
        undecided  ///< not known
    } is = kind::shared;
    int axis = -1;
    std::int64_t outer = 1;  ///< along the axis: `outer` times all samples, each with shape[axis] / outer neighbours
    bool ranked = false;
    dims shape;                   ///< of one sample; a length below 0 is not known
    std::vector<tensor> content;  ///< of a small value, for each of the counts; empty: not known
    /// Rows that hold which sample it is are no function of the sample: only what takes that sample of other rows by them is.
    enum class numbering : std::uint8_t {
        none,
        whole,  ///< each element is the number of its sample
        first   ///< the first along the last axis is the number of its sample
    } numbers = numbering::none;
    std::string why;  ///< of mixed and undecided: the node and what it does

    bool is_rows() const { return is == kind::rows; }
    bool lost() const { return is == kind::mixed || is == kind::undecided; }
};

/// Ends a rule: the samples are mixed, or it is not known.
struct batch_end {
    batch_value::kind is;
    std::string what;
};

class batch_call {
  public:
    batch_call(const net_node& node, std::vector<const batch_value*> in, const batch_counts& counts)
        : out(node.outputs.size()), node_(&node), in_(std::move(in)), counts_(&counts) {}

    const node_view& view() const { return node_->view; }
    std::string_view op() const { return node_->view.op_type(); }
    int version() const { return node_->view.version(); }
    const batch_counts& counts() const { return *counts_; }

    std::size_t inputs() const { return in_.size(); }
    bool has(std::size_t i) const { return i < in_.size() && in_[i] != nullptr; }
    const batch_value& in(std::size_t i) const {
        if (!has(i)) undecided("lacks an input");
        return *in_[i];
    }
    bool is_rows(std::size_t i) const { return has(i) && in_[i]->is_rows(); }
    /// Returns input i, of known rank.
    const batch_value& ranked(std::size_t i) const {
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
    void make(std::size_t k, const batch_value& like, dims shape, std::int64_t axis) {
        if (k >= out.size()) return;
        for (const std::int64_t d : shape)
            if (d > longest) undecided("makes a value of " + std::to_string(d) + " elements along an axis");
        if (like.is_rows() && (axis < 0 || static_cast<std::size_t>(axis) >= shape.size() || shape[static_cast<std::size_t>(axis)] < 0))
            undecided("makes rows whose number is not known");
        out[k] = batch_value{.is = like.is,
                             .axis = like.is_rows() ? static_cast<int>(axis) : -1,
                             .outer = like.outer,
                             .ranked = true,
                             .shape = std::move(shape),
                             .content = {},
                             .why = {}};
    }
    void make(std::size_t k, const batch_value& like, dims shape) { make(k, like, std::move(shape), like.axis); }
    /// Output k is like an input in all but its content.
    void keep(std::size_t k, const batch_value& like) {
        if (k >= out.size()) return;
        out[k] = like;
        out[k].content.clear();
        out[k].numbers = batch_value::numbering::none;
    }
    /// Output k has the elements of `x` in another shape, which is given for each of counts(); a length of -1 is what is left.
    void regroup(std::size_t k, const batch_value& x, std::array<dims, 4> shapes);
    /// Output k repeats `x`, if there is one, to a shape that is given for each of counts().
    void spread(std::size_t k, const batch_value* x, const std::array<dims, 4>& shapes);

    /// Output k alone is lost.
    void lose(std::size_t k, batch_value::kind is, const std::string& what) {
        if (k >= out.size()) return;
        out[k] = batch_value{};
        out[k].is = is;
        out[k].why = "node '" + std::string(view().name()) + "' (" + std::string(op()) + ") " + what;
    }

    [[noreturn]] void mixed(std::string what) const { throw batch_end{batch_value::kind::mixed, std::move(what)}; }
    [[noreturn]] void undecided(std::string what) const { throw batch_end{batch_value::kind::undecided, std::move(what)}; }

    static constexpr std::int64_t longest = std::int64_t{1} << 40;  ///< of a length: their products with the counts do not overflow
    std::vector<batch_value> out;

  private:
    const net_node* node_;
    std::vector<const batch_value*> in_;
    const batch_counts* counts_;
};

/// A line of the tables of rules: for these operators (words between spaces) of a domain.
struct batch_rule {
    std::string_view domain;  ///< "" is ai.onnx; "*": any
    std::string_view operators;
    void (*follow)(batch_call&);
    unsigned sizes = 0;    ///< bits of inputs that may hold numbers of samples: shapes, not values to compute with
    unsigned numbers = 0;  ///< bits of inputs that may hold which sample it is, 0 where it runs alone: the rule heeds it
};

std::span<const batch_rule> batch_rules_of_shapes();
std::span<const batch_rule> batch_rules_of_operators();
std::span<const batch_rule> batch_rules_of_layers();

/// Returns the shape of a value if `count` samples stand in it.
dims shape_for(const batch_value& v, std::int64_t count);
/// Returns the broadcast of values: samples must stand along the same axis, counted from the end, and what all samples share must not
/// lie along it. Only the inputs that `which` names take part.
batch_value batch_broadcast(batch_call& c, std::span<const std::size_t> which);

}  // namespace qk::graph::execute
