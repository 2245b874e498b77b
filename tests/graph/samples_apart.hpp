// SPDX-License-Identifier: Apache-2.0
// Runs samples together and each by itself, for tests of what keeps samples apart.
#pragma once

#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "graph/evaluate/execute/runner.hpp"
#include "graph/ops/elements.hpp"

namespace qk_test {

/// Returns whether tensors have the same numbers, up to 1e-5 of the largest: sums may take another order.
inline bool close(const qk::graph::tensor& a, const qk::graph::tensor& b) {
    if (a.type() != b.type() || a.shape() != b.shape()) return false;
    const auto numbers = [](const qk::graph::tensor& t) {
        std::vector<double> v(t.size());
        if (t.type() == qk::graph::data_type::string || !qk::graph::ops::read_elements(t.type(), t.bytes(), std::span(v))) v.clear();
        return v;
    };
    const std::vector<double> x = numbers(a), y = numbers(b);
    if (x.size() != a.size()) return a.size_bytes() == b.size_bytes() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
    double largest = 0;
    for (const double v : y)
        if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i]) && std::isnan(y[i])) continue;
        if (x[i] != y[i] && !(std::fabs(x[i] - y[i]) <= 1e-5 * largest)) return false;
    }
    return true;
}

/// The outputs of a run of `count` samples, and those of a run of each alone.
class samples_apart {
  public:
    /// Samples stand along an axis of each input; -1: it is the same for every sample. Throws what the run of all throws.
    samples_apart(qk::graph::execute::runner& r, const qk::graph::execute::program& p, const std::vector<qk::graph::tensor>& inputs,
                  const std::vector<int>& axes, std::size_t count)
        : whole_(r.once(p, inputs)) {
        for (std::size_t n = 0; n < count && why_.empty(); ++n) {
            std::vector<qk::graph::tensor> one;
            for (std::size_t i = 0; i < inputs.size(); ++i) one.push_back(axes[i] < 0 ? inputs[i] : sample(inputs[i], axes[i], n, count));
            try {
                alone_.push_back(r.once(p, one));
            } catch (const std::exception& e) {
                why_ = std::string("a sample alone: ") + e.what();
            }
        }
    }
    std::size_t outputs() const { return whole_.size(); }
    /// Says what is wrong if samples are to stand along an axis of output `o` (below 0: if it is to be one value for all); "" if nothing
    /// is.
    std::string wrong(std::size_t o, int axis) const {
        if (!why_.empty()) return why_;
        const std::string name = "output " + std::to_string(o);
        for (std::size_t n = 0; n < alone_.size(); ++n) {
            if (axis < 0 && !close(alone_[n][o], whole_[o])) return name + " is not the same for all";
            if (axis >= 0 && !(divides(o, axis) && close(alone_[n][o], sample(whole_[o], axis, n, alone_.size()))))
                return name + " of sample " + std::to_string(n) + " alone is another, axis " + std::to_string(axis);
        }
        return "";
    }
    /// Says it as the analysis of samples does: "rows AXIS", "shared", "mixed"; "fails" if a sample alone does not run. Of several that
    /// hold it says "rows `first`", or "shared".
    std::string verdict(std::size_t o, int first) const {
        if (!why_.empty()) return "fails";
        if (first >= 0 && wrong(o, first).empty()) return "rows " + std::to_string(first);
        if (wrong(o, -1).empty()) return "shared";
        for (int axis = 0; axis < static_cast<int>(whole_[o].rank()); ++axis)
            if (wrong(o, axis).empty()) return "rows " + std::to_string(axis);
        return "mixed";
    }

  private:
    bool divides(std::size_t o, int axis) const {
        const auto at = static_cast<std::size_t>(axis);
        return at < whole_[o].rank() && static_cast<std::size_t>(whole_[o].dim(at)) % alone_.size() == 0;
    }
    static qk::graph::tensor sample(const qk::graph::tensor& t, int axis, std::size_t n, std::size_t count) {
        const auto each = static_cast<std::size_t>(t.dim(static_cast<std::size_t>(axis))) / count;
        return qk::graph::execute::rows_along(t, axis, n * each, each);
    }
    std::vector<qk::graph::tensor> whole_;
    std::vector<std::vector<qk::graph::tensor>> alone_;
    std::string why_;
};

}  // namespace qk_test
