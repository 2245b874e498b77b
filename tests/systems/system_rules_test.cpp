// SPDX-License-Identifier: Apache-2.0
// Compares every rule with what its package answered, bit for bit: values, codes, scales, zero points.
#include <doctest/doctest.h>

#include <bit>
#include <cstdio>
#include <set>

#include "packed_answers.hpp"

namespace {

using namespace qk;

systems::result made_by(const packed_answers& data, const packed_answer& a) {
    const matrix x = data.input(a.input);
    systems::input given{x.values, x.rows, x.columns, {}};
    if (a.with_importance) given.importance = data.inputs.at("importance").values;
    const systems::rule* rule = systems::find(a.rule);
    REQUIRE_MESSAGE(rule != nullptr, a.rule);
    return rule->convert(given);
}

bool agrees(const systems::result& made, const packed_answer& a) {
    if (a.plane == "values") {
        return shape_text(made.shape) == a.shape && hash_of(std::as_bytes(std::span(made.values)), true) == a.hash;
    }
    const systems::plane* p = made.find(a.plane);
    return p != nullptr && type_text(p->kind) == a.type && shape_text(p->shape) == a.shape && hash_of(p->bytes, a.type == "f4") == a.hash;
}

/// Rules that no package was asked about: what they follow instead.
const std::map<std::string, std::string> without_package{
    {"mlx.mxfp4_rounded", "mlx before its mend: its published source"}, {"mlx.mxfp8_rounded", "mlx before its mend: its published source"},
    {"torchao.mxfp6_e2m3.ceil", "as torchao.mxfp4_e2m1.ceil"},          {"torchao.mxfp6_e3m2.ceil", "as torchao.mxfp4_e2m1.ceil"},
    {"torchao.mxfp8_e4m3.floor", "as torchao.mxfp6_e2m3.floor"},        {"torchao.mxfp8_e4m3.ceil", "as torchao.mxfp4_e2m1.ceil"},
    {"torchao.mxfp8_e5m2.floor", "as torchao.mxfp6_e2m3.floor"},        {"torchao.mxfp8_e5m2.ceil", "as torchao.mxfp4_e2m1.ceil"},
};

}  // namespace

TEST_CASE("every rule gives what its package answered") {
    const packed_answers data;
    CHECK(data.answers.size() > 2000);
    std::size_t exact = 0;
    std::string made_for;
    systems::result made;
    for (const packed_answer& a : data.answers) {
        const std::string key = a.rule + " " + a.input + (a.with_importance ? " with an importance" : "");
        if (key != made_for) made = made_by(data, a);
        made_for = key;
        const bool same = agrees(made, a);
        exact += same;
        CHECK_MESSAGE(same, key, ": ", a.plane, " differ");
    }
    std::printf("systems: %zu of %zu answers are the same bits\n", exact, data.answers.size());
}

TEST_CASE("every rule of the table is proven, or says what it follows") {
    const packed_answers data;
    std::set<std::string> proven;
    for (const packed_answer& a : data.answers) proven.insert(a.rule);
    for (const systems::rule& r : systems::rules()) {
        if (r.system == "ml_dtypes") continue;
        CHECK_MESSAGE((proven.contains(r.name()) || without_package.contains(r.name())), r.name());
        CHECK(systems::find(r.name()) == &r);
    }
    for (const auto& [name, what] : without_package) CHECK_MESSAGE((systems::find(name) != nullptr && !proven.contains(name)), name);
}

TEST_CASE("mlx divides by the block's scale, then multiplies by the tensor's part: ties fall elsewhere than under one quotient") {
    std::vector<float> x(16, 0.0f);
    x[0] = 8, x[1] = -1;  // -1 / 448 * 336 is above 0.75 in float32, and -1 / (448 * (8 / 2688)) is 0.75
    const auto made = systems::find("mlx.nvfp4_global")->convert({x, 1, 16, {}});
    CHECK(made.values[0] == 8);
    CHECK(made.values[1] == -1.3333334f);
}

TEST_CASE("auto-round's straight-through cast leaves no -0") {
    const std::vector<float> x{1.0f, -1e-9f, -0.0f, -0.5f};
    const auto made = systems::find("auto_round.fp8_block128")->convert({x, 1, 4, {}});
    CHECK(made.values[3] < 0);
    for (const std::size_t i : {1, 2}) CHECK(std::bit_cast<std::uint32_t>(made.values[i]) == 0);
}

TEST_CASE("Transformer Engine fills tiles up with zeros: their scales stay, their codes and half a byte of an odd row do not") {
    std::vector<float> x(18 * 21), filled(32 * 21);
    for (std::size_t i = 0; i < x.size(); ++i) filled[i] = x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
    const systems::rule* rule = systems::find("transformer_engine.nvfp4_2d16x16");
    const auto made = rule->convert({x, 18, 21, {}}), whole = rule->convert({filled, 32, 21, {}});
    CHECK(made.shape == std::vector<std::size_t>{18, 21});
    CHECK(std::equal(made.values.begin(), made.values.end(), whole.values.begin()));
    CHECK(made.find("codes")->shape == std::vector<std::size_t>{18, 10});
    CHECK(made.find("scales")->shape == std::vector<std::size_t>{32, 2});
    CHECK(made.find("scales")->bytes == whole.find("scales")->bytes);
    CHECK(systems::find("transformer_engine.nvfp4_columnwise")->convert({x, 18, 21, {}}).find("codes")->shape ==
          std::vector<std::size_t>{21, 9});
}

TEST_CASE("Transformer Engine's FP8 of a tensor with Inf or NaN") {
    const std::vector<float> large{1, HUGE_VALF}, none{1, std::nanf("")};
    const auto scale = [](const char* rule, const std::vector<float>& x) {
        float s;
        std::memcpy(&s, systems::find(rule)->convert({x, 1, 2, {}}).find("scales")->bytes.data(), 4);
        return s;
    };
    CHECK(scale("transformer_engine.fp8_current_e4m3", large) == HUGE_VALF);
    CHECK(scale("transformer_engine.fp8_current_e5m2_pow2", large) == HUGE_VALF);
    CHECK(scale("transformer_engine.fp8_current_e4m3_pow2", none) == 2);
    CHECK(std::isnan(scale("transformer_engine.fp8_current_e4m3", none)));
}

TEST_CASE("ModelOpt's int4 fills the whole tensor up, and packs what it filled") {
    const std::vector<float> x(8 * 200, 1.0f);
    const auto made = systems::find("modelopt.int4_g128")->convert({x, 8, 200, {}});
    CHECK(made.find("codes")->shape == std::vector<std::size_t>{8, 104});  // 1600 values become 1664
    CHECK(made.find("scales")->shape == std::vector<std::size_t>{13, 1});
    CHECK(made.values == x);
}

TEST_CASE("a cast of PyTorch to E4M3 saturates: a subnormal scale of a tensor leaves quotients above 448") {
    const std::vector<float> x{671 * 0x1p-149f, -100 * 0x1p-149f};  // 671 / 448 steps are rounded to one
    for (const char* rule : {"modelopt.fp8_tensor_packed", "modelopt.fp8_2d_16x16"}) {
        const auto made = systems::find(rule)->convert({x, 1, 2, {}});
        CHECK(made.values[0] == 448 * 0x1p-149f);
        CHECK(made.find("codes")->bytes[0] == std::byte{0x7e});
    }
}

TEST_CASE("mlx rounded the exponent of a scale before its mend, and clips where it rounds down") {
    const systems::rule *now = systems::find("mlx.mxfp4"), *before = systems::find("mlx.mxfp4_rounded");
    std::vector<float> x(32, 0.25f);
    x[0] = 8;  // log2(8 / 6) is 0.415: up to 1 now, down to 0 before
    const systems::input one{x, 1, 32, {}};
    CHECK(now->convert(one).values[0] == 8);
    CHECK(before->convert(one).values[0] == 6);
    x[0] = 9;  // 0.585: 1 both ways
    CHECK(before->convert(one).values == now->convert(one).values);
}

TEST_CASE("mlx takes the next power of two for a scale a last bit above one, whose logarithm in float32 is the power's") {
    std::vector<float> x(32, 0x1p-10f);
    for (const auto& [largest, scale] : {std::pair{0x1.8p-6f, 119}, {0x1.800002p-6f, 120}, {0x1.7ffffep-6f, 119}, {0x1.800002p+8f, 134}}) {
        x[3] = largest;
        const auto made = systems::find("mlx.mxfp4")->convert({x, 1, 32, {}});
        CHECK(made.find("scales")->bytes[0] == std::byte(scale));
    }
}

TEST_CASE("amd-quark's two levels: a block scale that is stored as zero zeros the block, and a tensor's scale of zero is 2^-23") {
    const auto bits = [](float v) { return std::bit_cast<std::uint32_t>(v); };
    std::vector<float> x(32, 0.0f);
    x[0] = 1.5e6f, x[16] = 1e-6f, x[17] = -1e-6f, x[19] = -0.0f, x[20] = 5e-6f, x[21] = -5e-6f, x[22] = -1e-9f;
    const systems::rule& rule = *systems::find("quark_torch.amdfp4_global_g16");
    const auto made = rule.convert({x, 1, 32, {}});
    CHECK(made.values[0] == 0x1.6e36p20f);
    const std::uint32_t signs[7] = {0, 0x80000000u, 0, 0, 0, 0x80000000u, 0};
    for (std::size_t i = 0; i < 7; ++i) CHECK(bits(made.values[16 + i]) == signs[i]);
    const auto number = [](const systems::result& r, const char* plane, std::size_t i) {
        float v;
        std::memcpy(&v, r.find(plane)->bytes.data() + 4 * i, 4);
        return v;
    };
    CHECK(number(made, "scales0", 1) == 0);
    CHECK(number(made, "scales1", 0) == 0x1.170492p1f);
    std::fill(x.begin(), x.end(), 0.0f);
    const auto zeros = rule.convert({x, 1, 32, {}});
    for (const float s : {number(zeros, "scales0", 0), number(zeros, "scales0", 1), number(zeros, "scales1", 0)}) CHECK(s == 0x1p-23f);
    x[0] = 0x1p-149f;
    const auto least = systems::find("auto_round.mxfp4_rceil")->convert({x, 1, 32, {}});
    CHECK(std::isnan(least.values[0]));
    x[0] = 0x1p-147f;
    CHECK(!std::isnan(systems::find("auto_round.mxfp4_rceil")->convert({x, 1, 32, {}}).values[0]));
}

TEST_CASE("the small integers of ml_dtypes truncate and wrap") {
    const std::vector<float> x{1, -1, 1.9f, -2.7f, 7, 8, -8, -9, 1e9f, std::nanf(""), HUGE_VALF, 0.5f};
    const auto made = [&](const char* name) { return systems::find(name)->convert({x, 1, x.size(), {}}).values; };
    CHECK(made("ml_dtypes.int1") == std::vector<float>{-1, -1, -1, 0, -1, 0, 0, -1, 0, 0, 0, 0});
    CHECK(made("ml_dtypes.int4") == std::vector<float>{1, -1, 1, -2, 7, -8, -8, 7, 0, 0, 0, 0});
    CHECK(made("ml_dtypes.uint2") == std::vector<float>{1, 3, 1, 2, 3, 0, 0, 3, 0, 0, 0, 0});
}

TEST_CASE("a name without its scale rule means torchao's rceil; unknown names are nothing") {
    CHECK(systems::find("torchao.mxfp4_e2m1") == systems::find("torchao.mxfp4_e2m1.rceil"));
    CHECK(systems::find("torchao") == nullptr);
    CHECK(systems::find("torchao.mxfp5") == nullptr);
    CHECK(systems::find("") == nullptr);
}

TEST_CASE("what a system refuses is refused, with a sentence") {
    const std::vector<float> x(48, 1.0f), weights(7, 1.0f);
    const auto message = [](const char* name, const systems::input& given) -> std::string {
        try {
            systems::find(name)->convert(given);
        } catch (const std::invalid_argument& e) {
            return e.what();
        }
        return "";
    };
    CHECK(message("ggml.q4_K", {x, 1, 48, {}}) == "ggml.q4_K takes columns in multiples of 256, and here are 48");
    CHECK(message("modelopt.nvfp4", {x, 1, 48, weights}) == "modelopt.nvfp4 does not look at an importance; leave it out");
    const std::vector<float> wide(64, 1.0f);
    CHECK(message("ggml.q4_0", {wide, 1, 64, weights}) == "ggml.q4_0: the importance has 7 values for 64 columns");
    CHECK(message("transformer_engine.rht16", {x, 3, 16, {}}).find("multiples of 16") != std::string::npos);
    CHECK(message("modelopt.int4_g128", {x, 3, 16, {}}).find("do not divide") != std::string::npos);
    CHECK(message("mlx.mxfp4", {x, 1, 32, {}}).find("rows x columns") != std::string::npos);
}
