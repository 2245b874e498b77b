// SPDX-License-Identifier: Apache-2.0
// Compares kernels with the oracle, bit for bit: every format, data, rounding, semantics, length, alignment and axis, for the instruction
// set that under_test.hpp names.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel_cases.hpp"

using namespace qk;

TEST_CASE("every format, data and rounding; blocks along rows and along the middle axis") {
    for (const test_format& f : all_formats()) {
        std::size_t compared = 0, mismatches = 0;
        for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
            for (const test_semantics& s : all_roundings({"ocp", semantics::ocp})) {
                for (const along_axis axis :
                     {along_axis{}, along_axis{3, 77, 1}, along_axis{2, 37, 21}, along_axis{2, 384, 1}}) {  // the last has whole blocks
                    if (!under_test::chosen()) continue;
                    const std::size_t count = axis.inner == 0 ? 1031 : axis.outer * axis.length * axis.inner;
                    const std::vector<float> x = make_inputs(data(kind), count, 5 + axis.inner);
                    mismatches += compare(f, x, axis, scale_of(f.format), s, name_of(data(kind)));
                    compared += count;
                }
            }
        }
        record_evidence(f.name, "oracle: random, ties, subnormal, special, ragged; 7 roundings", isa, compared, mismatches);
    }
}

TEST_CASE("every format under every semantics") {
    for (const test_format& f : all_formats()) {
        std::size_t compared = 0, mismatches = 0;
        for (const test_semantics& base : all_semantics()) {
            for (const test_semantics& s : all_roundings(base)) {
                for (data kind : {data::special, data::subnormal, data::sparse, data::any_bits, data::ties}) {
                    for (const along_axis axis :
                         {along_axis{1, 331, 1}, along_axis{1, 384, 1}, along_axis{1, 33, 67}}) {  // ragged, whole blocks, columns
                        if (!under_test::chosen()) continue;
                        const std::vector<float> x = make_inputs(kind, axis.length * axis.inner, 21);
                        mismatches += compare(f, x, axis, scale_of(f.format), s, name_of(kind));
                        compared += x.size();
                    }
                }
            }
        }
        record_evidence(f.name, "oracle: 20 semantics x 7 roundings", isa, compared, mismatches);
    }
}

TEST_CASE("formats of one digit, without a sign or found by a table: every upper half of a float, and lower halves beside ties") {
    std::vector<float> x;
    for (std::uint32_t upper = 0; upper < 65536; ++upper)
        for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
            x.push_back(std::bit_cast<float>(upper << 16 | lower));
    std::vector<test_semantics> how{{"ocp", semantics::ocp}, {"to odd", semantics::ocp}, {"up", semantics::ocp}, {"ieee", semantics::ocp}};
    how[1].how.rounding = rounding::to_odd, how[2].how.rounding = rounding::up, how[3].how.overflow = overflow_rule::ieee;
    for (const test_format& f : formats_named({"ue4m3", "ue5m3", "fp4_e3m0", "float:exponent=4,mantissa=0,special=fn", "posit8", "lns8",
                                               "nf4", "apot4", "float:exponent=4,mantissa=2,sign=0,special=none"})) {
        for (const test_semantics& s : how) {
            for (const float scale : {1.0f, 0.37f}) {
                if (!under_test::chosen()) continue;
                CHECK(compare(f, x, along_axis{}, {.scale = scale}, s, "upper halves") == 0);
            }
        }
    }
}

TEST_CASE("blocks whose elements have one digit: ties between codes, under scales of every parity") {
    for (const test_format& f :
         formats_named({"mx:element=fp4_e3m0,block=32", "mx:element=fp4_e3m0,block=8", "nvfp:block=16,element=fp4_e3m0",
                        "mx:element=float:exponent=5,mantissa=0,special=fn,block=16"})) {
        std::vector<float> x;
        generator g{17};
        for (int e = -120; e < 120; ++e) {
            for (const float top : {1.0f, 1.25f, 1.5f, 1.75f}) {
                for (int i = 0; i < 32; ++i) {
                    const float significand = i % 8 == 0 ? top : 1 + 0.125f * static_cast<float>(g.below(8));
                    const float v = std::ldexp(significand, e - (i % 8 == 0 ? 0 : static_cast<int>(g.below(12))));
                    const std::uint32_t beside = i % 8 == 0 ? 0 : g.below(3) - 1;
                    x.push_back(std::bit_cast<float>((std::bit_cast<std::uint32_t>(v) + beside) ^ (g.word() & 0x80000000u)));
                }
            }
        }
        for (const test_semantics& base : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}}) {
            for (const test_semantics& s : all_roundings(base)) {
                if (!under_test::chosen()) continue;
                CHECK(compare(f, x, along_axis{}, scale_of(f.format), s, "ties") == 0);
                CHECK(compare(f, x, along_axis{1, x.size() / 64, 64}, scale_of(f.format), s, "ties in columns") == 0);
            }
        }
    }
}

TEST_CASE("every length from 0 to four vectors and one, unaligned, in place, nothing written outside") {
    constexpr float guard = 777;
    for (const test_format& f : all_formats()) {
        CAPTURE(f.name);
        for (std::size_t count = 0; count <= 4 * 16 + 1; ++count) {
            const std::vector<float> x = make_inputs(count % 3 == 0 ? data::special : data::ties, count, 100 + count);
            std::vector<float> expected(count);
            reference::fake_quantize(f.format, x, expected, scale_of(f.format));
            for (std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
                std::vector<float> from(count + 8, guard), to(count + 8, guard);
                std::copy(x.begin(), x.end(), from.begin() + static_cast<std::ptrdiff_t>(offset));
                under_test::fake_quantize(f.format, std::span<const float>(from).subspan(offset, count),
                                          std::span(to).subspan(offset + 1, count), scale_of(f.format));
                CHECK(count_mismatches(x, expected, std::span(to).subspan(offset + 1, count),
                                       isa + " " + f.name + " length " + std::to_string(count)) == 0);
                for (std::size_t i = 0; i < to.size(); ++i) {
                    if (i < offset + 1 || i >= offset + 1 + count) REQUIRE(to[i] == guard);
                }
                const std::span<float> place = std::span(from).subspan(offset, count);
                under_test::fake_quantize(f.format, place, place, scale_of(f.format));
                CHECK(count_mismatches(x, expected, place, isa + " " + f.name + " in place, length " + std::to_string(count)) == 0);
            }
        }
    }
}

TEST_CASE("streaming stores, at any alignment, write the same bits and nothing outside") {
    constexpr float guard = 777;
    const std::size_t before = streaming_bytes.exchange(0);
    for (const test_format& f : all_formats()) {
        for (data kind : {data::ordinary, data::sparse, data::special}) {
            for (std::size_t count : {std::size_t{5}, std::size_t{600}, std::size_t{1031}}) {
                const std::vector<float> x = make_inputs(kind, count, 61);
                std::vector<float> expected(count);
                reference::fake_quantize(f.format, x, expected, scale_of(f.format));
                for (std::size_t offset = 0; offset < 17; offset += 3) {
                    std::vector<float> to(count + 40, guard);
                    under_test::fake_quantize(f.format, x, std::span(to).subspan(offset, count), scale_of(f.format));
                    CHECK(count_mismatches(x, expected, std::span(to).subspan(offset, count), isa + " " + f.name + " streamed") == 0);
                    for (std::size_t i = 0; i < to.size(); ++i) {
                        if (i < offset || i >= offset + count) REQUIRE(to[i] == guard);
                    }
                }
            }
        }
    }
    // Along a strided axis, rows are streamed when they begin on a whole vector.
    const along_axis axis{2, 37, 96};
    const std::size_t count = 2 * 37 * 96;
    std::vector<float> scales(37);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.05f + 0.01f * static_cast<float>(i);
    for (const test_format& f : all_formats()) {
        for (data kind : {data::ordinary, data::special}) {
            const std::vector<float> x = make_inputs(kind, count, 62);
            std::vector<float> expected(count), to(count + 48, guard);
            const std::size_t aligned = (64 - reinterpret_cast<std::uintptr_t>(to.data()) % 64) / sizeof(float) % 16;
            for (const std::size_t offset : {aligned + 16, aligned + 19}) {
                const std::span<float> y = std::span(to).subspan(offset, count);
                if (is_block_format(f.format)) {
                    reference::fake_quantize(f.format, x, expected, axis, scale_of(f.format));
                    under_test::fake_quantize(f.format, x, y, axis, scale_of(f.format));
                } else {
                    reference::fake_quantize(f.format, x, expected, per_channel{scales, {}, axis});
                    under_test::fake_quantize(f.format, x, y, per_channel{scales, {}, axis});
                }
                CHECK(count_mismatches(x, expected, y, isa + " " + f.name + " streamed along an axis") == 0);
                for (std::size_t i = 0; i < offset; ++i) REQUIRE(to[i] == guard);
                for (std::size_t i = offset + count; i < to.size(); ++i) REQUIRE(to[i] == guard);
                std::fill(to.begin(), to.end(), guard);
            }
        }
    }
    streaming_bytes = before;
}

TEST_CASE("every axis of small arrays, in place too") {
    // In the last four, columns fill their vectors, in several panels of equal and of unequal numbers of rows.
    const along_axis shapes[] = {{1, 1, 1},    {5, 1, 7},    {1, 5, 1},    {4, 16, 3},  {2, 33, 16}, {1, 48, 17},  {7, 8, 1},
                                 {3, 9, 64},   {1, 2, 100},  {64, 3, 1},   {0, 8, 4},   {2, 8, 31},  {2, 40, 49},  {70, 100, 1},
                                 {300, 33, 1}, {3, 1001, 1}, {2, 17, 113}, {4, 16, 64}, {2, 96, 64}, {3, 40, 128}, {2, 72, 192}};
    for (const test_format& f : all_formats()) {
        if (!is_block_format(f.format)) continue;
        for (const along_axis axis : shapes) {
            const std::size_t count = axis.outer * axis.length * axis.inner;
            for (data kind : {data::ties, data::special}) {
                const std::vector<float> x = make_inputs(kind, count, 31);
                for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}}) {
                    compare(f, x, axis, scale_of(f.format), s, "axis");
                    std::vector<float> expected(count), place(x);
                    reference::fake_quantize(f.format, x, expected, axis, scale_of(f.format), s.how);
                    under_test::fake_quantize(f.format, place, place, axis, scale_of(f.format), s.how);
                    CHECK(count_mismatches(x, expected, place, isa + " " + f.name + " axis, in place") == 0);
                }
            }
        }
    }
}

TEST_CASE("stochastic rounding with the caller's words, and cut anywhere") {
    const std::size_t count = 517;
    generator g{12};
    std::vector<std::uint32_t> words(count);
    for (std::uint32_t& w : words) w = g.word();
    for (const test_format& f : all_formats()) {
        test_semantics s{"words", semantics::ocp};
        s.how.rounding = rounding::stochastic;
        s.how.random_words = words;
        const std::vector<float> x = make_inputs(data::ordinary, count, 77);
        compare(f, x, along_axis{}, scale_of(f.format), s, "random words");
        compare(f, x, along_axis{11, 47, 1}, scale_of(f.format), s, "random words");
        compare(f, x, along_axis{1, 47, 11}, scale_of(f.format), s, "random words");
        s.how.random_words = {};
        s.how.seed = 7;
        s.how.first_index = (std::uint64_t{1} << 32) - 100;  // the index passes 2^32 inside the array
        compare(f, x, along_axis{}, scale_of(f.format), s, "index past 2^32");
        compare(f, x, along_axis{1, 47, 11}, scale_of(f.format), s, "index past 2^32");
    }
}

TEST_CASE("the least chance of every magnitude, with words that only just go up or only just do not") {
    std::vector<float> x;
    std::vector<std::uint32_t> words;
    for (int e = -149; e < 128; ++e) {
        for (const float significand : {1.0f, -1.75f}) {
            for (const std::uint32_t word : {0xffffffffu, 0xfffffffeu, 0x80000000u, 0u}) {
                x.push_back(std::ldexp(significand, e));
                words.push_back(word);
            }
        }
    }
    for (const test_format& f : all_formats()) {
        test_semantics s{"extreme words", semantics::ocp};
        s.how.random_words = words;
        for (const rounding how : {rounding::stochastic, rounding::stochastic_b, rounding::stochastic_c}) {
            s.how.rounding = how;
            for (const int bits : {32, 5}) {
                s.how.stochastic_bits = bits;
                compare(f, x, along_axis{}, scale_of(f.format), s, "extreme words");
            }
        }
    }
}

TEST_CASE("block formats: every block exponent x every element exponent x ties") {
    for (const test_format& f : all_formats()) {
        const int size = block_size(f.format);
        if (size < 2 || size > 64) continue;
        const bool named = find_format(f.format) != nullptr;
        const auto block = static_cast<std::size_t>(size);
        generator g{static_cast<std::uint64_t>(size) + 99};
        std::size_t compared = 0, mismatches = 0;
        std::vector<float> x, columns;
        const int step = under_test::sampled || !named ? 5 : 1;
        for (int top = 254; top >= 0; top -= step) {
            x.clear();
            for (int e = top; e >= 0 && e > top - 40; --e) {
                // 23 tie positions and their neighbours; each block begins with an element of the largest exponent
                for (int p = 0; p < 69; ++p) {
                    if (x.size() % block == 0)
                        x.push_back(assemble(g.below(2) != 0, static_cast<std::uint32_t>(top),
                                             g.below(4) == 0 ? 0x7fffffu >> g.below(24) : g.word()));
                    const std::uint32_t position = static_cast<std::uint32_t>(p) / 3;
                    const float t = assemble(g.below(2) != 0, static_cast<std::uint32_t>(e), (g.word() << (position + 1)) | 1u << position);
                    x.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(t) + static_cast<std::uint32_t>(p % 3) - 1));
                }
            }
            const std::size_t blocks = x.size() / block;
            columns.resize(blocks * block);
            for (std::size_t i = 0; i < columns.size(); ++i) columns[i % block * blocks + i / block] = x[i];
            for (const test_semantics& s :
                 {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark},
                  test_semantics{"nvidia", semantics::nvidia}, test_semantics{"microxcaling", semantics::microxcaling}}) {
                mismatches += compare(f, x, along_axis{}, scale_of(f.format), s, "exponents x ties");
                mismatches += compare(f, columns, along_axis{1, block, blocks}, scale_of(f.format), s, "exponents x ties, columns");
                compared += x.size() + columns.size();
            }
        }
        record_evidence(f.name, "oracle: block exponent x element exponent x ties", isa, compared, mismatches);
    }
}
