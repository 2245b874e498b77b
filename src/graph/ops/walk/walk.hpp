// SPDX-License-Identifier: Apache-2.0
// One walk from a graph's inputs to its outputs says what is known of every value before anything runs: its rank and lengths, where samples
// stand in it, and what it holds where that is small. Small integers, of which shapes are made, are computed; all else follows the rule of
// the operator's row. No data is looked at.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"

namespace qk::graph::ops {

/// Numbers of samples that shapes are computed for: what is a multiple of the number for all of them is one for any. The first is 1.
using walk_counts = std::array<std::int64_t, 4>;

/// What is known of a value while samples stand along an axis of it.
struct walked {
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

/// A graph as the walk sees it, its values by number.
struct walk_graph {
    struct body {
        const onnx::GraphProto* proto = nullptr;
        std::shared_ptr<const walk_graph> graph;  ///< its inputs are those of the graph attribute, and behind them what it captures
        std::vector<int> captured;                ///< values of the graph around it
    };
    struct node {
        const node_view* view = nullptr;
        const op_entry* op = nullptr;      ///< nullptr: nothing is known of its outputs
        std::vector<int> inputs, outputs;  ///< -1: left out
        std::vector<body> bodies = {};
    };
    std::size_t values = 0;
    std::vector<std::pair<int, walked>> constants;
    std::vector<node> nodes;  ///< in an order that can be run
    std::vector<int> inputs, outputs;
    std::vector<std::optional<dims>> stated = {};  ///< shapes of values as the model states them, a length below 0 is open; may be empty
};

/// Returns what is known of a constant: of a small one what it holds. `shape` is that of a constant that is not read.
walked walked_constant(const tensor& value);
walked walked_constant(dims shape);

/// Returns what is known of every value, for these inputs. `counts` are the numbers of samples that stand along the axes of rows; all are 1
/// where no samples do. `open`, if given, returns a number for a length that is not known, which then stands for it.
std::vector<walked> walk(const walk_graph& graph, std::vector<walked> inputs, const walk_counts& counts,
                         const std::function<std::int64_t()>& open = nullptr);

/// Returns the shape of a value if `count` samples stand in it.
dims shape_for(const walked& v, std::int64_t count);

}  // namespace qk::graph::ops
