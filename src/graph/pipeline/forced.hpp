// SPDX-License-Identifier: Apache-2.0
// A network whose nodes each compute from another runtime's own values of their inputs, so that no difference is carried on: what then
// differs, the node itself makes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/pipeline/tensors.hpp"

namespace qk::graph::pipeline {

/// How near the two sides have to be in one value, by what lies between it and the values that both sides share.
struct leeway {
    std::size_t inexact = 0;        ///< operators between that runtimes round in their own way
    double terms = 0;               ///< of the sum that makes it, if `bound` holds
    std::vector<double> bound{};    ///< sums of the absolute products; empty: not known
    bool quantized_within = false;  ///< a quantizer lies between, behind a value that is not exact
};

/// One tensor as both sides have it.
struct judged_tensor {
    tensor ours, theirs;
    leeway room{};
    std::optional<tensor> before{};  ///< what its quantizer took
    leeway room_before{};            ///< of `before`
    std::optional<quantizer> how{};  ///< that quantizer, where its parameters are known
    std::vector<double> unit{};      ///< the step of a code, by element; empty: none
    std::vector<double> zero{};      ///< the zero point, by element, where `ours` are codes
};

class forced_network {
  public:
    /// `ours` and `theirs` are what the first run gave: tensors that differ in shape are not fed.
    forced_network(const model& m, const precision_plan& plan, const std::vector<traced_tensor>& tensors,
                   const std::map<std::string, tensor>& ours, const std::map<std::string, tensor>& theirs, int threads);
    /// Returns the tensors by name that can be judged.
    std::map<std::string, judged_tensor> run(const named_tensors& inputs, const std::map<std::string, tensor>& theirs);

  private:
    struct taps {
        std::string value, before, scale, zero, bound;
        leeway room, room_before;
        std::size_t axis = 0, block = 0;
        bool codes = false;  ///< made by QuantizeLinear
    };
    bool is_given(const std::string& t) const;
    std::size_t inexact(const std::string& t);
    bool quantizes_within(const std::string& t);
    const onnx::NodeProto* sum_behind(const std::string& t) const;
    double terms_of(const onnx::NodeProto& n) const;
    void feed();
    void tap(const traced_tensor& t);
    leeway room_for(const std::string& t, std::string& bound_tap);
    void tap_parameters(const onnx::NodeProto& n, taps& at);
    void judge_units(judged_tensor& j, const taps& at, const named_tensors& out) const;

    const model& m_;
    const precision_plan& given_plan_;
    std::vector<traced_tensor> tensors_;
    std::map<std::string, tensor> shapes_;  ///< of the first run
    std::set<std::string> fed_;
    std::map<std::string, std::string> feeds_;  ///< the name under which a tensor is fed
    std::map<std::string, std::size_t> inexact_;
    tapped_model all_;
    std::map<std::string, taps> taps_;
    int threads_;
};

/// Returns a tensor's numbers; none of a type that has none.
std::vector<double> numbers_of(const tensor& t);

}  // namespace qk::graph::pipeline
