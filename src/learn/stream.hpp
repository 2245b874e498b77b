// SPDX-License-Identifier: Apache-2.0
// Finds the nodes that write and read one residual stream of a model, for rotate.hpp: everything that has to change when the stream's
// channels change their basis.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/ops/known_values.hpp"

namespace qk::graph::detail {

/// A constant that is an operand of a node.
struct constant_use {
    int node = 0, input = 0;
    friend auto operator<=>(const constant_use&, const constant_use&) = default;
};

/// A residual stream, followed from one tensor in both directions until every node that touches it is known.
class stream {
  public:
    /// `start` is a tensor whose last axis holds the channels.
    stream(const model& m, const std::string& start);

    std::size_t channels = 0;
    std::set<constant_use> written;                   ///< weights, tables and biases whose output channels take Q
    std::map<constant_use, std::vector<float>> read;  ///< weights whose input channels take Q^T, after the gain (empty: 1)
    std::set<constant_use> gains;                     ///< gains of normalizations, which become 1
    std::set<int> gain_nodes;                         ///< Mul nodes by a gain, which are removed
    std::set<std::string> tensors;                    ///< tensors that get the new basis
    std::string refused;                              ///< why it cannot be rotated; empty: it can
    bool per_head = false;                            ///< its rows are parts (heads) of wider rows, so it is no residual stream

  private:
    enum class state { streamed, gained, squared, row };  ///< what a tensor holds: x, g x, x^2, one number for each row
    void become(const std::string& tensor, state s, bool look_back, const std::vector<float>& gain = {});
    void refuse(const std::string& why);
    bool fits(std::int64_t count, const onnx::NodeProto& n);

    void look_back(const std::string& tensor);
    void back_through_product(int node, const onnx::NodeProto& n);
    void operand(int node, int input);
    void look_ahead(const std::string& tensor);
    void read_stream(int node, int input);
    bool read_normalization(int node, int input);
    bool read_factor(int node, int input, bool last_chance);
    bool read_product(int node, int input, const std::vector<float>& gain);

    bool moves(const onnx::NodeProto& n, int input) const;
    bool is_last(std::int64_t axis, const std::string& tensor) const;
    bool keeps_row(const onnx::NodeProto& n) const;
    bool averages_rows(const onnx::NodeProto& n) const;
    int rank_of(const std::string& tensor) const;  ///< 0: not known
    bool is_state(const std::string& tensor, state s) const;
    bool is_float_constant(const std::string& name) const;
    bool is_scalar(const std::string& name) const;

    const model* model_;
    std::map<std::string, state> state_;
    std::map<std::string, std::vector<float>> gain_;
    std::deque<std::pair<std::string, bool>> open_;  ///< tensors to follow; true: backwards as well
    std::set<std::pair<int, int>> later_;            ///< readers whose other operand is not known yet
    std::shared_ptr<const known_values> known_;
};

}  // namespace qk::graph::detail
