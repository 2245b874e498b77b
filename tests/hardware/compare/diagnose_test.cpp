// SPDX-License-Identifier: Apache-2.0
// Plants one to three mistakes in a converter: each must be named, with where it acts, and together they must explain every difference.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "../../core/test_inputs.hpp"
#include "expected_causes.hpp"
#include "faulty_device.hpp"
#include "model.hpp"
#include "qk/compare/compare.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/qk.hpp"

namespace {

using faulty::element;

/// Returns ties and their neighbours in `binades` binades, zeros, tiny values and values beyond the range, and -0 up to a multiple of 64.
values of_every_kind(int lowest_exponent, int binades) {
    values x;
    generator g{7};
    for (int i = 0; i < 6000; ++i)
        x.push_back(tie(g, static_cast<std::uint32_t>(127 + lowest_exponent) + g.below(static_cast<std::uint32_t>(binades))));
    for (const float v :
         {0.0f, -0.0f, 449.0f, 464.0f, 465.0f, -1000.0f, 0x1p-10f, 0x1.8p-10f, -0x1p-11f, 0x1p-130f, -0x1p-140f, 70000.0f, -61440.0f})
        x.push_back(v);
    while (x.size() % 64 != 0) x.push_back(-0.0f);
    return x;
}
/// Returns rows of 96 whose blocks reach over many binades, so that some elements are subnormal.
values of_blocks(std::uint64_t seed = 3) {
    values x;
    generator g{seed};
    for (int b = 0; b < 192; ++b) {
        const std::uint32_t top = 100 + g.below(40);
        for (int k = 0; k < 32; ++k) x.push_back(g.below(20) == 0 ? (g.below(2) != 0 ? 0.0f : -0.0f) : tie(g, top - g.below(18)));
        if (b % 3 == 0) x[x.size() - 7] = std::ldexp(1.0f, static_cast<int>(top) - 126);
        if (b % 4 == 1) x.back() = std::ldexp(1.75f, static_cast<int>(top) - 125);
    }
    return x;
}
const std::vector<std::int64_t> rows{64, 96};

}  // namespace

TEST_CASE("a right converter has no cause") {
    const values x = of_every_kind(-12, 24);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    const auto r = qk::compare::examine(of("fp8_e4m3fn", shape), shape, x, faulty::each(x, faulty::e4m3));
    CHECK(r.mismatches == 0);
    CHECK(r.causes.empty());
    CHECK(!r.nearest);
    const values b = of_blocks();
    CHECK(qk::compare::examine(of("mxfp8_e4m3", rows), rows, b, faulty::blocks{32, 96, faulty::by_floor(8), faulty::e4m3}(b)).mismatches ==
          0);
    CHECK(qk::compare::examine(of("mxfp4", rows), rows, b, faulty::blocks{32, 96, faulty::by_floor(2), faulty::e2m1}(b)).mismatches == 0);
}

TEST_CASE("pairs of mistakes of a floating converter") {
    const values x = of_every_kind(-12, 24);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    const conversion c = of("fp8_e4m3fn", shape);
    const auto device = [&](const std::function<void(element&)>& plant) {
        element e = faulty::e4m3;
        plant(e);
        return faulty::each(x, e);
    };
    expect("subnormals a binade down, and no sticky bits", c, shape, x, device([](element& e) { e.subnormal_shift = 1, e.guard = 1; }),
           {{"binade too small", "subnormal"}, {"sticky bits dropped: it rounds from 1 bit", "above a tie"}});
    expect("truncation, and subnormals flushed", c, shape, x, device([](element& e) { e.mode = faulty::round_to::zero, e.flush = true; }),
           {{"truncation"}, {"subnormals are flushed", "subnormal"}});
    expect("half away, and the sign of zero lost", c, shape, x,
           device([](element& e) { e.mode = faulty::round_to::away, e.lose_zero_sign = true; }),
           {{"rounds half-away", "tie"}, {"sign of zero is lost"}});
    expect("ties to zero, NaN beyond the range", c, shape, x,
           device([](element& e) { e.mode = faulty::round_to::ties_to_zero, e.nan_beyond = true; }),
           {{"ties go toward zero", "tie"}, {"--overflow ieee", "beyond the largest number"}});
    expect("truncation of the negative alone, and subnormals a binade up", c, shape, x,
           device([](element& e) { e.mode = faulty::round_to::zero, e.subnormal_shift = -1, e.only = [](float v) { return v < 0; }; }),
           {{"truncation", "the input is negative"}, {"binade too large"}});
    expect("three: flushed, two guard bits, NaN beyond", c, shape, x,
           device([](element& e) { e.flush = true, e.guard = 2, e.nan_beyond = true; }),
           {{"flushed"}, {"it rounds from 2 bits"}, {"--overflow ieee", "beyond"}});
    expect("three: floor, lost signs of zero, binade down", c, shape, x,
           device([](element& e) { e.mode = faulty::round_to::floor, e.lose_zero_sign = true, e.subnormal_shift = 1; }),
           {{"rounds down"}, {"sign of zero"}, {"binade too small"}});
    values rounded_twice;
    for (const float v : x) rounded_twice.push_back(qk::widen(qk::narrow<qk::bfloat16>(v)));
    element flushing = faulty::e4m3;
    flushing.flush = flushing.flush_to_positive = true;
    expect("double rounding, and flushed to +0", c, shape, x, faulty::each(rounded_twice, flushing),
           {{"bfloat16 first"}, {"flushed to +0"}});
}

TEST_CASE("pairs of mistakes of a block converter") {
    const values x = of_blocks();
    const auto device = [&](element e, const std::function<int(const values&)>& exponent, const std::function<void(element&)>& plant) {
        plant(e);
        return faulty::blocks{32, 96, exponent, e}(x);
    };
    expect("an MX encoder: subnormals a binade down, no sticky bits", of("mxfp8_e4m3", rows), rows, x,
           device(faulty::e4m3, faulty::by_floor(8), [](element& e) { e.subnormal_shift = 1, e.guard = 1; }),
           {{"binade too small", "subnormal"}, {"sticky bits dropped: it rounds from 1 bit", "above a tie"}});
    expect("scales rounded up, half away", of("mxfp4", rows), rows, x,
           device(faulty::e2m1, faulty::by_ceil(2), [](element& e) { e.mode = faulty::round_to::away; }),
           {{"rule 'ceil'"}, {"rounds half-away"}});
    expect("scales a power too high, truncation", of("mxfp6_e3m2", rows), rows, x,
           device(faulty::e3m2, faulty::by_floor(3), [](element& e) { e.mode = faulty::round_to::zero; }),
           {{"a power of two too high"}, {"truncation"}});
    expect("the last of a block left out, truncation", of("mxfp8_e5m2", rows), rows, x,
           device(
               faulty::e5m2, [](const values& v) { return faulty::by_floor(15)(values(v.begin(), v.end() - 1)); },
               [](element& e) { e.mode = faulty::round_to::zero; }),
           {{"last value is left out"}, {"truncation"}});
    values y = device(faulty::e4m3, faulty::by_floor(8), [](element& e) { e.mode = faulty::round_to::away, e.lose_zero_sign = true; });
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % 96 >= 64) y[i] = x[i];
    }
    expect("three: half away, signs of zero, the last block of a row not converted", of("mxfp8_e4m3", rows), rows, x, y,
           {{"rounds half-away"}, {"sign of zero"}, {"unconverted", "the last of its row"}});
    // Blocks along the wrong axis of a matrix, and ties that go toward zero.
    element e = faulty::e2m1;
    e.mode = faulty::round_to::ties_to_zero;
    expect("another axis, ties to zero", of("mxfp4", rows, 0), rows, x, faulty::blocks{32, 96, faulty::by_floor(2), e}(x),
           {{"axis 1, not 0"}, {"ties go toward zero"}});
}

TEST_CASE("integers, and other systems") {
    const values x = [] {
        values v = make_inputs(data::ordinary, 4096, 5);
        for (std::size_t i = 0; i < v.size(); ++i)
            v[i] = i % 5 == 0 ? static_cast<float>(static_cast<int>(i % 256) - 128) * 0.0625f + 0.03125f : v[i] * 4;
        return v;
    }();
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    conversion c = of("int8", shape);
    c.given = conversion::granularity::tensor;
    c.scale = {0.0625f};
    c.zero_point = {3};
    values y;
    for (const float v : x) {
        const double q = std::round(static_cast<double>(v) / 0.0625) + 3;
        y.push_back(static_cast<float>(static_cast<std::int8_t>(static_cast<std::int64_t>(q)) - 3) * 0.0625f);
    }
    expect("half away, wrapping", c, shape, x, y, {{"rounds half-away", "tie"}, {"wrap around"}});
    values special = of_blocks(11);
    special[40] = std::numeric_limits<float>::infinity();
    special[500] = std::numeric_limits<float>::quiet_NaN();
    values system(special.size());
    qk::semantics how = qk::semantics::quark;
    how.rounding = qk::rounding::half_away;
    qk::fake_quantize<qk::mxfp8_e4m3>(special, system, qk::along_axis{64, 96, 1}, how);
    expect("another system's rules, half away", of("mxfp8_e4m3", rows), rows, special, system,
           {{"--semantics quark"}, {"rounds half-away"}});
}

TEST_CASE("what no known mistake explains has a nearest one, or nothing") {
    const values x = of_every_kind(-12, 24);
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    values y = faulty::each(x, faulty::e4m3);
    generator g{99};
    for (std::size_t i = 0; i < y.size(); i += 7) y[i] += static_cast<float>(g.below(64)) + 1.0f;  // noise
    const auto r = qk::compare::examine(of("fp8_e4m3fn", shape), shape, x, y);
    INFO(text_of(r));
    if (std::getenv("QK_SHOW") != nullptr) MESSAGE(text_of(r));
    CHECK(r.unexplained > r.mismatches / 2);
    CHECK((r.causes.empty() || !r.nearest));
    std::size_t explained = 0;
    for (const auto& k : r.causes) explained += k.explains;
    CHECK(explained < r.mismatches / 2);
    // Truncation, and noise: on every ninth value it leaves a quarter of the differences, so truncation is the nearest and no cause; on
    // every fortieth it is the cause, and says what it leaves.
    element e = faulty::e4m3;
    e.mode = faulty::round_to::zero;
    const auto noisy = [&](std::size_t every) {
        y = faulty::each(x, e);
        for (std::size_t i = 0; i < y.size(); i += every) y[i] += static_cast<float>(g.below(64)) + 1.0f;
        const auto part = qk::compare::examine(of("fp8_e4m3fn", shape), shape, x, y);
        INFO(text_of(part));
        if (std::getenv("QK_SHOW") != nullptr) MESSAGE(text_of(part));
        CHECK(part.unexplained > 0);
        return part;
    };
    const auto nearest = noisy(9);
    CHECK(nearest.causes.empty());
    REQUIRE(nearest.nearest);
    CHECK(nearest.nearest->sentence.find("truncation") != std::string::npos);
    CHECK(nearest.nearest->explains > nearest.mismatches * 2 / 3);
    const auto part = noisy(40);
    REQUIRE(part.causes.size() == 1);
    CHECK(part.causes.front().sentence.find("truncation") != std::string::npos);
    CHECK(part.causes.front().explains + part.unexplained == part.mismatches);
}

TEST_CASE("the model of a converter is the oracle where its mistake has no consequence") {
    const auto known = qk::compare::known_mistakes();
    int ties = 0;
    while (std::string(known[static_cast<std::size_t>(ties)].sentence).find("ties go toward zero") == std::string::npos) ++ties;
    values x = make_inputs(data::ordinary, 64 * 96, 21);
    generator g{4};
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = std::ldexp(std::bit_cast<float>(std::bit_cast<std::uint32_t>(x[i]) | 1u),
                          static_cast<int>(g.below(24)) - 12);  // no tie of any format
        if (g.below(400) == 0)
            x[i] = i % 3 == 0 ? -0.0f : i % 3 == 1 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        if (g.below(50) == 0) x[i] = std::bit_cast<float>((g.word() & 0x807fffffu) | 1u);
    }
    std::vector<std::size_t> every(x.size());
    for (std::size_t i = 0; i < every.size(); ++i) every[i] = i;
    for (const qk::named_format& f : qk::catalogue) {
        conversion c = of(std::string(f.name).c_str(), rows);
        if (!qk::is_block_format(c.format)) {
            c.given = conversion::granularity::tensor;
            c.scale = {qk::is_integer_format(c.format) ? 0.37f : 0.25f};  // a power of two: quotients of floats are no ties
            if (qk::is_integer_format(c.format)) c.zero_point = {1};
        }
        for (const qk::rounding r : {qk::rounding::half_even, qk::rounding::toward_zero, qk::rounding::up, qk::rounding::down}) {
            c.how.rounding = r;
            values expected(x.size()), y(x.size());
            qk::compare::expected_values(c, x, expected);
            const qk::compare::problem p{c, rows, x, expected, expected};
            qk::compare::predictor(p, every).predict({ties}, every, y);
            std::size_t wrong = 0, first = 0;
            for (std::size_t i = x.size(); i-- > 0;) {
                if (!qk::compare::same_value(y[i], expected[i])) ++wrong, first = i;
            }
            CHECK_MESSAGE(wrong == 0, std::string(f.name), " ", std::string(qk::to_text(r)), ": ", wrong, " differ, at ", first, " input ",
                          x[first], " expected ", expected[first], " model ", y[first]);
        }
    }
}

TEST_CASE("flags") {
    const values x{0.0f,
                   1.0f,
                   1.03f,
                   500.0f,
                   -1e9f,
                   0x1p-12f,
                   0x1.8p-8f,
                   std::numeric_limits<float>::infinity(),
                   std::numeric_limits<float>::quiet_NaN()};
    const std::vector<std::int64_t> shape{9};
    conversion c = of("fp8_e4m3fn", shape);
    values y(x.size());
    qk::compare::fake_quantize(c, x, y);
    auto n = qk::compare::count_flags(c, x, y);
    CHECK(n.values == 9);
    CHECK(n.overflow == 2);
    CHECK(n.saturation == 3);
    CHECK(n.underflow == 1);  // 2^-12; 1.5 * 2^-8 is a subnormal, exactly
    CHECK(n.inexact == 4);
    CHECK(n.nan == 1);
    CHECK(n.invalid == 0);
    c.how.overflow = qk::overflow_rule::ieee;
    qk::compare::fake_quantize(c, x, y);
    n = qk::compare::count_flags(c, x, y);
    CHECK(n.overflow == 2);
    CHECK(n.saturation == 0);
    CHECK(n.nan == 4);
    CHECK(n.invalid == 3);
    c = of("int8", shape);
    qk::compare::fake_quantize(c, x, y);
    n = qk::compare::count_flags(c, x, y);
    CHECK(n.overflow == 2);
    CHECK(n.saturation == 3);
    CHECK(n.underflow == 2);
}
