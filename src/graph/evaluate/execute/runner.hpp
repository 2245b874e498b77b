// SPDX-License-Identifier: Apache-2.0
// What evaluator and session share: a prepared model, its cache, and the decision whether samples may run alone.
#pragma once

#include <memory>
#include <vector>

#include "graph/evaluate/execute/batch_axis.hpp"
#include "graph/evaluate/execute/program.hpp"
#include "graph/evaluate/execute/samples.hpp"
#include "graph/evaluate/execute/workers.hpp"

namespace qk::graph::execute {

/// Runs a program and returns the outputs of its first candidate.
inline std::vector<tensor> run_once(const program& p, std::span<const tensor> inputs, arena& memory) {
    std::vector<tensor> result;
    run_program(p, inputs, memory, [&](std::size_t candidate, std::span<const tensor> o) {
        if (candidate == 0) result.assign(o.begin(), o.end());
    });
    return result;
}

class runner {
  public:
    runner(const model& m, int threads, run_limits limits = {}, large_constants how = large_constants::held)
        : source(m), net(make_network(source, how)), shared(limits), pool(threads, shared.budget) {}

    /// How data is divided into runs: one sample each, or batches of several if the rows are no samples by themselves.
    struct cut {
        std::size_t runs = 1;
        std::size_t samples_per_run = 1;
        std::size_t samples = 1;
        bool join = false;        ///< outputs of runs are joined
        bool one_by_one = false;  ///< samples do not mix
        bool ragged = false;      ///< outputs of different lengths
        std::vector<int> axes;    ///< by output, where samples stand in it; -1: the same for all; -2: not known. Empty: axis 0 everywhere
        int asked = 0;            ///< the axis for those that are not known, if they have one row there
        std::string whole;        ///< why rows run together; empty if they do not
    };
    /// Decides how data is divided, from the graph, and from what quantizers of a plan, if one is given, compute with several rows. May cut
    /// more inputs of `data`.
    cut decide(sample_set& data, int batch, const precision_plan* plan = nullptr) const;
    /// Returns the division into single samples.
    static cut alone(const sample_set& data);
    /// Returns the division into runs of `batch` rows, or one of all if that is 0.
    static cut together(const sample_set& data, int batch);

    std::vector<tensor> inputs_of(const sample_set& data, const cut& c, std::size_t run) const {
        const std::size_t first = run * c.samples_per_run;
        return data.slice(first, std::min(c.samples_per_run, c.samples - first));
    }

    /// Calls take(sample, its outputs) for each sample of a run. Outputs of several samples are cut apart along axis 0; an output whose
    /// axis 0 does not divide among them is passed whole.
    template <class Take>
    static void each_sample(const cut& c, std::size_t run, std::span<const tensor> outputs, const Take& take) {
        const std::size_t first = run * c.samples_per_run, n = std::min(c.samples_per_run, c.samples - first);
        if (n == 1) return take(first, outputs);
        for (std::size_t i = 0; i < n; ++i) {
            std::vector<tensor> own;
            for (const tensor& t : outputs) {
                const bool by_sample = t.rank() > 0 && t.dim(0) % static_cast<std::int64_t>(n) == 0;
                const std::size_t each = by_sample ? static_cast<std::size_t>(t.dim(0)) / n : 0;
                own.push_back(by_sample ? rows(t, i * each, each) : t);
            }
            take(first + i, std::span<const tensor>(own));
        }
    }

    /// Runs one run with all threads and returns the outputs of the first candidate.
    std::vector<tensor> once(const program& p, std::span<const tensor> inputs) {
        std::vector<tensor> result;
        pool.for_each(1, [&](std::size_t, arena& memory) { result = run_once(p, inputs, memory); });
        return result;
    }

    model source;
    std::unique_ptr<network> net;
    cache shared;
    workers pool;
};

/// Follows the samples of data through a network if its inputs are cut along these axes.
batch_verdict follow_samples(const network& net, const sample_set& data, const std::vector<int>& axes);

/// Joins the outputs of many runs, into one tensor for each output. Each run has its own place, so the order of calls does not
/// matter.
class joined_outputs {
  public:
    /// `first` are the outputs of run 0; with its number of samples they fix the shapes.
    joined_outputs(const model& m, const runner::cut& c, std::span<const tensor> first);
    /// Stores the outputs of one run. If it is the only run, buffers of `memory` are taken over; everything else is copied.
    void place(std::size_t run, std::span<const tensor> outputs, arena& memory);
    named_tensors take();

  private:
    const model* model_;
    runner::cut cut_;
    std::vector<tensor> all_;
    std::vector<std::int64_t> rows_;  ///< rows of one sample along the axis
    std::vector<int> axes_;           ///< -1: one value for all samples
    named_tensors take_ragged();
    std::vector<std::vector<tensor>> each_;  ///< outputs of ragged data, by run
};

}  // namespace qk::graph::execute
