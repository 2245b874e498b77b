// SPDX-License-Identifier: Apache-2.0
#include "remade.hpp"

#include <algorithm>
#include <cstring>

namespace qk::checkpoint {
remade_weight::remade_weight(const checkpoint& c, const weight& w, remade_target target, weight_change& change,
                             std::function<void(std::string)> note)
    : c_(c), w_(w), to_(std::move(target)), change_(change), note_(std::move(note)) {}

void remade_weight::produce(int plane, const byte_sink& sink) {
    if (plane == 3 && (to_.scale_beside || (to_.model == nullptr && !moves()))) return beside(sink);
    if (moves()) move(plane, sink);
    else if (to_.model == nullptr) quantize_blocks(sink);
    else quantize_by_rule(plane, sink);
    if (plane != 0) return;
    change_.measured = true;
    to_.say(lost_);
    check_lossless(change_, to_.lossless, why_);
}

repack_result remade_weight::moved_matrix(std::uint64_t m, quantized_parts& parts) const {
    const plane_sizes n = sizes_of(to_.how, w_.matrix);
    parts.codes.resize(n.codes), parts.scales.resize(n.scales), parts.zeros.resize(n.zeros);
    std::vector<std::uint8_t> scratch(w_.matrix.columns);
    return repack(w_.how, w_.matrix, planes_of(c_, w_, m), to_.how, {parts.codes, parts.scales, parts.zeros, &parts.global}, scratch);
}

/// Whether the codes are moved: all of them without loss, or with scales and biases that are rounded by little. Layouts that differ in
/// nothing that data decide are not looked at.
bool remade_weight::moves() {
    if (moves_) return *moves_;
    change_.how = weight_change::kind::quantized;
    why_ = to_.refusal;
    if (!to_.movable) return *(moves_ = false);
    const layout_changes changes = compare_layouts(w_.how, to_.how);
    bool exact = true, close = true;
    repack_result worst;
    for (std::uint64_t m = 0; !changes.exact && close && m < w_.stack; ++m) {
        quantized_parts parts;
        repack_result made = moved_matrix(m, parts);
        if (w_.stack == 1) decided_ = std::move(parts);
        if (to_.scale_beside) made.global_dropped = false;
        exact = exact && made.exact(), close = made.close() && !made.global_dropped;
        worst.scales_rounded += made.scales_rounded, worst.zeros_lost += made.zeros_lost, worst.biases_rounded += made.biases_rounded;
        worst.global_rounded = worst.global_rounded || made.global_rounded, worst.global_dropped |= made.global_dropped;
    }
    const auto say = [&](const std::string& what) { why_ += (why_.empty() ? "" : ", ") + what; };
    if (worst.zeros_lost != 0) say(std::to_string(worst.zeros_lost) + " zero points do not exist in the other layout");
    if (worst.scales_rounded != 0) say(std::to_string(worst.scales_rounded) + " scales do not exist in the other layout");
    if (worst.biases_rounded != 0) say(std::to_string(worst.biases_rounded) + " zero points times scales do not exist in the other layout");
    if (worst.global_rounded) say("the reciprocal of the global scale is rounded");
    if (worst.global_dropped) say("the other layout has no place for a global scale");
    moves_ = exact || (close && !to_.requantize);
    if (!*moves_) decided_.reset();
    else {
        change_.how = exact ? weight_change::kind::moved : weight_change::kind::rounded;
        for (int k = 0; k < changes.count; ++k)
            if (const auto i = static_cast<std::size_t>(k); !changes.by_data[i]) note_(w_.format + ": " + std::string(changes.says[i]));
    }
    return *moves_;
}

void remade_weight::move(int plane, const byte_sink& sink) {
    for (std::uint64_t m = 0; m < w_.stack; ++m) {
        quantized_parts parts;
        if (decided_) parts = *std::move(decided_), decided_.reset();
        else moved_matrix(m, parts);
        if (plane == 0) measure_moved(m, parts);
        sink(plane == 0   ? std::span<const std::byte>(parts.codes)
             : plane == 1 ? parts.scales
             : plane == 2 ? parts.zeros
                          : std::as_bytes(std::span(&parts.global, 1)));
    }
}

/// What multiplies the weight from outside: its global scale, or 1 where blocks made anew have it in their own.
void remade_weight::beside(const byte_sink& sink) {
    for (std::uint64_t m = 0; m < to_.stack; ++m) {
        const float factor = moves() ? outside(m) : 1;
        sink(std::as_bytes(std::span(&factor, 1)));
    }
}
float remade_weight::outside(std::uint64_t m) const {
    const float global = planes_of(c_, w_, m).global;
    return w_.how.global == global_type::divides ? 1 / global : global;
}

void remade_weight::measure(std::span<const float> was, std::span<const float> is) {
    add_difference(change_, was, is);
    if (lost_numbers::possible(was)) lost_.compare(was, is);
}

/// Compares the readers of both layouts row by row.
void remade_weight::measure_moved(std::uint64_t m, const quantized_parts& parts) {
    const matrix_planes from = planes_of(c_, w_, m), to{parts.codes, parts.scales, parts.zeros, parts.global, to_.group_of};
    const auto of_blocks = [](const layout& l, float global) {  // ggml's blocks have theirs beside, and decode_row() does not see it
        return l.order == code_order::ggml_blocks && l.global == global_type::multiplies ? global : 1.0f;
    };
    const float own = of_blocks(w_.how, from.global), factor = to_.scale_beside ? outside(m) : of_blocks(to_.how, parts.global);
    std::vector<std::uint8_t> scratch(w_.matrix.columns);
    std::vector<float> was(w_.matrix.columns), is(w_.matrix.columns);
    for (std::size_t r = 0; r < w_.matrix.rows; ++r) {
        decode_row(w_.how, w_.matrix, from, r, scratch.data(), was.data());
        for (float& v : was) v *= own;
        decode_row(to_.how, w_.matrix, to, r, scratch.data(), is.data());
        add_difference(change_, was, is, factor);
    }
}

namespace {

std::vector<float> transposed(std::span<const float> x, std::size_t rows, std::size_t columns) {
    std::vector<float> y(x.size());
    for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
    return y;
}

/// Calls `take` with a weight's floats, whole multiples of `unit` at a time.
void decode_units(const remade_target& to, std::size_t unit, bool one_by_one, const std::function<void(std::span<const float>)>& take) {
    std::vector<float> rest;
    to.values([&](std::span<const float> part) {
        if (rest.empty() && !one_by_one && part.size() % unit == 0) return take(part);
        rest.insert(rest.end(), part.begin(), part.end());
        const std::size_t whole = rest.size() / unit * unit;
        if (whole == 0) return;
        if (!one_by_one) take(std::span(rest).first(whole));
        for (std::size_t i = 0; one_by_one && i < whole; i += unit) take(std::span(rest).subspan(i, unit));
        rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(whole));
    });
}

}  // namespace

void remade_weight::quantize_blocks(const byte_sink& sink) {
    const block_quantizer quantize = quantizer_of(to_.how.block);
    if (!quantize)
        throw error(w_.name + " is " + w_.format + ", and no rule is known that quantizes it as asked" + (why_.empty() ? "" : ": " + why_));
    const ggml_facts f = facts_of(to_.how.block);
    const std::size_t row = to_.matrix.columns, row_bytes = row / f.values * f.bytes;
    std::vector<std::byte> blocks;
    std::vector<float> back;
    const matrix_shape one{1, row};
    const importance_rows columns = to_.importance ? to_.importance() : importance_rows();
    std::uint64_t before = 0;  // rows
    const auto rows = [&](std::span<const float> x) {
        const std::size_t count = x.size() / row;
        blocks.assign(count * row_bytes, std::byte{0});
        back.resize(x.size());
        in_parts(count, to_.threads, [&](std::size_t first, std::size_t last) {
            for (std::size_t r = first; r < last; ++r) {
                const std::span<std::byte> made = std::span(blocks).subspan(r * row_bytes, row_bytes);
                quantize(x.subspan(r * row, row), columns.of(before + r), made);
                decode_row(to_.how, one, {.codes = made, .scales = {}, .zeros = {}}, 0, nullptr, back.data() + r * row);
            }
        });
        for (std::size_t r = 0; r < count; ++r) measure(x.subspan(r * row, row), std::span(back).subspan(r * row, row));
        before += count;
        sink(blocks);
    };
    const std::size_t matrix = to_.matrix.rows * row;
    if (to_.turned) decode_units(to_, matrix, true, [&](std::span<const float> x) { rows(transposed(x, row, to_.matrix.rows)); });
    else decode_units(to_, row, false, rows);
}

quantized_parts remade_weight::by_rule(std::span<const float> matrix) const {
    const weight& v = *to_.model;
    auto made = quantized_like(to_.system, to_.symmetric, v, to_.group_of, matrix);
    if (!made && to_.group_of.empty()) made = matrix_made_by(to_.system, v, matrix);
    if (!made)
        throw error(w_.name + ": no rule is known that makes " + v.format + " as " + to_.system + " has it" +
                    (why_.empty() ? "" : ": " + why_));
    const plane_sizes n = sizes_of(v.how, v.matrix);
    if (made->codes.size() != n.codes || made->scales.size() != n.scales || (n.zeros != 0 && made->zeros.size() != n.zeros))
        throw error(w_.name + ": the rule of " + to_.system + " packs " + v.format + " otherwise than this file");
    check_scales(w_, v, *made, matrix);
    return *std::move(made);
}

void remade_weight::quantize_by_rule(int plane, const byte_sink& sink) {
    const weight& v = *to_.model;
    const std::size_t rows = v.matrix.rows, columns = v.matrix.columns;
    if (rows * columns == 0) return;
    std::vector<std::uint8_t> scratch(columns);
    std::vector<float> back(columns);
    decode_units(to_, rows * columns, true, [&](std::span<const float> some) {
        std::vector<float> turned;
        if (to_.turned) some = turned = transposed(some, columns, rows);
        const quantized_parts made = by_rule(some);
        bool all_zero = true;
        for (std::size_t r = 0; plane == 0 && r < rows; ++r) {
            decode_row(v.how, v.matrix, {made.codes, made.scales, made.zeros, made.global, to_.group_of}, r, scratch.data(), back.data());
            measure(some.subspan(r * columns, columns), back);
            all_zero = all_zero && std::ranges::all_of(back, [](float x) { return x == 0; });
        }
        if (plane == 0 && all_zero && !std::ranges::all_of(some, [](float x) { return x == 0; }))
            throw error(w_.name + ": every number becomes 0, because the layout of " + to_.system + " has no scale so small");
        sink(plane == 0   ? std::span<const std::byte>(made.codes)
             : plane == 1 ? made.scales
             : plane == 2 ? made.zeros
                          : std::as_bytes(std::span(&made.global, 1)));
    });
}

}  // namespace qk::checkpoint
