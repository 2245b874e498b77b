// SPDX-License-Identifier: Apache-2.0
// Definitions of sum_unit.hpp.
#include "graph/evaluate/execute/sum_unit.hpp"

#include <algorithm>
#include <utility>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/evaluate/execute/step_key.hpp"

namespace qk::graph::execute {
namespace {

constexpr std::size_t piece = 2048;

/// Converts whole numbers in words to floats: (x - zero) * scale.
template <class Word>
void from_words(const Word* x, std::size_t n, int zero, float scale, float* y) {
    for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<float>(int{x[i]} - zero) * scale;
}

/// Returns elements [at, at + n) of an addend; quantized ones are written to `room`.
const float* piece_of(const addend& a, std::size_t at, std::size_t n, float* room) {
    if (!a.words.empty()) {
        const std::byte* words = a.words.bytes() + at * sizeof(std::uint16_t);
        if (a.form.is_signed || a.form.zero < 0)
            from_words(reinterpret_cast<const std::int16_t*>(words), n, a.form.zero, a.form.scale, room);
        else from_words(reinterpret_cast<const std::uint16_t*>(words), n, a.form.zero, a.form.scale, room);
        return room;
    }
    const std::span<const float> x = a.floats.as<float>().subspan(at, n);
    if (a.by == nullptr) return x.data();
    const quantizer& q = *a.by;
    const auto how = from_element(q.semantics, at);
    if (q.scale.empty()) kernel_calls::fake_quantize(q.format, x, std::span(room, n), how);
    else kernel_calls::fake_quantize(q.format, x, std::span(room, n), affine{q.scale[0], q.zero_point.empty() ? 0 : q.zero_point[0]}, how);
    return room;
}

bool is_plain_node(const step& t) {
    return t.node != nullptr && !t.unit && !t.dense && !t.attention && !t.device && t.add == nullptr && t.relu == nullptr;
}

bool is_sum(const step& t) {
    return is_plain_node(t) && detail::is_op(*t.node, "Add") && t.node->view.version() >= 7 && t.in.size() == 2 && t.in[0] >= 0 &&
           t.in[1] >= 0 && t.out.size() == 1 && t.out[0] >= 0;
}

bool rounds_in_pieces(const quantizer& q) { return has_one_scale(q) && !q.dynamic && !(q.scale.empty() && is_integer_format(q.format)); }

}  // namespace

std::vector<int> readers_of_slots(const program& p) {
    std::vector<int> readers(static_cast<std::size_t>(p.slot_count), 0);
    const auto read = [&](slot s) {
        if (s >= 0) ++readers[static_cast<std::size_t>(s)];
    };
    for (const step& t : p.steps) std::for_each(t.in.begin(), t.in.end(), read);
    for (const program::candidate& c : p.candidates) std::for_each(c.outputs.begin(), c.outputs.end(), read);
    return readers;
}

tensor sum_of(const addend& a, const addend& b, bool relu, allocator& memory) {
    const tensor &x = a.floats, &y = b.floats;
    if (x.type() != data_type::float32 || y.type() != data_type::float32 || x.shape() != y.shape() || x.size() == 0) return {};
    tensor sum(data_type::float32, x.shape(), memory.allocate(x.size_bytes()));
    float* const to = sum.as<float>().data();
    for_each_range(x.size(), 4, [&](std::size_t begin, std::size_t end) {
        alignas(64) float room[2][piece];
        for (std::size_t at = begin; at < end; at += piece) {
            const std::size_t n = std::min(piece, end - at);
            const float *first = piece_of(a, at, n, room[0]), *second = piece_of(b, at, n, room[1]);
            float* const here = to + at;
            if (relu) {
                for (std::size_t i = 0; i < n; ++i) {
                    const float v = first[i] + second[i];
                    here[i] = v < 0 ? 0.0f : v;
                }
            } else {
                for (std::size_t i = 0; i < n; ++i) here[i] = first[i] + second[i];
            }
        }
    });
    return sum;
}

void join_sums(program& p) {
    const std::vector<int> readers = readers_of_slots(p);
    std::vector<int> sum_of_slot(readers.size(), -1), now_at(p.steps.size());
    std::vector<int> read_by_sums(readers.size(), 0);
    std::vector<step> kept;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
        step& t = p.steps[i];
        // A candidate that was ready after a step that is merged is ready after the step before it.
        now_at[i] = static_cast<int>(kept.size()) - 1;
        if (is_plain_node(t) && detail::is_op(*t.node, "Relu") && t.in[0] >= 0 && t.out[0] >= 0) {
            const int at = sum_of_slot[static_cast<std::size_t>(t.in[0])];
            if (at >= 0 && readers[static_cast<std::size_t>(t.in[0])] == 1) {
                step& sum = kept[static_cast<std::size_t>(at)];
                sum.relu = t.node, sum.out = t.out;
                continue;
            }
        }
        t.is_sum = is_sum(t);
        if (t.is_sum) {
            sum_of_slot[static_cast<std::size_t>(t.out[0])] = static_cast<int>(kept.size());
            for (const slot s : t.in) ++read_by_sums[static_cast<std::size_t>(s)];
        }
        kept.push_back(std::move(t));
        now_at[i] = static_cast<int>(kept.size()) - 1;
    }
    p.steps = std::move(kept);
    for (program::candidate& c : p.candidates)
        if (c.after >= 0) c.after = now_at[static_cast<std::size_t>(c.after)];
    for (step& t : p.steps)
        if (t.node == nullptr && rounds_in_pieces(p.shared->quantizer_at(t.quantizer))) {
            const auto made = static_cast<std::size_t>(t.out[0]);
            t.only_for_sums = readers[made] > 0 && readers[made] == read_by_sums[made];
        }
}

}  // namespace qk::graph::execute
