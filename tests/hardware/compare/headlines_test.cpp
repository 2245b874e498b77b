// SPDX-License-Identifier: Apache-2.0
// A headline claims what was measured: its causes explain four fifths of the differences and make none, and each explains some. These
// devices were once given causes that left more differences than there were.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "../../core/test_inputs.hpp"
#include "diagnose.hpp"
#include "expected_causes.hpp"
#include "faulty_device.hpp"
#include "qk/compare/decoder.hpp"
#include "qk/option_names.hpp"
#include "qk/qk.hpp"

namespace {

/// Compares, checks that the headline is honest, and returns it. Differences that causes make are counted by predicting every value.
qk::compare::report honest(const std::string& name, const conversion& c, const std::vector<std::int64_t>& shape, const values& x,
                           const values& device) {
    values expected(x.size());
    qk::compare::expected_values(c, x, expected);
    const qk::compare::problem p{c, shape, x, expected, device};
    const qk::compare::properties all(p, qk::compare::units_of(c, x));
    qk::compare::report r;
    r.values = x.size();
    for (std::size_t i = 0; i < x.size(); ++i) r.mismatches += !qk::compare::same_value(expected[i], device[i]);
    const values y = qk::compare::predicted(p, all, qk::compare::diagnose(p, all, r));
    std::size_t left = 0, made = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (qk::compare::same_value(y[i], device[i])) continue;
        if (qk::compare::same_value(expected[i], device[i])) ++made;
        else ++left;
    }
    INFO(name, ": ", to_text(r));
    if (std::getenv("QK_SHOW") != nullptr) MESSAGE(name, ": ", to_text(r));
    REQUIRE(r.mismatches > 0);
    CHECK(made == 0);
    CHECK(left == r.unexplained);
    if (!r.causes.empty()) CHECK(5 * left <= r.mismatches);
    for (const auto& k : r.causes) CHECK(k.explains + k.keeps > 0);
    for (const auto& k : r.causes) CHECK(k.makes == 0);
    CHECK((r.causes.empty() || !r.nearest));
    const std::string text = to_text(r);
    CHECK(text.find("explains 0 of") == std::string::npos);
    CHECK(text.starts_with(r.causes.empty() ? "no known mistake explains it\n" : "likely cause"));
    return r;
}

/// Returns blocks of 32 whose elements lie in many binades.
values of_lanes(std::uint64_t seed) {
    values x;
    generator g{seed};
    for (int b = 0; b < 256; ++b) {
        const std::uint32_t top = 100 + g.below(40);
        for (int k = 0; k < 32; ++k) x.push_back(tie(g, top - g.below(16)));
    }
    return x;
}
const std::vector<std::int64_t> lanes{256, 32};

}  // namespace

TEST_CASE("stochastic rounding: truncation, half-even and a wrong seed are not taken for a subnormal's shift") {
    const values x = of_lanes(3);
    const std::vector<std::int64_t> shape{8192};
    conversion c = of("fp8_e5m2", shape);
    c.how.rounding = qk::rounding::stochastic;
    c.how.seed = 3;
    for (const qk::rounding how : {qk::rounding::toward_zero, qk::rounding::half_even, qk::rounding::stochastic}) {
        conversion other = c;
        other.how.rounding = how;
        other.how.seed = 4;
        values device(x.size());
        qk::compare::fake_quantize(other, x, device);
        const auto r = honest(std::string(qk::to_text(how)), c, shape, x, device);
        for (const auto& k : r.causes) CHECK(k.sentence.find("subnormal") == std::string::npos);
    }
}

TEST_CASE("a device that no mistake explains has none, and says where it differs and what comes nearest") {
    const values x = of_lanes(5);
    const conversion c = of("mxfp8_e4m3", lanes);
    const faulty::blocks right{32, 32, faulty::by_floor(8), faulty::e4m3};
    values y = right(x);
    // Elements of lane 7 are multiplied by 1.25 of their neighbour's magnitude, and lane 20 by 3 where its sign is negative.
    values device = y;
    for (std::size_t b = 0; b < x.size(); b += 32) {
        device[b + 7] = y[b + 8] * 1.25f;
        if (y[b + 20] < 0) device[b + 20] = 3 * y[b + 20];
    }
    const auto r = honest("two lanes", c, lanes, x, device);
    CHECK(r.causes.empty());
    CHECK(r.unexplained == r.mismatches);
    REQUIRE(!r.where.empty());
    CHECK(r.where.front().words == "the position in the block is 7");
    CHECK(to_text(r).find(" of the ") != std::string::npos);
    // Truncation explains half of this: no cause, but the nearest.
    faulty::element e = faulty::e4m3;
    e.mode = faulty::round_to::zero;
    const values truncated = faulty::blocks{32, 32, faulty::by_floor(8), e}(x);
    generator g{8};
    device = truncated;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (g.below(3) == 0) device[i] = truncated[i] * (1.0f + static_cast<float>(g.below(64)) / 16);
    }
    const auto part = honest("truncation and noise", c, lanes, x, device);
    CHECK(part.causes.empty());
    REQUIRE(part.nearest);
    CHECK(part.nearest->sentence.find("truncation") != std::string::npos);
    CHECK(part.nearest->explains > part.mismatches / 4);
    CHECK(part.nearest->alone == part.nearest->explains);
}

TEST_CASE("a cause says what it explains alone, and what nothing else explains") {
    const values x = of_lanes(7);
    faulty::element e = faulty::e4m3;
    e.mode = faulty::round_to::zero;
    const values device = faulty::blocks{32, 32, faulty::by_ceil(8), e}(x);
    const auto r = honest("ceil, truncation", of("mxfp8_e4m3", lanes), lanes, x, device);
    REQUIRE(r.causes.size() == 2);
    CHECK(r.unexplained == 0);
    for (const auto& k : r.causes) CHECK(k.alone < r.mismatches);
    CHECK(r.causes[0].explains + r.causes[1].explains > r.causes[0].alone + r.causes[1].alone);
    CHECK(to_text(r).find(" alone)") != std::string::npos);
}

TEST_CASE("a cause that explains nothing new says what it keeps right") {
    const values x = of_lanes(9);
    faulty::element e = faulty::e4m3;
    e.mode = faulty::round_to::zero;
    values rounded;
    for (const float v : x) rounded.push_back(qk::widen(qk::narrow<qk::bfloat16>(v)));  // truncation drops less of these
    const auto r =
        honest("bfloat16 first, truncation", of("mxfp8_e4m3", lanes), lanes, x, faulty::blocks{32, 32, faulty::by_floor(8), e}(rounded));
    REQUIRE(r.causes.size() == 2);
    CHECK(r.unexplained == 0);
    CHECK(r.causes[1].sentence.find("bfloat16") != std::string::npos);
    CHECK(r.causes[1].explains < r.causes[1].keeps);
}

TEST_CASE("stochastic rounding: what is wrong with the random words is told from them") {
    const values x = of_lanes(11);
    generator g{77};
    std::vector<std::uint32_t> words(x.size());
    for (std::uint32_t& w : words) w = g.word();
    const auto device = [&](const char* format, bool own_words, const std::string& sentence,
                            const std::function<void(conversion&)>& change) {
        conversion c = of(format, lanes);
        c.how.rounding = qk::rounding::stochastic;
        c.how.seed = 3;
        if (own_words) c.use_words(words);
        conversion other = c;
        change(other);
        values y(x.size());
        qk::compare::fake_quantize(other, x, y);
        const auto r = honest(sentence, c, lanes, x, y);
        CHECK(r.unexplained == 0);
        REQUIRE(r.causes.size() == 1);
        CHECK_MESSAGE(r.causes[0].sentence.find(sentence) != std::string::npos, r.causes[0].sentence);
    };
    const auto changed = [&](const std::function<std::uint32_t(std::size_t)>& word) {
        return [&words, word](conversion& c) {
            std::vector<std::uint32_t> w(words.size());
            for (std::size_t i = 0; i < w.size(); ++i) w[i] = word(i);
            c.use_words(std::move(w));
        };
    };
    for (const char* format : {"fp8_e5m2", "mxfp8_e4m3"}) {
        device(format, true, "truncation", [](conversion& c) { c.how.rounding = qk::rounding::toward_zero; });
        device(format, true, "half-even", [](conversion& c) { c.how.rounding = qk::rounding::half_even; });
        device(format, true, "one value late", changed([&](std::size_t i) { return words[i == 0 ? 0 : i - 1]; }));
        device(format, true, "8 neighbouring values share", changed([&](std::size_t i) { return words[i / 8 * 8]; }));
        device(format, true, "only the upper 8 bits", changed([&](std::size_t i) { return words[i] & 0xff000000u; }));
        device(format, true, "inverted", changed([&](std::size_t i) { return ~words[i]; }));
        device(format, false, "those of seed 21", [](conversion& c) { c.how.seed = 21; });
    }
}

TEST_CASE("a mistake in two lanes is the same mistake twice") {
    const values x = of_lanes(13);
    const faulty::blocks right{32, 32, faulty::by_floor(2), faulty::e2m1};
    faulty::element e = faulty::e2m1;
    e.mode = faulty::round_to::zero;
    const values y = right(x), truncated = faulty::blocks{32, 32, faulty::by_floor(2), e}(x);
    values device = y;
    for (std::size_t i = 0; i < x.size(); ++i)
        if (i % 32 == 9 || i % 32 == 25) device[i] = truncated[i];
    const auto r = honest("truncation in lanes 9 and 25", of("mxfp4", lanes), lanes, x, device);
    REQUIRE(r.causes.size() == 2);
    CHECK(r.unexplained == 0);
    for (const auto& k : r.causes) CHECK(k.sentence.find("truncation") != std::string::npos);
    CHECK(r.causes[0].where.words != r.causes[1].where.words);
}

TEST_CASE("a wrong scale is not explained by some values of its blocks") {
    const values x = of_lanes(15);
    const faulty::blocks right{32, 32, faulty::by_floor(8), faulty::e4m3};
    const faulty::blocks high{32, 32, [](const values& v) { return faulty::by_floor(8)(v) + 1; }, faulty::e4m3};
    const values y = right(x), wrong = high(x);
    values device = y;
    for (std::size_t i = 0; i < x.size(); ++i)
        if (qk::mix_bits(static_cast<std::uint32_t>(i / 32)) % 2 == 1) device[i] = wrong[i];
    const auto r = honest("some blocks' scales are one too high", of("mxfp8_e4m3", lanes), lanes, x, device);
    for (const auto& k : r.causes) CHECK_MESSAGE(!k.restricted, k.sentence);
}

TEST_CASE("a mistake of every fifth block is placed there") {
    const values x = of_lanes(16);
    const values y = faulty::blocks{32, 32, faulty::by_floor(8), faulty::e4m3}(x);
    values device = y;
    for (std::size_t i = 0; i < x.size(); ++i)
        if (i / 32 % 5 == 3) device[i] = y[i ^ 1];
    const auto r = honest("neighbours swapped in every fifth block", of("mxfp8_e4m3", lanes), lanes, x, device);
    REQUIRE(r.causes.size() == 1);
    CHECK(r.unexplained == 0);
    CHECK(r.causes[0].sentence.find("neighbouring values are swapped") == 0);
    CHECK(r.causes[0].where.words == "the block is one of every 5, from block 3 on");
}

TEST_CASE("values that pass a register of 13 mantissa bits are rounded twice") {
    values x;
    generator g{17};
    for (int i = 0; i < 20000; ++i) {  // ties of fp16, and what lies above and below them by 2^-14 to 2^-23 of a value
        const std::uint32_t tie_of_fp16 = g.below(1024) << 13 | 0x1000u, near = 1u << g.below(10), side = g.below(3);
        x.push_back(assemble(g.below(2) != 0, 112 + g.below(20),
                             side == 0   ? tie_of_fp16
                             : side == 1 ? tie_of_fp16 + near
                                         : tie_of_fp16 - near));
    }
    values device;
    for (const float v : x) device.push_back(qk::widen(qk::narrow<qk::float16>(static_cast<float>(faulty::element{13, -126, 1e38}(v, 1)))));
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    const auto r = honest("13 mantissa bits first", of("fp16", shape), shape, x, device);
    REQUIRE(r.causes.size() == 1);
    CHECK(r.unexplained == 0);
    CHECK(r.causes[0].sentence.find("double rounding") == 0);
}

TEST_CASE("a decoder's lanes") {
    generator g{19};
    qk::compare::coded_values codes;
    for (int b = 0; b < 64; ++b) {
        for (int k = 0; k < 32; ++k) codes.elements.push_back(g.below(16));
        codes.scales.push_back(120 + g.below(16));
    }
    const conversion c = of("mxfp4", {64, 32});
    const values right = qk::compare::decoded(c, codes);
    const auto named = [&](const std::string& words, const std::function<std::size_t(std::size_t)>& lane) {
        values device(right.size());
        for (std::size_t i = 0; i < right.size(); ++i) device[i] = right[i / 32 * 32 + lane(i % 32)];
        const auto r = qk::compare::examine_decoder(c, codes, device);
        INFO(to_text(r));
        REQUIRE(r.causes.size() == 1);
        CHECK(r.unexplained == 0);
        CHECK(r.causes[0].sentence.find(words) != std::string::npos);
    };
    named("those at positions 2 and 19", [](std::size_t k) { return k == 2 ? 19 : k == 19 ? 2 : k; });
    named("the one 5 places on", [](std::size_t k) { return (k + 5) % 32; });
    named("position 4 has the value of position 3", [](std::size_t k) { return k == 4 ? 3 : k; });
}
