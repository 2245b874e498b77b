// SPDX-License-Identifier: Apache-2.0
// Implements the session: merges candidates into one program, spreads samples over threads, keeps scores by (candidate, sample).
#include <atomic>
#include <chrono>

#include "graph/evaluate/execute/runner.hpp"
#include "qk/graph/evaluate/session.hpp"

namespace qk::graph {

struct session::state {
    state(const model& m, named_tensors given, session_options o)
        : run(m, o.threads, {}, execute::large_constants::late), options(std::move(o)), data(execute::make_samples(run.source, given)) {
        cut = run.decide(data, 0);
    }
    /// Adds what ran since `start` to the statistics.
    void count(const execute::program& p, std::chrono::steady_clock::time_point start) {
        statistics.evaluations += p.candidates.size();
        statistics.layer_evaluations += p.layers;
        for (const auto& c : p.candidates) statistics.naive_layer_evaluations += c.layers;
        statistics.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        statistics.peak_bytes = run.pool.held();
    }
    execute::runner run;
    session_options options;
    execute::sample_set data;
    execute::runner::cut cut;
    session_statistics statistics;
};

session::session(const model& m, named_tensors inputs, session_options options)
    : state_(std::make_unique<state>(m, std::move(inputs), std::move(options))) {}
session::~session() = default;
session::session(session&&) noexcept = default;
session& session::operator=(session&&) noexcept = default;
std::size_t session::samples() const { return state_->cut.samples; }
const session_statistics& session::statistics() const { return state_->statistics; }

std::vector<std::vector<double>> session::evaluate(std::span<const precision_plan> candidates, const sample_metric& metric) {
    state& s = *state_;
    const auto start = std::chrono::steady_clock::now();
    std::vector<const precision_plan*> plans;
    for (const precision_plan& p : candidates) plans.push_back(&p);
    const auto program = execute::make_program(*s.run.net, s.run.shared, plans);
    std::vector<std::vector<double>> scores(candidates.size(), std::vector<double>(s.cut.samples));  // of this process; added up below
    std::atomic<bool> stopped = false;
    const ranks& together = s.options.together;
    s.run.pool.for_each(s.cut.runs, [&](std::size_t run, execute::arena& memory) {
        if (!together.own(run)) return;
        if (stopped || (s.options.stop && s.options.stop())) {
            stopped = true;
            return;
        }
        execute::run_program(*program, s.run.inputs_of(s.data, s.cut, run), memory,
                             [&](std::size_t candidate, std::span<const tensor> outputs) {
                                 execute::runner::each_sample(s.cut, run, outputs, [&](std::size_t sample, std::span<const tensor> own) {
                                     scores[candidate][sample] = metric(candidate, sample, own);
                                 });
                             });
    });
    s.count(*program, start);
    if (together.any(stopped)) {
        scores.clear();
    } else if (!together.alone()) {
        for (std::vector<double>& each : scores) together.sum(each);
    }
    return scores;
}

void session::rest() { state_->run.shared.units.clear(), state_->run.shared.dense.clear(); }

bool session::peek(const precision_plan& candidate, std::size_t samples, const sample_metric& metric) {
    state& s = *state_;
    if (!s.cut.one_by_one || samples > s.cut.samples || !s.options.together.alone()) return false;
    const precision_plan* p = &candidate;
    const auto program = execute::make_program(*s.run.net, s.run.shared, {&p, 1});
    std::atomic<bool> stopped = false;
    s.run.pool.for_each(samples, [&](std::size_t run, execute::arena& memory) {
        if (stopped || (s.options.stop && s.options.stop())) stopped = true;
        else
            execute::run_program(*program, s.run.inputs_of(s.data, s.cut, run), memory,
                                 [&](std::size_t, std::span<const tensor> outputs) { metric(0, run, outputs); });
    });
    return !stopped;
}

void session::hold(const std::string& name, const quantizer& how, const tensor& value) {
    state& s = *state_;
    for (const execute::net_value& v : s.run.net->values)
        if (v.name == name && v.is_constant()) s.run.shared.hold(s.run.shared.value_constant(v), s.run.shared.intern(how), value);
}

named_tensors session::outputs(const precision_plan& plan) {
    state& s = *state_;
    const auto start = std::chrono::steady_clock::now();
    const precision_plan* p = &plan;
    const auto program = execute::make_program(*s.run.net, s.run.shared, {&p, 1});
    execute::joined_outputs joined(s.run.source, s.cut, s.run.once(*program, s.run.inputs_of(s.data, s.cut, 0)));
    s.run.pool.for_each(s.cut.runs, [&](std::size_t run, execute::arena& memory) {
        execute::run_program(*program, s.run.inputs_of(s.data, s.cut, run), memory,
                             [&](std::size_t, std::span<const tensor> o) { joined.place(run, o, memory); });
    });
    s.count(*program, start);
    return joined.take();
}

}  // namespace qk::graph
