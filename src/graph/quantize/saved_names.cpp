// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "graph/quantize/saved_names.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

namespace detail {

/// Returns the quantizer for weights that were multiplied by factor[c] in channel c. It multiplies the scales, so that the codes stay.
inline std::optional<quantizer> multiplied(const quantizer& q, const std::vector<double>& factor, int channel_axis) {
    const integer* f = std::get_if<integer>(&q.format);
    if (q.block_size > 0 || (q.scale.size() != 1 && q.scale.size() != factor.size())) return std::nullopt;
    quantizer r = q;
    r.axis = channel_axis;
    r.scale.clear(), r.zero_point.clear();
    bool shifted = false;
    for (std::size_t c = 0; c < factor.size(); ++c) {
        const std::size_t of = q.scale.size() == 1 ? 0 : c;
        const double s = static_cast<double>(q.scale[of]) * std::fabs(factor[c]);
        r.scale.push_back(static_cast<float>(std::max(s, static_cast<double>(std::numeric_limits<float>::min()))));
        std::int64_t z = q.zero_point.empty() ? 0 : q.zero_point[of];
        // A negative factor reverses the order of the codes: code q of zero point z becomes lowest + highest - q.
        if (f != nullptr && factor[c] < 0 && z != 0) z = qmin(*f) + qmax(*f) - z;
        r.zero_point.push_back(z);
        shifted = shifted || z != 0;
    }
    if (!shifted) r.zero_point.clear();
    return r;
}

/// Returns the quantizer that an entry becomes at its successor, or nullopt when its scale does not fit there.
inline std::optional<quantizer> moved_quantizer(const model& m, const successor& to, const quantizer& q) {
    if (q.scale.empty()) return q;
    if (to.how != bond::place || to.factor.empty() || !m.is_constant(to.name) || m.uses(to.name).empty()) return std::nullopt;
    const model::use u = m.uses(to.name).front();
    if (u.node < 0) return std::nullopt;
    const integer* f = std::get_if<integer>(&q.format);
    if (u.input == 2 && (f == nullptr || f->bits < 32)) return std::nullopt;  // folding shifted the bias, too: only a fine grid fits
    return multiplied(q, to.factor, axes_of(m.graph().node(u.node), u.input, m.constant_shape(to.name)).channel);
}

class name_follower {
  public:
    name_follower(precision_plan& plan, const model& m, const std::string& origin) : plan_(plan), model_(m), origin_(origin) {}

    std::vector<plan_note> run() {
        const auto tensors = plan_.tensors;
        for (const auto& [name, q] : tensors) {
            const auto successors = successors_of_tensor(model_, name);
            if (successors.empty()) continue;
            if (!has_tensor(model_, name)) plan_.tensors.erase(name);
            for (const successor& to : successors)
                if (const auto moved = move(name, to, q)) plan_.tensors.emplace(to.name, *moved);
        }
        const auto edges = plan_.edges;
        for (const auto& [e, q] : edges) follow(e, q);
        return std::move(notes_);
    }

  private:
    void note(plan_note::kind what, const std::string& name, const std::string& text) {
        notes_.push_back({what, "tensor '" + name + "'", text, origin_});
    }

    std::optional<quantizer> move(const std::string& name, const successor& to, const quantizer& q) {
        const auto moved = moved_quantizer(model_, to, q);
        if (moved)
            note(plan_note::kind::renamed, name,
                 "is '" + to.name + "' now: " + to.why + (q.scale.empty() ? "" : "; its scales were multiplied likewise"));
        else
            note(plan_note::kind::unrealised, name,
                 "left in float32: " + to.why + ", and its scale fits '" + to.name +
                     "' no more; ask for the format in a requests file, with calibration");
        return moved;
    }

    /// Moves the entry of a single edge with its tensor, if its reader still exists and reads the successor as the same input.
    void follow(const edge& e, const quantizer& q) {
        const bool reader_gone = !e.consumer.empty() && model_.node_index(e.consumer) < 0;
        const auto reads = [&](const std::string& tensor) {
            const auto& uses = model_.uses(tensor);
            return std::ranges::any_of(uses, [&](const model::use& u) {
                return u.input == e.index && (u.node < 0 ? e.consumer.empty() : model_.graph().node(u.node).name() == e.consumer);
            });
        };
        if (has_tensor(model_, e.tensor) && (reads(e.tensor) || !reader_gone)) return;
        const auto readers = successors_of_node(model_, e.consumer);
        if (reader_gone && !readers.empty()) {
            plan_.edges.erase(e);
            return note(plan_note::kind::unrealised, e.tensor, "left in float32 before '" + e.consumer + "': " + readers.front().why);
        }
        const auto successors = successors_of_tensor(model_, e.tensor);
        if (!successors.empty()) plan_.edges.erase(e);
        for (const successor& to : successors)
            if (reads(to.name))
                if (const auto moved = move(e.tensor, to, q)) plan_.edges.emplace(edge{to.name, e.consumer, e.index}, *moved);
    }

    precision_plan& plan_;
    const model& model_;
    const std::string& origin_;
    std::vector<plan_note> notes_;
};

}  // namespace detail

std::vector<plan_note> follow_names(precision_plan& plan, const model& m, const std::string& origin) {
    return detail::name_follower(plan, m, origin).run();
}

}  // namespace qk::graph
