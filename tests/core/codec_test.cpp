// SPDX-License-Identifier: Apache-2.0
// Tests the law decode(encode(x)) == fake_quantize(x) for every format, axis, rounding and way to supply scales.
#include <doctest/doctest.h>

#include "compare_bits.hpp"

#include <cmath>
#include "qk/codec/encode/encodable.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/memory/bits.hpp"
#include "qk/reference.hpp"
#include "quotient_ties.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace {

std::size_t check_law(const qk::format& f, std::span<const float> x, const qk::codec_parameters& p, const qk::semantics& how,
                      std::span<const float> expected, const std::string& what) {
    const qk::along_axis a = qk::resolved(p.axis, x.size());
    std::vector<std::byte> packed(qk::packed_bytes(f, a) + 3, std::byte{0xa5});
    std::vector<float> y(x.size());
    REQUIRE(under_test::encode(f, x, std::span(packed).first(packed.size() - 3), p, how) == qk::encode_status::done);
    for (std::size_t i = packed.size() - 3; i < packed.size(); ++i) CHECK(packed[i] == std::byte{0xa5});
    under_test::decode(f, packed, y, p);
    return count_mismatches(x, expected, y, what);
}

void check_blocks(const test_format& t, std::size_t n, qk::along_axis a, const qk::semantics& how, data kind) {
    const std::vector<float> x = make_inputs(kind, n, n + 1);
    std::vector<float> expected(n);
    under_test::fake_quantize(t.format, x, expected, a, how);
    const std::string what = t.name + " " + name_of(kind) + " " + std::to_string(a.outer) + "x" + std::to_string(a.length) + "x" +
                             std::to_string(a.inner) + " rounding " + std::to_string(static_cast<int>(how.rounding));
    CHECK_MESSAGE(check_law(t.format, x, a, how, expected, what) == 0, what);
}

constexpr data kinds[] = {data::ordinary, data::any_bits, data::ties, data::subnormal,
                          data::special,  data::sparse,   data::top,  data::tiny_runs};

}  // namespace

TEST_CASE("decode(encode(x)) is fake_quantize(x)") {
    for (const test_format& t : all_formats()) {
        if (!qk::encodable(t.format, qk::semantics::ocp)) continue;
        for (const data kind : kinds) {
            check_blocks(t, 1500, {}, {}, kind);
            check_blocks(t, 3 * 77 * 1, {3, 77, 1}, {}, kind);
            check_blocks(t, 2 * 40 * 13, {2, 40, 13}, {}, kind);
            check_blocks(t, 2 * 40 * 83, {2, 40, 83}, {}, kind);
        }
        check_blocks(t, 1 * 33 * 600, {1, 33, 600}, {}, data::ties);
        check_blocks(t, 0, {}, {}, data::ties);
        for (const std::size_t n : {1u, 2u, 3u, 5u, 31u}) check_blocks(t, n, {}, {}, data::ordinary);
    }
}

TEST_CASE("the law under every rounding and scale rule") {
    for (const test_format& t : all_formats()) {
        if (!qk::encodable(t.format, qk::semantics::ocp)) continue;
        for (const auto& r : qk::rounding_names) {
            const qk::semantics how{.rounding = r.value, .seed = 5, .first_index = 1000};
            check_blocks(t, 700, {}, how, data::ties);
            check_blocks(t, 2 * 40 * 13, {2, 40, 13}, how, data::ordinary);
        }
        for (const auto& r : qk::scale_rule_names) check_blocks(t, 700, {}, {.scale_rule = r.value}, data::any_bits);
        for (const qk::zero_sign sign : {qk::zero_sign::positive, qk::zero_sign::kept}) {
            check_blocks(t, 700, {}, {.mx_zero = sign, .bfp_zero = sign}, data::ordinary);
            check_blocks(t, 2 * 40 * 83, {2, 40, 83}, {.mx_zero = sign, .bfp_zero = sign}, data::ordinary);
        }
        check_blocks(t, 700, {}, {}, data::subnormal);
        for (const auto& s : qk::semantics_names) {
            if (qk::encodable(t.format, s.value)) check_blocks(t, 700, {}, s.value, data::special);
        }
    }
}

TEST_CASE("blocks longer than a tile") {
    for (const test_format& t :
         formats_named({"bfp:block=2000,exponent=8,mantissa=7", "bfp:block=600,exponent=8,mantissa=3,bump",
                        "mx:element=fp8_e4m3fn,block=1000", "mx:element=int8,block=777", "microexponent:block=1200,sub_block=2,mantissa=4",
                        "microexponent:block=1200,sub_block=600,mantissa=4", "nvfp:block=1000"})) {
        for (const data kind : kinds) {
            for (const qk::rounding r : {qk::rounding::half_even, qk::rounding::up, qk::rounding::stochastic}) {
                if (!under_test::chosen()) continue;
                check_blocks(t, 4100, {}, {.rounding = r}, kind);
                check_blocks(t, 1300 * 3, {1, 1300, 3}, {.rounding = r}, kind);
            }
        }
    }
}

TEST_CASE("the law with scales from the caller") {
    const std::size_t n = 4 * 30 * 7;
    for (const test_format& t : all_formats()) {
        const qk::integer* g = std::get_if<qk::integer>(&t.format);
        if (g == nullptr && !std::holds_alternative<qk::floating>(t.format)) continue;
        for (const data kind : kinds) {
            const std::vector<float> x = make_inputs(kind, n, 3);
            std::vector<float> expected(n), scale(30), grid(4 * 10 * 7);
            std::vector<std::int64_t> zero(30), grid_zero(grid.size());
            generator r{11};
            const auto fill = [&](std::vector<float>& s, std::vector<std::int64_t>& z) {
                for (float& v : s) v = std::ldexp(1.0f + static_cast<float>(r.uniform()), static_cast<int>(r.below(9)) - 6);
                for (std::int64_t& v : z)
                    v = g == nullptr
                            ? 0
                            : qk::qmin(*g) + static_cast<std::int64_t>(r.below(
                                                 static_cast<std::uint32_t>(std::min<std::int64_t>(qk::qmax(*g) - qk::qmin(*g), 255)) + 1));
            };
            fill(scale, zero);
            fill(grid, grid_zero);
            for (const auto mode : {qk::integer_mode::division, qk::integer_mode::reciprocal}) {
                for (const bool before : {false, true}) {
                    const qk::semantics how{.integer_mode = mode, .zero_point_before = before};
                    const qk::affine one{.scale = 0.05f, .zero_point = zero[3]};
                    under_test::fake_quantize(t.format, x, expected, one, how);
                    CHECK(check_law(t.format, x, one, how, expected, t.name + " one scale " + name_of(kind)) == 0);
                    const qk::per_channel channels{scale, zero, {4, 30, 7}};
                    under_test::fake_quantize(t.format, x, expected, channels, how);
                    CHECK(check_law(t.format, x, channels, how, expected, t.name + " per channel " + name_of(kind)) == 0);
                    const qk::per_block blocks{grid, grid_zero, {4, 30, 7}, 3};
                    under_test::fake_quantize(t.format, x, expected, blocks, how);
                    CHECK(check_law(t.format, x, blocks, how, expected, t.name + " per block " + name_of(kind)) == 0);
                    const qk::per_channel last{std::span(grid).first(7), std::span(grid_zero).first(7), {120, 7, 1}};
                    under_test::fake_quantize(t.format, x, expected, last, how);
                    CHECK(check_law(t.format, x, last, how, expected, t.name + " per last channel " + name_of(kind)) == 0);
                }
            }
        }
    }
}

TEST_CASE("the law with scales along long rows") {
    const std::size_t n = 3 * 1100;
    for (const test_format& t : all_formats()) {
        const qk::integer* g = std::get_if<qk::integer>(&t.format);
        if (g == nullptr && !std::holds_alternative<qk::floating>(t.format)) continue;
        generator r{12};
        std::vector<float> scale(n), expected(n);
        for (float& v : scale)
            v = r.below(40) == 0 ? qk::scale_by_a_coarse_one(r, static_cast<int>(r.below(160)))
                                 : std::ldexp(1.0f + static_cast<float>(r.uniform()), static_cast<int>(r.below(9)) - 6);
        for (const bool zeros : {false, true}) {
            const std::vector<std::int64_t> zero(zeros && g != nullptr ? n : 0,
                                                 g == nullptr ? 0 : std::min(qk::qmax(*g), qk::qmin(*g) / 2 + 1));
            const auto first = [&](std::size_t k) { return zero.empty() ? std::span<const std::int64_t>() : std::span(zero).first(k); };
            const qk::per_channel channels{std::span(scale).first(1100), first(1100), {3, 1100, 1}}, row{scale, first(n), {1, n, 1}};
            const qk::per_block last{std::span(scale).first(3 * 35), first(3 * 35), {3, 1100, 1}, 32},
                each{scale, first(n), {3, 1100, 1}, 1};
            const qk::per_block middle{std::span(scale).first(2 * 3 * 35), first(2 * 3 * 35), {2, 47, 35}, 16};
            for (const data kind : {data::ordinary, data::special, data::any_bits, data::ties}) {
                const std::vector<float> x = make_inputs(kind, n, 5);
                for (const auto& how : {qk::semantics::onnx, qk::semantics::torch, qk::semantics{.rounding = qk::rounding::half_up},
                                        qk::semantics{.rounding = qk::rounding::stochastic}}) {
                    if (!qk::encodable(t.format, how) || !under_test::chosen()) continue;
                    const auto check = [&](const auto& p, std::size_t count, const char* what) {
                        const auto some = std::span<const float>(x).first(count);
                        const auto wanted = std::span(expected).first(count);
                        qk::reference::fake_quantize(t.format, some, wanted, p, how);
                        CHECK(check_law(t.format, some, p, how, wanted, t.name + " " + what + " " + name_of(kind)) == 0);
                    };
                    check(channels, n, "columns");
                    check(row, n, "columns of one row");
                    check(last, n, "blocks along the last axis");
                    check(each, n, "blocks of one");
                    check(middle, 2 * 47 * 35, "blocks along the middle axis");
                }
            }
        }
    }
}

TEST_CASE("codes of quotients by ties, under scales by coarse ones") {
    qk::for_each_tied_format([](const test_format& t, auto family) {
        if (!qk::encodable(t.format, qk::semantics::onnx)) return;
        generator g{818};
        for (int trial = 0; trial < 40; ++trial) {
            const float scale = qk::scale_by_a_coarse_one(g, trial * 4);
            const std::int64_t zero = qk::any_zero_point(family, trial, g);
            std::vector<float> x;
            for (int k = 0; k < 300; ++k) qk::push_around(x, qk::tie_of(family, zero, g), scale);
            std::vector<float> expected(x.size());
            const qk::affine one{scale, zero};
            qk::reference::fake_quantize(t.format, x, expected, one, qk::semantics::onnx);
            CHECK(check_law(t.format, x, one, qk::semantics::onnx, expected, t.name + " quotients by ties") == 0);
            const std::vector<float> scales((x.size() + 31) / 32, scale);
            const std::vector<std::int64_t> zeros(std::holds_alternative<qk::integer>(t.format) ? scales.size() : 0, zero);
            const qk::per_block runs{scales, zeros, {1, x.size(), 1}, 32};
            CHECK(check_law(t.format, x, runs, qk::semantics::onnx, expected, t.name + " quotients by ties, a scale for each run") == 0);
        }
    });
}

TEST_CASE("random splits of floats and block floats") {
    generator r{2026};
    for (int trial = 0; trial < 400; ++trial) {
        const qk::floating f{static_cast<int>(1 + r.below(8)), static_cast<int>(r.below(15)), static_cast<int>(r.below(140)),
                             static_cast<qk::specials>(r.below(4))};
        if (qk::check(f).empty()) check_blocks({std::string(qk::to_text(f).view()), f}, 200, {}, {}, data::ties);
        const qk::block_float b{static_cast<int>(1 + r.below(70)), static_cast<int>(2 + r.below(7)), static_cast<int>(1 + r.below(23)),
                                r.below(4) == 0};
        check_blocks({std::string(qk::to_text(b).view()), b}, 200, {}, {}, trial % 2 != 0 ? data::any_bits : data::ties);
    }
}

TEST_CASE("every code of a floating format has its value and back") {
    for (const test_format& t : all_formats()) {
        const qk::floating* f = std::get_if<qk::floating>(&t.format);
        if (f == nullptr || *f == qk::fp32) continue;
        const std::vector<std::uint32_t> code = codes_of(*f);
        std::vector<float> value(code.size());
        std::vector<std::byte> packed(qk::packed_bytes(*f, {1, code.size(), 1}));
        qk::detail::put_codes<qk::kernels::native>(packed, 0, code.size(), qk::bits(*f), code.data());
        under_test::decode(*f, packed, value);
        for (std::size_t i = 0; i < code.size(); ++i) {
            REQUIRE_MESSAGE(same_bits(value[i], qk::value_of(*f, code[i])), t.name, " code ", i);
            if (!std::isnan(value[i]) && !qk::exceeds_float32(*f))
                REQUIRE_MESSAGE(qk::code_of(*f, value[i]) == code[i], t.name, " code ", i);
        }
    }
}

TEST_CASE("tables of 2 to 40 numbers: the oracle's values, and their codes") {
    generator g{41};
    const auto between = [&](double a, double b) { return static_cast<float>(a + (b - a) * g.uniform()); };
    for (std::uint32_t size = 2; size <= 40; ++size) {
        for (const qk::table_ties ties : {qk::table_ties::even_code, qk::table_ties::lower, qk::table_ties::upper}) {
            std::vector<float> numbers(size), x(500), expected(x.size());
            for (float& v : numbers) v = ties == qk::table_ties::lower ? between(-1, 1) : std::round(between(-50, 50));
            if (size > 2 && size % 4 == 0) numbers[g.below(size)] = std::numeric_limits<float>::quiet_NaN();
            const qk::format f = qk::table_of(numbers, ties);
            if (!qk::check(f).empty()) continue;
            for (float& v : x) {
                const float a = numbers[g.below(size)], b = numbers[g.below(size)];
                v = g.below(3) == 0 ? (a + b) / 2 : ties == qk::table_ties::lower ? between(-1.2, 1.2) : between(-60, 60);
            }
            x[g.below(100)] = -std::numeric_limits<float>::infinity();
            if (size % 3 == 0) x[g.below(100)] = std::numeric_limits<float>::quiet_NaN();
            for (const qk::rounding r :
                 {qk::rounding::half_even, qk::rounding::half_away, qk::rounding::toward_zero, qk::rounding::to_odd}) {
                for (const float scale : {1.0f, 0.37f}) {
                    const qk::semantics how{.rounding = r};
                    const qk::affine by{.scale = scale, .zero_point = 0};
                    const std::string what = std::to_string(size) + " numbers, rounding " + std::to_string(static_cast<int>(r));
                    std::vector<float> y(x.size());
                    qk::reference::fake_quantize(f, x, expected, by, how);
                    under_test::fake_quantize(f, x, y, by, how);
                    CHECK(count_mismatches(x, expected, y, what) == 0);
                    CHECK(check_law(f, x, by, how, expected, what) == 0);
                }
            }
        }
    }
}

TEST_CASE("codes of every width, at any place") {
    for (int width = 1; width <= 32; ++width) {
        generator r{static_cast<std::uint64_t>(width)};
        std::vector<std::uint32_t> in(203), out(203);
        for (std::uint32_t& c : in) c = r.word() & qk::detail::low_bits(width);
        std::vector<std::byte> plane((in.size() * static_cast<std::size_t>(width) + 7) / 8, std::byte{0xff});
        for (std::size_t first = 0; first < in.size();) {  // in pieces of random length
            const std::size_t n = std::min<std::size_t>(1 + r.below(40), in.size() - first);
            qk::detail::put_codes<qk::kernels::native>(plane, first, n, width, in.data() + first);
            first += n;
        }
        for (std::size_t first = 0; first < in.size();) {
            const std::size_t n = std::min<std::size_t>(1 + r.below(40), in.size() - first);
            qk::detail::get_codes<qk::kernels::native>(plane, first, n, width, out.data() + first);
            first += n;
        }
        CHECK_MESSAGE(in == out, "width ", width);
    }
}

TEST_CASE("16-bit memory is float memory, widened and narrowed") {
    const auto check = [&]<class Half>(const test_format& t, qk::along_axis axis, data kind, const qk::semantics& how) {
        const std::size_t n = axis.outer * axis.length * axis.inner;
        std::vector<Half> x(n), y(n);
        std::vector<float> wide(n), expected = make_inputs(kind, n, 92);
        for (std::size_t i = 0; i < n; ++i) wide[i] = qk::widen(x[i] = qk::narrow<Half>(expected[i]));
        const qk::codec_parameters p =
            qk::is_block_format(t.format) ? qk::codec_parameters(axis) : qk::codec_parameters(qk::affine{.scale = 0.25f});
        std::vector<std::byte> a(qk::packed_bytes(t.format, axis)), b(a.size());
        REQUIRE(under_test::encode(t.format, wide, a, p, how) == qk::encode_status::done);
        REQUIRE(under_test::encode(t.format, x, b, p, how) == qk::encode_status::done);
        CHECK_MESSAGE(a == b, t.name, " ", name_of(kind), " ", n);
        under_test::decode(t.format, a, expected, p);
        under_test::decode(t.format, a, y, p);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) wrong += y[i].bits != qk::narrow<Half>(expected[i]).bits;
        CHECK_MESSAGE(wrong == 0, t.name, " ", name_of(kind), " ", n);
    };
    for (const test_format& t : all_formats()) {
        if (!qk::encodable(t.format, qk::semantics::ocp)) continue;
        for (const qk::along_axis axis : {qk::along_axis{1, 999, 1}, {1, 5003, 1}, {9, 100, 1}, {2, 40, 75}}) {
            for (const data kind : {data::ordinary, data::special, data::tiny_runs}) {
                for (const auto& how : {qk::semantics::ocp, qk::semantics{.rounding = qk::rounding::stochastic, .seed = 3}}) {
                    if (!under_test::chosen()) continue;
                    check.operator()<qk::float16>(t, axis, kind, how);
                    check.operator()<qk::bfloat16>(t, axis, kind, how);
                }
            }
        }
    }
}

TEST_CASE("what has no code is refused, and nothing is written") {
    const std::vector<float> x(32, 1.0f);
    std::vector<std::byte> packed(64, std::byte{7});
    CHECK(under_test::encode(qk::mxfp4, x, packed, {}, qk::semantics::quark) == qk::encode_status::no_code);
    CHECK(under_test::encode(qk::bfp16, x, packed, {}, qk::semantics::quark) == qk::encode_status::no_code);
    CHECK(under_test::encode(qk::fp4_e2m1, x, packed, {}, qk::semantics::microxcaling) == qk::encode_status::no_code);
    CHECK(under_test::encode(qk::mxfp8_e4m3, x, std::span(packed).first(32)) == qk::encode_status::too_small);
    for (const std::byte b : packed) CHECK(b == std::byte{7});
}

TEST_CASE("the fast forms write the bytes that the tiles write") {
    // Eight blocks (or values) are too few for the fast forms where vectors have 16 lanes, so the pieces go through the tiles.
    for (const test_format& t : all_formats()) {
        if (!qk::encodable(t.format, qk::semantics::ocp) || qk::block_size(t.format) > 128) continue;
        const std::size_t block = static_cast<std::size_t>(std::max(1, qk::block_size(t.format)));
        const std::size_t size = block * 8;  // whole bytes in every plane
        for (const data kind : {data::ordinary, data::sparse, data::special, data::ties, data::subnormal, data::tiny_runs}) {
            std::vector<float> x = make_inputs(kind, size * 24 + 5, 91);
            std::vector<qk::bfloat16> narrow(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
                narrow[i] = qk::narrow<qk::bfloat16>(x[i]);
                x[i] = qk::widen(narrow[i]);
            }
            const qk::codec_parameters p = qk::affine{.scale = 0.25f};
            const qk::packed_layout whole = qk::layout_of(t.format, {1, x.size(), 1});
            std::vector<std::byte> packed(whole.bytes()), piecewise(whole.bytes());
            REQUIRE(under_test::encode(t.format, x, packed, p) == qk::encode_status::done);
            for (std::size_t at = 0; at < x.size(); at += size) {
                const std::size_t n = std::min(size, x.size() - at);
                const qk::packed_layout piece = qk::layout_of(t.format, {1, n, 1});
                std::vector<std::byte> bytes(piece.bytes());
                REQUIRE(under_test::encode(t.format, std::span(narrow).subspan(at, n), bytes, p) == qk::encode_status::done);
                const auto copy = [&](const qk::plane& from, const qk::plane& to, std::size_t first) {
                    for (std::size_t i = 0; i < from.count; ++i) {
                        const auto source = std::span<const std::byte>(bytes).subspan(from.offset, from.bytes());
                        qk::detail::put_code(std::span(piecewise).subspan(to.offset, to.bytes()), first + i, to.bits,
                                             qk::detail::get_code(source, i, from.bits));
                    }
                };
                copy(piece.elements, whole.elements, at);
                copy(piece.scales, whole.scales, at / block);
                copy(piece.shifts, whole.shifts, qk::detail::sub_blocks_of(qk::detail::packing_of(t.format), at));
                copy(piece.tensor, whole.tensor, 0);
            }
            CHECK_MESSAGE(packed == piecewise, t.name, " ", name_of(kind));
        }
    }
}

TEST_CASE("blocks along an axis, and in rows with a short last block, have the codes that each row has by itself") {
    const auto code_at = [](const std::vector<std::byte>& bytes, const qk::plane& p, std::size_t i) {
        return qk::detail::get_code(std::span<const std::byte>(bytes).subspan(p.offset, p.bytes()), i, p.bits);
    };
    for (const test_format& t : all_formats()) {
        const auto block = static_cast<std::size_t>(qk::block_size(t.format));
        if (block < 2 || block > 128) continue;
        const auto* micro = std::get_if<qk::microexponent>(&t.format);
        // Two blocks and part of a third are too few for the fast form of a row.
        const std::size_t length = 2 * block + block / 2 + 1, outer = 2, inner = 83, n = outer * length * inner;
        const qk::along_axis rows{outer * inner, length, 1}, columns{outer, length, inner}, row{1, length, 1};
        for (const data kind :
             {data::ordinary, data::sparse, data::special, data::ties, data::subnormal, data::tiny_runs, data::any_bits}) {
            const std::vector<float> by_row = make_inputs(kind, n, 92);
            std::vector<float> by_column(n);
            std::vector<std::uint32_t> row_words(n), column_words(n);
            generator g{93};
            for (std::size_t r = 0; r < rows.outer; ++r) {
                for (std::size_t l = 0; l < length; ++l) {
                    const std::size_t from = r * length + l, to = (r / inner * length + l) * inner + r % inner;
                    by_column[to] = by_row[from];
                    column_words[to] = row_words[from] = g.word();
                }
            }
            for (const auto& base : {qk::semantics::ocp, qk::semantics::nvidia, qk::semantics::microxcaling}) {
                for (const auto& rounding : qk::rounding_names) {
                    qk::semantics how = base;
                    how.rounding = rounding.value;
                    if (!qk::encodable(t.format, how) || !under_test::chosen()) continue;
                    const auto encoded = [&](std::span<const float> x, qk::along_axis a, std::span<const std::uint32_t> words) {
                        qk::codec_parameters p = a;
                        p.one.scale = 0.01f;  // NVFP4's tensor scale
                        p.has_one = true;
                        how.random_words = words;
                        std::vector<std::byte> packed(qk::packed_bytes(t.format, a));
                        REQUIRE(under_test::encode(t.format, x, packed, p, how) == qk::encode_status::done);
                        return packed;
                    };
                    const auto all_rows = encoded(by_row, rows, row_words), all_columns = encoded(by_column, columns, column_words);
                    const qk::packed_layout of_row = qk::layout_of(t.format, row), of_rows = qk::layout_of(t.format, rows),
                                            of_columns = qk::layout_of(t.format, columns);
                    std::size_t differences = 0;
                    for (std::size_t r = 0; r < rows.outer; ++r) {
                        const auto alone =
                            encoded(std::span(by_row).subspan(r * length, length), row, std::span(row_words).subspan(r * length, length));
                        const std::size_t o = r / inner, i = r % inner;
                        const auto compare = [&](qk::plane qk::packed_layout::*plane) {
                            const std::size_t count = (of_row.*plane).count;
                            for (std::size_t k = 0; k < count; ++k) {
                                const std::uint32_t code = code_at(alone, of_row.*plane, k);
                                differences += code != code_at(all_rows, of_rows.*plane, r * count + k);
                                differences += code != code_at(all_columns, of_columns.*plane, (o * count + k) * inner + i);
                            }
                        };
                        compare(&qk::packed_layout::elements);
                        compare(&qk::packed_layout::scales);
                        if (micro != nullptr) compare(&qk::packed_layout::shifts);
                    }
                    CHECK_MESSAGE(differences == 0, t.name, " ", name_of(kind), " rounding ", rounding.name, ": ", differences);
                }
            }
        }
    }
}

TEST_CASE("layout 1, bit by bit") {
    // docs/reference/layouts.md: the first code lies in the low bits.
    const std::vector<float> x{0.5f, -6.0f, 1.0f, 3.0f};
    std::vector<std::byte> packed(qk::packed_bytes<qk::fp4_e2m1>(4));
    REQUIRE(under_test::encode(qk::fp4_e2m1, x, packed) == qk::encode_status::done);
    CHECK(packed == std::vector<std::byte>{std::byte{0xf1}, std::byte{0x52}});
    std::vector<std::byte> six(qk::packed_bytes<qk::fp6_e2m3>(4));
    REQUIRE(under_test::encode(qk::fp6_e2m3, std::vector<float>{0.125f, -0.125f, 7.5f, 0.0f}, six) ==
            qk::encode_status::done);  // codes 1, 33, 31, 0
    CHECK(six == std::vector<std::byte>{std::byte{0x41}, std::byte{0xf8}, std::byte{0x01}});
    std::vector<std::byte> mx(qk::packed_bytes<qk::mxfp4>(4));
    REQUIRE(under_test::encode(qk::mxfp4, x, mx) == qk::encode_status::done);
    CHECK(mx == std::vector<std::byte>{std::byte{0xf1}, std::byte{0x52}, std::byte{127}});
    static_assert(qk::packed_bytes<qk::mxfp6_e3m2>(64) == 48 + 2);
    static_assert(qk::packed_bytes<qk::mx9>(32) == 32 + 2 + 2);
    static_assert(qk::packed_bytes<qk::nvfp4>(32) == 16 + 2 + 4);
}
