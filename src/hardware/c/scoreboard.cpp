// SPDX-License-Identifier: Apache-2.0
// qk.h's scoreboard of a converter: what a bench records word by word, compared as arrays.
#include <bit>
#include <cmath>
#include <memory>

#include "door.hpp"
#include "dot_questions.hpp"
#include "qk/compare/cases.hpp"
#include "qk/compare/compare.hpp"
#include "qk/compare/decoder.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"

struct qk_scoreboard {
    std::string format, semantics;
    std::size_t row = 0;
    float scale = 1;
    std::int64_t zero_point = 0;
    qk::format form;
    std::vector<float> inputs, outputs;
    std::vector<std::uint32_t> elements, scales, words;
    /// The right codes of values first_expected and behind, as last asked for.
    std::size_t first_expected = 0;
    std::vector<std::uint32_t> expected, expected_scales;
    qk::compare::report report;
    std::string verdict;
    qk::compare::random_source random{0};
    std::vector<float> corners;  ///< values that random ones do not meet; every other stretch of 32 is drawn from these
};

namespace {

using namespace qk::c;

/// Returns the conversion of the first n values.
qk_conversion conversion_of(const qk_scoreboard& b, std::size_t n, const std::int64_t* zero) {
    qk_conversion c{};
    c.format = b.format.c_str();
    c.semantics = b.semantics.c_str();
    if (b.row != 0) c.outer = n / b.row, c.length = b.row, c.inner = 1;
    const bool scaled = !qk::is_block_format(b.form) && (b.scale != 1 || b.zero_point != 0);
    if (scaled) {
        c.scales = &b.scale;
        c.scale_count = 1;
        c.zero_points = qk::is_integer_format(b.form) && b.zero_point != 0 ? zero : nullptr;
    }
    return c;
}

/// Returns the values that the device's recorded codes stand for.
std::vector<float> decoded(const qk_scoreboard& b, const qk::compare::conversion& how, std::size_t n) {
    const qk::packed_layout l = layout_of(how, n);
    if (l.shifts.count != 0 || l.tensor.count != 0)
        throw refused{QK_BAD_ARGUMENT, "this format has more than elements and scales; decode it with qk_decode and record values"};
    const auto first = [](const std::vector<std::uint32_t>& v, std::size_t count) {
        return std::vector<std::uint32_t>(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(count));
    };
    return qk::compare::decoded(how, {first(b.elements, n), first(b.scales, l.scales.count), {}});
}

/// Returns how many values are complete: in whole rows and whole blocks, with the device's output.
std::size_t complete(const qk_scoreboard& b) {
    std::size_t n = std::min(b.inputs.size(), b.elements.empty() ? b.outputs.size() : b.elements.size());
    if (!b.words.empty()) n = std::min(n, b.words.size());
    const auto block = static_cast<std::size_t>(block_size(b.form));
    if (b.row != 0) {
        std::size_t rows = n / b.row;
        if (block != 0 && !b.elements.empty()) rows = std::min(rows, b.scales.size() / ((b.row + block - 1) / block));
        return rows * b.row;
    }
    if (block != 0) {
        n = n / block * block;
        if (!b.elements.empty()) n = std::min(n, b.scales.size() * block);
    }
    return n;
}

/// Compares what is complete, writes the verdict and returns on how many values the device differs.
std::int64_t examine(qk_scoreboard& b) {
    if (!b.elements.empty() && !b.outputs.empty()) throw refused{QK_BAD_ARGUMENT, "record codes or values of the device, not both"};
    const std::size_t n = complete(b);
    if (n == 0) throw refused{QK_BAD_ARGUMENT, "nothing is complete: record inputs, and what the device made of them"};
    const qk_conversion given = conversion_of(b, n, &b.zero_point);
    qk::compare::conversion how = qk::c::conversion_of(&given, n);
    if (!b.words.empty()) take_words(how, b.words.data(), n);
    const std::vector<float> x(b.inputs.begin(), b.inputs.begin() + static_cast<std::ptrdiff_t>(n));
    const std::vector<float> y =
        b.elements.empty() ? std::vector<float>(b.outputs.begin(), b.outputs.begin() + static_cast<std::ptrdiff_t>(n)) : decoded(b, how, n);
    const std::int64_t shape[] = {static_cast<std::int64_t>(how.blocks.outer), static_cast<std::int64_t>(how.blocks.length),
                                  static_cast<std::int64_t>(how.blocks.inner)};
    b.report = qk::compare::examine(how, shape, x, y);
    b.verdict = to_text(b.report);
    return static_cast<std::int64_t>(b.report.mismatches);
}

/// Returns how many values come from one source: a block, or more where blocks are shorter.
std::size_t stretch_of(const qk_scoreboard& b) {
    const auto block = static_cast<std::size_t>(std::max(1, block_size(b.form)));
    return (31 + block) / block * block;
}
/// Returns the corner whose turn it is: whole blocks, or stretches of values, from all over the list.
std::uint32_t drawn_corner(qk_scoreboard& b, std::size_t at) {
    if (b.corners.empty()) {
        const qk_conversion given = conversion_of(b, static_cast<std::size_t>(std::max(1, block_size(b.form))), &b.zero_point);
        b.corners = qk::compare::converter_corners(qk::c::conversion_of(&given, static_cast<std::size_t>(std::max(1, block_size(b.form)))));
    }
    const std::size_t block = static_cast<std::size_t>(block_size(b.form)), piece = block == 0 ? 32 : block,
                      pieces = b.corners.size() / piece;
    const std::size_t turn = at / (2 * stretch_of(b)) * (stretch_of(b) / piece) + at % stretch_of(b) / piece;
    // The golden part of the list from one to the next: a short run sees every part of it.
    const std::size_t step = std::max<std::size_t>(1, pieces * 987 / 1597) | 1;
    return std::bit_cast<std::uint32_t>(b.corners[turn * step % pieces * piece + at % piece]);
}

/// Returns the bits of an input. Numbers with few mantissa bits are ties and exact values, and a change of the last bit makes neighbours of
/// ties; exponents stay together for a while, as they do in a tensor, so that blocks have small values, too.
std::uint32_t drawn(qk_scoreboard& b) {
    const std::size_t at = b.inputs.size();
    if (at / stretch_of(b) % 2 == 1) return drawn_corner(b, at);
    qk::compare::random_source& draw = b.random;
    if (draw.below(64) == 0) {
        constexpr std::uint32_t special[] = {0, 0x80000000u, 1, 0x807fffffu, 0x00800000u, 0x7f7fffffu, 0x7f800000u, 0xffc00000u};
        const std::uint32_t pick = draw.below(at % 1024 < 512 ? 5 : 8);  // half of the rows stay finite
        return special[pick];
    }
    const auto stretch = static_cast<std::uint32_t>(at / 32);
    const int bias = 127 + static_cast<int>(std::lround(std::log2(static_cast<double>(b.scale))));
    const int centre = bias + static_cast<int>(qk::mix_bits(stretch) % 24) - 12;
    const int exponent = std::clamp(centre - static_cast<int>(draw.below(draw.below(4) == 0 ? 16 : 5)), 1, 254);
    const std::uint32_t kept = draw.below(9), mantissa = draw.below(1u << 23) >> (23 - kept) << (23 - kept);
    std::uint32_t bits = static_cast<std::uint32_t>(exponent) << 23 | (draw.below(4) == 0 ? draw.below(1u << 23) : mantissa);
    if (draw.below(8) == 0) bits += draw.below(2) == 0 ? 1u : ~std::uint32_t{0};
    return bits | draw.below(2) << 31;
}

/// Makes the right codes of the block or, where rows have a length, of the row that value `at` is in.
void expect_codes(qk_scoreboard& b, std::int64_t position) {
    if (position < 0) throw refused{QK_BAD_ARGUMENT, "positions count from 0"};
    const auto at = static_cast<std::size_t>(position), block = std::max<std::size_t>(1, static_cast<std::size_t>(block_size(b.form)));
    const std::size_t n = b.row != 0 ? b.row : block, first = at / n * n;
    if (!b.expected.empty() && b.first_expected == first) return;
    if (first + n > b.inputs.size() || (!b.words.empty() && first + n > b.words.size()))
        throw refused{QK_BAD_ARGUMENT, "record the inputs of the whole block or row first, and their words if there are any"};
    const qk_conversion given = conversion_of(b, n, &b.zero_point);
    qk::compare::conversion how = qk::c::conversion_of(&given, n);
    how.how = from_element(how.how, first);
    if (!b.words.empty()) take_words(how, b.words.data() + first, n);
    const qk::packed_layout l = layout_of(how, n);
    if (l.shifts.count != 0 || l.tensor.count != 0)
        throw refused{QK_BAD_ARGUMENT, "this format has more than elements and scales; encode it with qk_encode"};
    std::vector<std::byte> packed(l.bytes());
    const auto done = qk::dispatch::encode(how.format, std::span<const float>(b.inputs.data() + first, n), std::span(packed),
                                           parameters_of(how), how.how);
    if (done != qk::encode_status::done) throw refused{QK_NO_CODE, "this semantics gives values for which the format has no code"};
    const qk::const_planes p = qk::planes_of(l, std::span<const std::byte>(packed));
    b.expected.clear(), b.expected_scales.clear();
    for (std::size_t i = 0; i < n; ++i) b.expected.push_back(qk::get_code(p.elements, i, l.elements.bits));
    for (std::size_t i = 0; i < l.scales.count; ++i) b.expected_scales.push_back(qk::get_code(p.scales, i, l.scales.bits));
    b.first_expected = first;
}
/// Is true where `code` is the right one of value k of those last expected, or where both stand for NaN.
bool is_right(const qk_scoreboard& b, std::size_t k, std::uint32_t code) {
    if (code == b.expected[k]) return true;
    const std::size_t n = b.expected.size();
    const qk_conversion given = conversion_of(b, n, &b.zero_point);
    const qk::compare::conversion how = qk::c::conversion_of(&given, n);
    if (code >> layout_of(how, n).elements.bits != 0) return false;
    const auto is_nan = [&](std::uint32_t of_k) {
        std::vector<std::uint32_t> elements = b.expected;
        elements[k] = of_k;
        return std::isnan(qk::compare::decoded(how, {std::move(elements), b.expected_scales, {}})[k]);
    };
    return is_nan(b.expected[k]) && is_nan(code);
}
/// Returns pick(board), or all ones where it is refused.
template <class Pick>
unsigned int expected_code(qk_scoreboard* board, const Pick& pick) {
    unsigned int code = ~0u;
    guarded([&] {
        expect_array(board, 1, "board");
        code = pick(*board);
    });
    return code;
}

template <class T>
void record(qk_scoreboard* board, std::vector<T> qk_scoreboard::*to, T value) {
    guarded([&] {
        if (board != nullptr) (board->*to).push_back(value);
    });
}

}  // namespace

extern "C" {

qk_scoreboard* qk_scoreboard_new(const char* format, const char* semantics, int64_t row, double scale, int64_t zero_point) {
    qk_scoreboard* board = nullptr;
    guarded([&] {
        auto b = std::make_unique<qk_scoreboard>();
        b->form = format_of(format, "format");
        semantics_of(semantics);
        b->format = format;
        b->semantics = semantics == nullptr ? "" : semantics;
        if (row < 0) throw refused{QK_BAD_ARGUMENT, "row is the number of values in a row, or 0"};
        b->row = static_cast<std::size_t>(row);
        b->scale = scale == 0 ? 1.0f : static_cast<float>(scale);
        b->zero_point = zero_point;
        const qk_conversion given = ::conversion_of(*b, b->row, &b->zero_point);
        qk::c::conversion_of(&given, b->row);  // scale and zero point are checked here
        board = b.release();
    });
    return board;
}
unsigned int qk_scoreboard_draw(qk_scoreboard* board) {
    if (board == nullptr) return 0;
    const std::uint32_t bits = drawn(*board);
    qk_scoreboard_input(board, bits);
    return bits;
}
void qk_scoreboard_input(qk_scoreboard* board, unsigned int float_bits) {
    record(board, &qk_scoreboard::inputs, std::bit_cast<float>(float_bits));
}
void qk_scoreboard_output(qk_scoreboard* board, unsigned int float_bits) {
    record(board, &qk_scoreboard::outputs, std::bit_cast<float>(float_bits));
}
void qk_scoreboard_element(qk_scoreboard* board, unsigned int code) { record(board, &qk_scoreboard::elements, code); }
void qk_scoreboard_scale(qk_scoreboard* board, unsigned int code) { record(board, &qk_scoreboard::scales, code); }
void qk_scoreboard_word(qk_scoreboard* board, unsigned int word) {
    // Codes that were asked for before the first word were rounded with words of the seed.
    if (board != nullptr && board->words.empty()) board->expected.clear();
    record(board, &qk_scoreboard::words, word);
}
unsigned int qk_scoreboard_expected(qk_scoreboard* board, int64_t position) {
    return expected_code(board, [&](qk_scoreboard& b) {
        expect_codes(b, position);
        return b.expected[static_cast<std::size_t>(position) - b.first_expected];
    });
}
unsigned int qk_scoreboard_expected_scale(qk_scoreboard* board, int64_t block) {
    return expected_code(board, [&](qk_scoreboard& b) {
        const auto size = static_cast<std::int64_t>(block_size(b.form)), row = static_cast<std::int64_t>(b.row);
        if (size == 0) throw refused{QK_BAD_ARGUMENT, "this format has no blocks"};
        const std::int64_t each = row == 0 ? 1 : (row + size - 1) / size;  // blocks of a row
        if (block < 0) throw refused{QK_BAD_ARGUMENT, "blocks count from 0"};
        expect_codes(b, row == 0 ? block * size : block / each * row);
        return b.expected_scales[static_cast<std::size_t>(block % each)];
    });
}
int qk_scoreboard_matches(qk_scoreboard* board, int64_t position, unsigned int code) {
    int right = -1;
    guarded([&] {
        expect_array(board, 1, "board");
        expect_codes(*board, position);
        right = is_right(*board, static_cast<std::size_t>(position) - board->first_expected, code) ? 1 : 0;
    });
    return right;
}
int64_t qk_scoreboard_check(qk_scoreboard* board) { return differences(board, examine); }
const char* qk_scoreboard_verdict(qk_scoreboard* board) { return verdict_of(board, examine); }
void qk_scoreboard_free(qk_scoreboard* board) { delete board; }

}  // extern "C"
