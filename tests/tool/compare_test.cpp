// SPDX-License-Identifier: Apache-2.0
// `qk compare` on converters with one planted mistake each: it must find the mistake, classify it, and name the cause.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "../core/test_inputs.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/qk.hpp"
#include "run_tool.hpp"

namespace {

using values = std::vector<float>;

/// An element converter that shares no code with qk: rounds to `mantissa` bits, with subnormals below 2^least_exponent, and saturates.
struct converter {
    int mantissa, least_exponent;
    double largest;
    /// Rounds a magnitude counted in grid steps: `floor` is its integer part, `rest` its fraction.
    std::function<double(double floor, double rest)> round;
    std::function<double(double magnitude)> finish = [](double m) { return m; };
    double operator()(double x) const {
        if (x != x) return x;
        const double a = std::abs(x);
        if (a == 0) return x;
        const int e = std::isinf(a) ? 1000 : std::max(std::ilogb(a), least_exponent);
        const double step = std::ldexp(1.0, e - mantissa), q = a / step;
        const double m = std::isinf(a) ? largest : std::min(round(std::floor(q), q - std::floor(q)) * step, largest);
        return std::copysign(finish(m), x);
    }
};

double half_even(double floor, double rest) { return rest > 0.5 || (rest == 0.5 && std::fmod(floor, 2) != 0) ? floor + 1 : floor; }

values through(const values& x, const std::function<double(double)>& f) {
    values y;
    for (const float v : x) y.push_back(static_cast<float>(f(v)));
    return y;
}

/// Converts blocks of `block` values, each scaled by 2^(exponent_of(amax) - top).
values through_blocks(const values& x, std::size_t block, int top, const std::function<int(float)>& exponent_of, const converter& element) {
    values y;
    for (std::size_t b = 0; b < x.size(); b += block) {
        float amax = 0;
        for (std::size_t k = b; k < b + block; ++k) amax = std::max(amax, std::abs(x[k]));
        const int s = amax == 0 ? -127 : std::clamp(exponent_of(amax) - top, -127, 127);
        for (std::size_t k = b; k < b + block; ++k)
            y.push_back(static_cast<float>(std::ldexp(element(std::ldexp(static_cast<double>(x[k]), -s)), s)));
    }
    return y;
}

values every_kind() {
    values x;
    generator g{7};
    for (int i = 0; i < 4096; ++i) x.push_back(tie(g, 112 + g.below(26)));
    for (const float v : {0.0f, -0.0f, 449.0f, 464.0f, 465.0f, -1000.0f, 0x1p-10f, 0x1.8p-10f, -0x1p-11f}) x.push_back(v);
    while (x.size() % 64 != 0) x.push_back(1.0f);
    return x;
}

struct verdict {
    int status;
    nlohmann::json report;
    /// Returns the sentences of all causes, and of the alternatives that explain as much.
    std::string cause() const {
        std::string all;
        for (const auto& k : report["causes"]) all += k["sentence"].get<std::string>() + "; ";
        for (const auto& k : report["alternatives"]) all += k.get<std::string>() + "; ";
        return all;
    }
};

verdict judge(const values& x, const values& device, std::vector<std::string> options, std::vector<std::int64_t> shape = {}) {
    const qk_test::scratch place;
    if (shape.empty()) shape = {static_cast<std::int64_t>(x.size())};
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>(shape, x));
    qk::graph::write_npy(place("d.npy"), qk::graph::make_tensor<float>(shape, device));
    std::vector<std::string> command{"compare", place("x.npy"), place("d.npy"), "--json", "--format"};
    command.insert(command.end(), options.begin(), options.end());
    const auto done = qk_test::run_tool(command);
    REQUIRE_MESSAGE(done.status != 2, done.err);
    return {done.status, nlohmann::json::parse(done.out)};
}

void expect(const std::string& bug, const verdict& v, const std::string& words, const std::string& expected_class) {
    INFO(bug, ": ", v.report.dump(1));
    CHECK(v.status == 1);
    CHECK(v.report["mismatches"].get<std::size_t>() > 0);
    CHECK_MESSAGE(v.cause().find(words) != std::string::npos, bug, " was taken for: ", v.cause());
    CHECK_MESSAGE(v.report["classes"].contains(expected_class), bug, " lacks class ", expected_class);
    CHECK(v.report["unexplained"] == 0);
    CHECK(v.report["cause"] == v.report["causes"][0]["sentence"]);
    CHECK(!v.report["causes"][0]["where"].get<std::string>().empty());
    CHECK(v.report["causes"][0]["explains"].get<std::size_t>() > 0);
}

}  // namespace

TEST_CASE("a right converter passes") {
    const values x = every_kind();
    const verdict v = judge(x, through(x, converter{3, -6, 448, half_even}), {"fp8_e4m3fn"});
    CHECK(v.status == 0);
    CHECK(v.report["mismatches"] == 0);
    CHECK(v.report["coverage"]["ties"].get<int>() > 50);
}

TEST_CASE("planted mistakes of an fp8_e4m3fn converter are named") {
    const values x = every_kind();
    const auto fp8 = [&](const converter& c) { return judge(x, through(x, c), {"fp8_e4m3fn"}); };
    converter c{3, -6, 448, half_even};
    c.finish = [](double m) { return m < 0x1p-6 ? m / 2 : m; };
    expect("subnormal a binade too small", fp8(c), "binade too small", "one_code");
    c.finish = [](double m) { return m < 0x1p-6 ? 0 : m; };
    expect("flushed subnormals", fp8(c), "flushed to zero", "underflow");
    c = {3, -6, 448, [](double f, double rest) { return std::fmod(f, 2) != 0 ? f : half_even(f, rest); }};
    expect("odd mantissas truncated", fp8(c), "odd mantissas truncated", "one_code");
    c.round = [](double f, double rest) { return rest > 0.5 ? f + 1 : f; };
    expect("ties toward zero", fp8(c), "ties go toward zero", "tie");
    c.round = [](double f, double rest) { return half_even(f, std::floor(rest * 2) / 2); };
    expect("sticky bits dropped", fp8(c), "sticky bits dropped", "one_code");
    c.round = [](double f, double rest) { return half_even(f, std::floor(rest * 4) / 4); };
    expect("sticky bits dropped behind the second bit", fp8(c), "sticky bits dropped: it rounds from 2 bits", "one_code");
    c.round = [](double f, double) { return f; };
    expect("truncation", fp8(c), "truncation", "one_code");
    c.round = [](double f, double rest) { return rest >= 0.5 ? f + 1 : f; };
    expect("half away", fp8(c), "rounds half-away", "tie");
    c.round = half_even;
    c.finish = [](double m) { return m; };
    values y = through(x, c);
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::abs(x[i]) > 464) y[i] = std::numeric_limits<float>::quiet_NaN();
    }
    expect("overflow to NaN", judge(x, y, {"fp8_e4m3fn"}), "ieee", "nan");
    y = through(x, c);
    for (float& v : y) v = v == 0 ? 0.0f : v;
    expect("sign of zero", judge(x, y, {"fp8_e4m3fn"}), "sign of zero", "zero_sign");
    y = values(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<float>(c(qk::widen(qk::narrow<qk::bfloat16>(x[i]))));
    expect("double rounding", judge(x, y, {"fp8_e4m3fn"}), "bfloat16 first", "one_code");
}

TEST_CASE("planted mistakes of block converters are named") {
    values x = make_inputs(data::ordinary, 2048, 3);
    for (std::size_t b = 0; b < x.size(); b += 128) x[b + 5] = std::nextafter(std::ldexp(1.0f, 3 + static_cast<int>(b / 128)), 0.0f);
    const auto from_bits = [](float a) { return std::ilogb(a); };
    const converter e4m3{3, -6, 448, half_even}, e2m1{1, 0, 6, half_even};
    CHECK(judge(x, through_blocks(x, 32, 8, from_bits, e4m3), {"mxfp8_e4m3"}).status == 0);
    expect("scale from log2",
           judge(x,
                 through_blocks(
                     x, 32, 8, [](float a) { return static_cast<int>(std::floor(std::log2(a))); }, e4m3),
                 {"mxfp8_e4m3"}),
           "float32 logarithm", "one_code");
    values powers = x;
    for (std::size_t b = 0; b < powers.size(); b += 32) powers[b] = std::ldexp(1.0f, 4 + static_cast<int>(b / 32) % 20);
    expect("scale from log",
           judge(powers,
                 through_blocks(
                     powers, 32, 8, [](float a) { return static_cast<int>(std::floor(std::log(a) / std::log(2.0f))); }, e4m3),
                 {"mxfp8_e4m3"}),
           "float32 logarithm", "one_code");
    expect("scale rounded up",
           judge(x,
                 through_blocks(
                     x, 32, 2, [](float a) { return static_cast<int>(std::ceil(std::log2(static_cast<double>(a)))); }, e2m1),
                 {"mxfp4"}),
           "rule 'ceil'", "block_scale");
    expect("bias of the scale", judge(x, through(through_blocks(x, 32, 2, from_bits, e2m1), [](double v) { return v * 2; }), {"mxfp4"}),
           "factor of 2", "block_shifted");
    converter c = e2m1;
    c.round = [](double f, double) { return f; };
    expect("truncated elements", judge(x, through_blocks(x, 32, 2, from_bits, c), {"mxfp4"}), "truncation", "one_code");
    // Block float has 7 bits of magnitude; here the largest value of a block rounds past 127.
    const converter bfp{60, -6, 127.0 / 64, half_even};
    const auto fixed = [&](int extra) {
        values y;
        for (std::size_t b = 0; b < x.size(); b += 8) {
            float amax = 0;
            for (std::size_t k = b; k < b + 8; ++k) amax = std::max(amax, std::abs(x[k]));
            int e = std::ilogb(amax);
            const auto quantize = [&](float v) { return std::nearbyint(std::ldexp(static_cast<double>(v), 6 - e)); };
            if (extra != 0) {
                for (std::size_t k = b; k < b + 8; ++k) {
                    if (quantize(x[k]) > 127) {
                        ++e;
                        break;
                    }
                }
            }
            for (std::size_t k = b; k < b + 8; ++k) {
                const double q = std::clamp(quantize(x[k]), extra != 0 ? -128.0 : -127.0, 127.0);
                y.push_back(
                    static_cast<float>(std::ldexp(q == 0 && extra == 0 ? std::copysign(0.0, static_cast<double>(x[k])) : q + 0.0, e - 6)));
            }
        }
        return y;
    };
    CHECK(judge(x, fixed(0), {"bfp16"}).status == 0);
    values bumped = fixed(1);
    expect("bumped exponent", judge(x, bumped, {"bfp16"}), "bumped exponent", "block_scale");
    // A matrix whose blocks should run down the columns but run along the rows.
    values across(x.size());
    qk::fake_quantize<qk::mxfp4>(x, across);
    expect("blocks along the wrong axis", judge(x, across, {"mxfp4", "--axis", "0"}, {32, 64}), "axis 1, not 0", "block_scale");
}

TEST_CASE("two mistakes at once: the listing opens with them, then where, then examples") {
    const values x = every_kind();
    converter c{3, -6, 448, [](double f, double rest) { return half_even(f, std::floor(rest * 2) / 2); }};
    values y = through(x, c);
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::abs(x[i]) < 0x1p-6f) y[i] = static_cast<float>(c(static_cast<double>(x[i]) / 2));
    }
    const verdict v = judge(x, y, {"fp8_e4m3fn"});
    INFO(v.report.dump(1));
    CHECK(v.status == 1);
    REQUIRE(v.report["causes"].size() == 2);
    CHECK(v.cause().find("binade too small") != std::string::npos);
    CHECK(v.cause().find("sticky bits dropped: it rounds from 1 bit") != std::string::npos);
    CHECK(v.report["unexplained"] == 0);
    for (const auto& k : v.report["causes"]) {
        const bool subnormal = k["sentence"].get<std::string>().find("binade") != std::string::npos;
        CHECK(k["where"].get<std::string>().find(subnormal ? "subnormal" : "above a tie") != std::string::npos);
    }
    CHECK(v.report["flags"]["inexact"].get<int>() > 1000);

    const qk_test::scratch place;
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>(shape, x));
    qk::graph::write_npy(place("d.npy"), qk::graph::make_tensor<float>(shape, y));
    const auto text = qk_test::run_tool({"compare", place("x.npy"), place("d.npy"), "--format", "fp8_e4m3fn"});
    CHECK(text.status == 1);
    CHECK(text.out.starts_with("likely causes, together (they explain every difference):\n"));
    const auto at = [&](const char* words) { return text.out.find(words); };
    CHECK(at("binade too small") < at("values differ"));
    CHECK(at("values differ") < text.out.rfind("\n  where "));
    CHECK(at("values differ") < at("one_code:"));
    CHECK(at("one_code:") < at("the input exercised"));
    // If the only mistake is truncation, the report does not claim wrong scales.
    c = {3, -6, 448, [](double f, double) { return f; }};
    qk::graph::write_npy(place("d.npy"), qk::graph::make_tensor<float>(shape, through(x, c)));
    const auto one = qk_test::run_tool({"compare", place("x.npy"), place("d.npy"), "--format", "fp8_e4m3fn"});
    CHECK(one.out.starts_with("likely cause: truncation"));
    CHECK(one.out.find("scale is wrong") == std::string::npos);
}

TEST_CASE("convert counts what happened on the way") {
    const qk_test::scratch place;
    const values x{0.0f, 1.0f, 1.03f, 500.0f, -1e9f, 0x1p-12f, std::numeric_limits<float>::quiet_NaN(), 2.0f};
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({8}, x));
    const auto done = qk_test::run_tool({"convert", place("x.npy"), place("y.npy"), "--format", "fp8_e4m3fn", "--count"});
    REQUIRE(done.status == 0);
    const auto n = nlohmann::json::parse(done.out);
    CHECK(n["values"] == 8);
    CHECK(n["overflow"] == 2);
    CHECK(n["saturation"] == 2);
    CHECK(n["underflow"] == 1);
    CHECK(n["inexact"] == 4);
    CHECK(n["nan"] == 1);
    CHECK(n["invalid"] == 0);
    CHECK(qk_test::run_tool({"convert", place("x.npy"), place("y.npy"), "--format", "fp8_e4m3fn"}).out.empty());
}

TEST_CASE("packed device output") {
    const values x = make_inputs(data::ordinary, 256, 9);
    std::vector<std::byte> packed(qk::packed_bytes<qk::mxfp4>(x.size()));
    qk::encode<qk::mxfp4>(x, packed);
    const qk_test::scratch place;
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({256}, x));
    const auto write = [&] {
        std::ofstream(place("d.bin"), std::ios::binary)
            .write(reinterpret_cast<const char*>(packed.data()), static_cast<std::streamsize>(packed.size()));
    };
    write();
    const std::vector<std::string> command{"compare", place("x.npy"), place("d.bin"), "--packed", "--format", "mxfp4", "--json"};
    CHECK(qk_test::run_tool(command).status == 0);
    packed[130] = static_cast<std::byte>(std::to_integer<int>(packed[130]) + 1);  // changes the scale of the third block
    write();
    const auto done = qk_test::run_tool(command);
    CHECK(done.status == 1);
    CHECK(nlohmann::json::parse(done.out)["classes"].contains("block_shifted"));
    packed.pop_back();
    write();
    CHECK(qk_test::run_tool(command).status == 2);
}

TEST_CASE("a device that does what another system does is said to, by that system's name") {
    generator g{11};
    values x;
    for (int i = 0; i < 2048; ++i) x.push_back(tie(g, 120 + g.below(12)) * 1.1f);
    const qk_test::scratch place;
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({8, 256}, x));
    const auto report = [&](const std::string& system, const std::string& format) {
        REQUIRE(qk_test::run_tool({"convert", place("x.npy"), place("d.npy"), "--system", system, "--overwrite"}).status == 0);
        const auto done = qk_test::run_tool({"compare", place("x.npy"), place("d.npy"), "--format", format, "--json"});
        CHECK(done.status == 1);
        const auto systems = nlohmann::json::parse(done.out)["systems"];
        return std::any_of(systems.begin(), systems.end(), [&](const auto& s) { return s["name"] == system && s["differ"] == 0; });
    };
    CHECK(report("mlx.mxfp4_rounded", "mxfp4"));
    CHECK(report("mlx.mxfp8_rounded", "mxfp8_e4m3"));
    CHECK(report("transformer_engine.nvfp4", "nvfp4"));
    CHECK(report("ggml.q4_0", "int4"));
    REQUIRE(qk_test::run_tool({"convert", place("x.npy"), place("d.npy"), "--system", "mlx.mxfp4_rounded", "--overwrite"}).status == 0);
    const auto lines = qk_test::run_tool({"compare", place("x.npy"), place("d.npy"), "--format", "mxfp4"});
    CHECK(lines.out.find("this is what mlx.mxfp4_rounded does, in all 2048 values: as before the mend of 2026") != std::string::npos);
    // One value that no system gives: the nearest is named with what it leaves.
    qk::graph::tensor d = qk::graph::read_npy(place("d.npy"));
    d.as<float>()[5] += 1;
    qk::graph::write_npy(place("e.npy"), d);
    const auto near = qk_test::run_tool({"compare", place("x.npy"), place("e.npy"), "--format", "mxfp4"});
    CHECK(near.out.find("nearest is what mlx.mxfp4_rounded does, which differs in 1 of 2048 values") != std::string::npos);
    // The format itself is no hypothesis, and a device of another kind has none.
    values y(x.size(), 1.0f);
    qk::graph::write_npy(place("f.npy"), qk::graph::make_tensor<float>({8, 256}, y));
    const auto none = qk_test::run_tool({"compare", place("x.npy"), place("f.npy"), "--format", "mxfp4", "--json"});
    CHECK(nlohmann::json::parse(none.out)["systems"].empty());
}
