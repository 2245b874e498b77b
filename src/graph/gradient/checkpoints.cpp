// SPDX-License-Identifier: Apache-2.0
// Definitions of checkpoints.hpp.
#include "graph/gradient/checkpoints.hpp"

#include <unistd.h>

#include <algorithm>

namespace qk::graph::gradient {
namespace {

/// Returns whether a node's result changes when it runs again.
bool changes(const execute::net_node& node) {
    if (execute::is_random(node)) return true;
    for (const execute::subnetwork& s : node.bodies)
        if (std::any_of(s.body->nodes.begin(), s.body->nodes.end(), changes)) return true;
    return false;
}

/// Calls f(value) for every value that a node or one of its bodies reads.
template <class F>
void each_use(const execute::net_node& node, F&& f) {
    for (const execute::net_input& use : node.inputs)
        if (use.value >= 0) f(static_cast<std::size_t>(use.value));
    for (const execute::subnetwork& s : node.bodies)
        for (const int v : s.captured) f(static_cast<std::size_t>(v));
}

std::size_t available_memory() {
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

std::size_t tape_limit(std::size_t asked, int threads) {
    return (asked != 0 ? asked : available_memory() / 2) / static_cast<std::size_t>(std::max(threads, 1));
}

stretch_keeper::stretch_keeper(const execute::network& net, tape& t, std::size_t limit)
    : net_(&net), t_(&t), limit_(limit), length_(limit / 8) {
    if (limit == no_limit) return;
    last_use_.assign(net.values.size(), 0);
    for (std::size_t n = 0; n < net.nodes.size(); ++n) each_use(net.nodes[n], [&](std::size_t v) { last_use_[v] = n; });
    for (const execute::net_input& o : net.outputs) last_use_[static_cast<std::size_t>(o.value)] = net.nodes.size();
}

std::size_t stretch_keeper::made_by(std::size_t n) const {
    const execute::net_node& node = net_->nodes[n];
    std::size_t made = 0;
    for (const int o : node.outputs) {
        if (o < 0) continue;
        const tensor& y = t_->values[static_cast<std::size_t>(o)];
        if (!y.empty() && y.buffer().use_count() == 1) made += y.size_bytes();  // views share a buffer that was counted already
    }
    for (std::size_t i = 0; i < t_->read[n].size(); ++i) {  // inputs that were read in another form than the value has
        const tensor& x = t_->read[n][i];
        const int v = node.inputs[i].value;
        if (!x.empty() && v >= 0 && x.buffer() != t_->values[static_cast<std::size_t>(v)].buffer() && x.buffer().use_count() == 1)
            made += x.size_bytes();
    }
    for (const auto& run : t_->bodies[n].runs) made += run->bytes;
    return made;
}

void stretch_keeper::after(std::size_t n) {
    const std::size_t made = made_by(n);
    t_->bytes += made;
    if (limit_ == no_limit) return;
    open_bytes_ += made;
    if (open_bytes_ >= length_) {
        t_->stretches.push_back({t_->stretches.empty() ? 0 : t_->stretches.back().end, n + 1, false});
        open_bytes_ = 0;
    }
    while (t_->bytes > limit_) {
        if (first_kept_ < t_->stretches.size()) forget(t_->stretches[first_kept_++]);
        else if (first_kept_ >= 4 && 2 * length_ <= std::max(limit_ / 2, t_->bytes - std::min(open_bytes_, t_->bytes))) join_neighbours();
        else break;
    }
}

void stretch_keeper::forget(tape::stretch& s) {
    std::size_t freed = 0;
    const auto drop = [&](tensor& x) {
        if (!x.empty() && x.buffer().use_count() == 1) freed += x.size_bytes();
        x = tensor();
    };
    for (std::size_t n = s.first; n < s.end; ++n) {
        const execute::net_node& node = net_->nodes[n];
        for (tensor& x : t_->read[n]) drop(x);
        t_->read[n].clear();
        if (changes(node)) continue;
        for (const auto& run : t_->bodies[n].runs) freed += run->bytes;
        t_->bodies[n] = {};
        for (const int o : node.outputs)
            if (o >= 0 && last_use_[static_cast<std::size_t>(o)] < s.end) drop(t_->values[static_cast<std::size_t>(o)]);
    }
    s.forgotten = true;
    t_->bytes -= std::min(freed, t_->bytes);
}

void stretch_keeper::join_neighbours() {
    std::vector<tape::stretch> joined;
    for (std::size_t i = 0; i < t_->stretches.size(); i += 2) {
        joined.push_back(t_->stretches[i]);
        if (i + 1 == t_->stretches.size()) continue;
        joined.back().end = t_->stretches[i + 1].end;
        forget(joined.back());
    }
    t_->stretches = std::move(joined);
    first_kept_ = t_->stretches.size();
    length_ *= 2;
}

void recall(const execute::network& net, tape& t, std::size_t n, edge_visitor* visitor) {
    while (!t.stretches.empty() && t.stretches.back().first > n) t.stretches.pop_back();
    if (t.stretches.empty() || !t.stretches.back().forgotten || n >= t.stretches.back().end) return;
    const tape::stretch s = t.stretches.back();
    for (std::size_t k = s.first; k < s.end; ++k) rerun_node(net, k, t, visitor);
    t.stretches.pop_back();
}

}  // namespace qk::graph::gradient
