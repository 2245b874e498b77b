// SPDX-License-Identifier: Apache-2.0
// Tests the text of accumulators, devices by name, and the sentences that refuse wrong accumulators.
#include <doctest/doctest.h>

#include <limits>
#include <map>

#include "dot_cases.hpp"
#include "qk/dot/text.hpp"

using namespace qk;

TEST_CASE("an accumulator's text is read back as the same value") {
    std::size_t texts = 0;
    const auto there_and_back = [&](const accumulator& a) {
        const auto text = to_text(a);
        const auto back = parse_accumulator(text);
        REQUIRE_MESSAGE(back, text.view(), ": ", back.error.view());
        REQUIRE_MESSAGE(back.value == a, text.view());
        ++texts;
    };
    devices::each([&](const device& d) {
        there_and_back(d.accumulator);
        CHECK(*parse_accumulator(d.name) == d.accumulator);
    });
    for (const dot_kind& k : dot_kinds()) there_and_back(k.how);
    there_and_back(
        {.sum = summation::integer,
         .groups = 4,
         .width = 20,
         .saturate = true,
         .requantize = {
             .by = requantize_by::scale, .scale_bits = std::bit_cast<std::uint32_t>(0.0371f), .zero_point = -3, .output = uint8}});
    there_and_back({.sum = summation::integer, .requantize = {.by = requantize_by::gemmlowp, .multiplier = 2000000001, .shift = -7}});
    there_and_back({.addend = {6, 9, 31, specials::ieee}, .partial = {6, 9, 31, specials::ieee}, .result = {6, 9, 31, specials::ieee}});
    // A field whose value is 1 is printed with its value: a bare key would not be read back.
    there_and_back({.sum = summation::aligned, .align = 1});
    there_and_back({.sum = summation::aligned,
                    .groups = 4,
                    .lanes = 2,
                    .place = place::after,
                    .align = 24,
                    .join = 1,
                    .join_addend = 1,
                    .join_drop = 1});
    there_and_back(
        {.sum = summation::integer, .requantize = {.by = requantize_by::gemmlowp, .multiplier = 1, .shift = 1, .zero_point = 1}});
    there_and_back({.sum = summation::pairwise, .lanes = 3, .chunked = true, .place = place::after});
    there_and_back({.sum = summation::integer,
                    .requantize = {.by = requantize_by::multiplier,
                                   .multiplier = 1350000000,
                                   .shift = -4,
                                   .round = requantize_rounding::toward_zero,
                                   .relu = true}});
    there_and_back({.sum = summation::integer, .requantize = {.by = requantize_by::gemmlowp, .symmetric = true}});
    CHECK(texts > 190);
}

TEST_CASE("what a text cannot say is an error that names the key") {
    const auto issue = parse_accumulator("groups=16,align=25,round=toward-zero");
    REQUIRE(issue);
    CHECK(issue->sum == summation::aligned);
    CHECK(issue->partial_round == rounding::toward_zero);
    CHECK(to_text(*issue) == "sum=aligned,groups=16,align=25,round=toward-zero");

    const auto error = [](std::string_view text) { return std::string(parse_accumulator(text).error.view()); };
    CHECK(error("group=16") == "unknown key 'group' for an accumulator; did you mean groups?");
    CHECK(error("sum=align").find("say exact, aligned, sequential, pairwise or integer") != std::string::npos);
    CHECK(error("groups=x").find("needs a whole number") != std::string::npos);
    CHECK(error("align=25,align=24").find("twice") != std::string::npos);
    // What means nothing for a kind of sum is an error, also where it says the default.
    CHECK(error("sum=exact,width=24") == "width needs sum=integer");
    CHECK(error("sum=exact,width=32") == "width needs sum=integer");
    CHECK(error("groups=4,align=20,fused=0") == "fused needs sum=sequential; in pairs every product is rounded");
    CHECK(error("sum=pairwise,fused=1") == "fused needs sum=sequential; in pairs every product is rounded");
    CHECK(error("sum=exact,bundle=4") == "bundle needs sum=aligned, sequential or pairwise");
    CHECK(error("sum=exact,lanes=1") == "lanes need sum=aligned, sequential or pairwise");
    CHECK(error("sum=exact,join=0") == "join needs sum=aligned");
    CHECK(error("sum=sequential,groups=4").find("need place=after, lanes or reverse") != std::string::npos);
    CHECK(error("requantize=scale,relu,symmetric") == "symmetric means nothing with relu");
    CHECK(error("requantize=gemmlowp,requantize-round=usual") == "requantize-round needs requantize=scale or multiplier");
    CHECK(error("align=20,join-addend=24") == "join-addend needs join");
    CHECK(error("align=20,cut=down,lost-is-zero") == "lost-is-zero needs sum=aligned and cut=to-odd");
    CHECK(error("sum=sequential,flush-partials,flush-tiny") == "flush-tiny says more than flush-partials; give one of them");
    CHECK(error("sum=sequential,product-range") == "product-range needs sum=aligned");
    CHECK(error("align=20,bundle=2,product-range") == "product-range needs bundle=1: it is a question of each product");
    CHECK(error("c=fp8_e4m3fn").find("c must be fp64") == 0);
    CHECK(error("result=ue4m3").find("result must be fp64") == 0);
    // Results of 3 to 8 bits, with and without NaN.
    for (const std::string_view text : {"fp8_e4m3fn", "fp8_e4m3fnuz", "fp6_e2m3", "fp4_e2m1", "e2m0finite", "e1m1finite", "e2m3fn"}) {
        const auto a = parse_accumulator(std::string("result=") + std::string(text));
        REQUIRE_MESSAGE(a, text);
        CHECK(a->partial == fp32);
        CHECK(to_text(*a) == std::string("sum=exact,result=") + std::string(text));
    }
    CHECK(parse_accumulator("result=e4m3fn")->result == fp8_e4m3fn);
    CHECK(error("result=fp8_e4m3fn,nan=quiet").starts_with("nan needs a result with Inf and NaN"));
    CHECK(error("sum=pairwise,chunked") == "chunked needs lanes and sum=sequential or sum=pairwise");
    CHECK(error("sum=integer,relu") == "relu needs requantize");
    CHECK(error("sum=integer,c=fp16") == "c is of floating sums, and this one is of integers");
    CHECK(error("requantize=scale,multiplier=4") == "multiplier needs requantize=multiplier or gemmlowp");
    constexpr requantization down{
        .by = requantize_by::multiplier, .shift = -1, .zero_point = -3, .round = requantize_rounding::down, .relu = true};
    static_assert(requantize(-5, down) == -3 && requantize(7, down) == -2 && requantize(1000, down) == 127);
    CHECK(error("align=99") == "align is 99; it must be 1 to 60");
    CHECK(error("result=fp7").find("unknown register 'fp7'") != std::string::npos);
    CHECK(error("nvidia.hoper.wgmma.f32.e4m3.e4m3").find("did you mean nvidia.hopper.wgmma.f32.e4m3.e4m3") != std::string::npos);
}

TEST_CASE("registers know their largest number") {
    static_assert(max_value(fp64) == std::numeric_limits<double>::max());
    static_assert(max_value(fp32) == double{std::numeric_limits<float>::max()});
    static_assert(max_value(floating{8, 13, 127, specials::ieee}) == 0x1.fff8p127);
}

TEST_CASE("devices are found by name, with and without their shape") {
    static_assert(find_device("nvidia.hopper.wgmma.f32.e4m3.e4m3") == &devices::nvidia_hopper_wgmma_m64n8k32_f32_e4m3_e4m3);
    static_assert(&devices::nvidia_ampere_mma_f32_f16_f16_f32 == &devices::nvidia_ampere_mma_m16n8k16_f32_f16_f16_f32);
    CHECK(find_device("amd.cdna3.mfma.f32_f16") == &devices::amd_cdna3_mfma_f32_16x16x16_f16);
    CHECK(find_device("amd.cdna2.mfma.f32_bf16_1k") == &devices::amd_cdna2_mfma_f32_16x16x16bf16_1k);
    CHECK(find_device("nvidia.none") == nullptr);
    CHECK(unknown_device("amd.cdna3.mfma.f32_fp16").view().find("amd.cdna3.mfma.f32_f16") != std::string_view::npos);
    static_assert(distance_from_part("nvidia.hopper.wgmma", "hoper") == 1 && distance_from_part("x86", "hoper") == 5);
    for (const std::string_view word : {"hoper", "hpoper", "nvidia.hoper"}) {
        const message said = unknown_device(word);
        CHECK_MESSAGE(said.view().find("did you mean nvidia.hopper.") != std::string_view::npos, said.view());
        CHECK_MESSAGE(said.view().find("x86") == std::string_view::npos, said.view());
    }
    CHECK(unknown_device("zzzzzz") == "unknown device 'zzzzzz'; `qk formats --devices` lists the names");
    std::map<std::string_view, int> names;
    devices::each([&](const device& d) {
        CHECK_MESSAGE(++names[d.name] == 1, d.name);
        CHECK_MESSAGE(check_operands(d.a, d.b, d.accumulator).empty(), d.name);
        CHECK(find_device(d.name) == &d);
        CHECK(!d.source.empty());
    });
    CHECK(names.size() == 266);
}

TEST_CASE("what cannot be computed is refused in a sentence") {
    CHECK(check(accumulator{.sum = summation::aligned}).view() == "align is 0; it must be 1 to 60");
    CHECK(!check(accumulator{.lanes = 2}).empty());
    CHECK(check_operands(fp32, fp32, accumulators::int32_wrapping).view().find("integer formats") != std::string_view::npos);
    CHECK(check_operands(fp64, fp32, accumulators::fma_fp64).view().find("go together") != std::string_view::npos);
    CHECK(!check_operands(uint32, int8, accumulators::exact).empty());
    CHECK(!check_operands(int32, int32, accumulators::sequential_fp32).empty());
}
