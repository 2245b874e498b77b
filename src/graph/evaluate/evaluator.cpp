// SPDX-License-Identifier: Apache-2.0
// The evaluator: cuts data into samples, runs each through the plan's program on one thread, joins the outputs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "graph/evaluate/execute/runner.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

namespace qk::graph {
namespace {

evaluate_result run_samples(execute::runner& r, const evaluate_options& options, const named_tensors& inputs, const precision_plan& plan,
                            const tensor_observer& observe, const progress& report, const output_consumer& consume) {
    execute::sample_set data = execute::make_samples(r.source, inputs);
    const precision_plan* p = &plan;
    const auto program = execute::make_program(*r.net, r.shared, {&p, 1}, static_cast<bool>(observe));
    const auto cut = r.decide(data, options.batch, &plan);
    std::optional<execute::joined_outputs> outputs;
    // Runs once beforehand, so that `seconds` leaves out what is made on first use.
    if (options.keep_outputs) outputs.emplace(r.source, cut, r.once(*program, r.inputs_of(data, cut, 0)));
    else if (!observe) r.once(*program, r.inputs_of(data, cut, 0));

    if (consume.begin) consume.begin(cut.samples);
    std::atomic<std::size_t> done = 0;
    std::atomic<std::int64_t> consuming = 0;  // nanoseconds of all threads
    std::mutex reporting;
    const auto start = std::chrono::steady_clock::now();
    r.pool.for_each(cut.runs, [&](std::size_t i, execute::arena& memory) {
        const auto in = r.inputs_of(data, cut, i);
        execute::observe_value seen{{}, options.any_order};
        if (observe) seen.see = [&](const std::string& name, const tensor& value) { observe(name, value, i * cut.samples_per_run); };
        execute::run_program(
            *program, in, memory,
            [&](std::size_t, std::span<const tensor> o) {
                if (consume.take) {
                    const auto from = std::chrono::steady_clock::now();
                    execute::runner::each_sample(cut, i, o, consume.take);
                    consuming += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - from).count();
                }
                if (outputs) outputs->place(i, o, memory);
            },
            seen);
        const std::size_t all = done += std::min(cut.samples_per_run, cut.samples - i * cut.samples_per_run);
        if (report) {
            const std::lock_guard lock(reporting);
            report(all, cut.samples);
        }
    });
    evaluate_result result;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::size_t side_by_side = std::min(cut.runs, static_cast<std::size_t>(r.pool.threads()));
    if (consume.take) result.seconds -= 1e-9 * static_cast<double>(consuming) / static_cast<double>(std::max<std::size_t>(side_by_side, 1));
    if (outputs) result.outputs = outputs->take();
    result.samples = cut.samples;
    result.one_by_one = cut.one_by_one;
    result.whole = cut.whole;
    result.peak_bytes = r.pool.held();
    result.packed_layers =
        static_cast<std::size_t>(std::ranges::count_if(r.shared.dense, [](const auto& d) { return d.second->is_packed(); }));
    return result;
}

evaluate_options checked(const evaluate_options& options) {
    if (options.threads < 0 || options.threads > 1024) throw error("the number of threads must be 0 (one per core) to 1024");
    if (options.batch < 0) throw error("the batch size must be 0 (chosen here) or more");
    return options;
}

}  // namespace

struct evaluator::state {
    state(const model& m, const evaluate_options& o) : run(m, o.threads, o.limits, execute::large_constants::late), options(o) {
        run.shared.plain_kernels = o.plain_kernels, run.shared.packed_weights = o.packed_weights;
    }
    execute::runner run;
    evaluate_options options;
};

evaluator::evaluator(const model& m, evaluate_options options) : state_(std::make_unique<state>(m, checked(options))) {}
evaluator::~evaluator() = default;
evaluator::evaluator(evaluator&&) noexcept = default;
evaluator& evaluator::operator=(evaluator&&) noexcept = default;
const model& evaluator::source() const { return state_->run.source; }

evaluate_result evaluator::run(const named_tensors& inputs, const precision_plan& plan, const tensor_observer& observe,
                               const progress& report, const output_consumer& consume) const {
    return run_samples(state_->run, state_->options, inputs, plan, observe, report, consume);
}

std::string batch_remark(const model& m, const named_tensors& inputs) {
    execute::sample_set data = execute::make_samples(m, inputs);
    if (data.count == 1 && data.uncut.empty()) return {};
    return execute::runner(m, 1, {}, execute::large_constants::late).decide(data, 0).whole;
}

bool can_evaluate(const model& m, const onnx::NodeProto& node) {
    if (find_op(node.domain(), node.op_type(), m.opset(node.domain())) != nullptr) return true;
    for (const auto& f : m.proto().functions())
        if (f.domain() == node.domain() && f.name() == node.op_type()) return true;
    return false;
}

}  // namespace qk::graph
