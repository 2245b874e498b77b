// SPDX-License-Identifier: Apache-2.0
// Cuts data into runs as the evaluator does, for passes that need the tape of each run.
#pragma once

#include "graph/evaluate/execute/runner.hpp"

namespace qk::graph::gradient {

struct sample_runs {
    execute::runner runner;
    execute::sample_set data;
    execute::runner::cut cut;
    int output;  ///< index of the chosen output
    std::string output_name;

    sample_runs(const model& m, const named_tensors& inputs, int threads, int output_index)
        : runner(m, threads), data(execute::make_samples(m, inputs)), output(output_index) {
        if (output < 0 || static_cast<std::size_t>(output) >= m.outputs().size())
            throw error("--output-index " + std::to_string(output) + " is out of range: the model has " +
                        std::to_string(m.outputs().size()) + " outputs, counted from 0");
        output_name = m.outputs()[static_cast<std::size_t>(output)].name;
        runner.shared.plain_kernels = true;  // no weights are packed
        cut = data.ragged ? execute::runner::alone(data) : runner.decide(data, 0);
        // Sums and vectors are laid out along axis 0 of the output.
        if (data.symbolic && cut.one_by_one && !cut.axes.empty() && cut.axes[static_cast<std::size_t>(output)] != 0)
            cut = execute::runner::together(data, 0);
    }
    const execute::network& net() const { return *runner.net; }
    /// Calls body(i) for i in [0, n) on all threads, each with memory of its own for the tensors that it makes.
    template <class Body>
    void for_each(std::size_t n, const Body& body) {
        runner.pool.for_each(n, [&](std::size_t i, execute::arena& memory) {
            const thread_memory own(memory);
            body(i);
        });
    }
    std::size_t first_of(std::size_t run) const { return run * cut.samples_per_run; }
    std::size_t samples_of(std::size_t run) const { return std::min(cut.samples_per_run, cut.samples - first_of(run)); }
};

}  // namespace qk::graph::gradient
