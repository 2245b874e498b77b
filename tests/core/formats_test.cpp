// SPDX-License-Identifier: Apache-2.0
// Tests names, textual forms and checks of formats.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "qk/codec/layout/layout.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

using namespace qk;

namespace {

std::string error_of(std::string_view text) {
    const parsed<format> f = parse_format(text);
    return f ? "" : std::string(f.error.view());
}
bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every name of the catalogue is unique, valid, and survives text and back") {
    for (const named_format& entry : catalogue) {
        CAPTURE(std::string(entry.name));
        CHECK(check(entry.format).empty());
        CHECK(to_text(entry.format) == entry.name);
        CHECK(parse_format(entry.name).value == entry.format);
        CHECK(find_format(entry.name) == &entry);
        CHECK(find_format(entry.format) == &entry);
    }
}

TEST_CASE("elements that lie far below the scales of their blocks are refused") {
    for (const char* text :
         {"mx:element=float:exponent=2,mantissa=3,bias=136,block=1",
          "mx:element=float:exponent=3,mantissa=3,bias=137,special=none,block=17",
          "mx:element=float:exponent=1,mantissa=2,bias=84,special=fnuz,block=7", "nvfp:block=16,scale=float:exponent=4,mantissa=3,bias=60"})
        CHECK(mentions(error_of(text), "largest value must be at least 2^-16"));
    CHECK(error_of("mx:element=float:exponent=2,mantissa=1,bias=3,special=none,block=8").empty());  // up to 1.5
}

TEST_CASE("ranges are those of the specifications") {
    CHECK(max_value(fp8_e4m3fn) == 448);
    CHECK(max_value(fp8_e5m2) == 57344);
    CHECK(max_value(fp8_e4m3fnuz) == 240);
    CHECK(max_value(fp8_e5m2fnuz) == 57344);
    CHECK(max_value(fp8_e4m3) == 240);
    CHECK(max_value(fp8_e3m4) == 15.5);
    CHECK(max_value(fp8_e4m3b11fnuz) == 30);
    CHECK(max_value(fp6_e3m2) == 28);
    CHECK(max_value(fp6_e2m3) == 7.5);
    CHECK(max_value(fp4_e2m1) == 6);
    CHECK(max_value(fp16) == 65504);
    CHECK(max_value(e8m0) == power_of_two(127));
    CHECK(min_subnormal(fp8_e5m2) == power_of_two(-16));
    CHECK(min_subnormal(bf16) == power_of_two(-133));
    CHECK(qmin(integer{.bits = 8, .narrow = true}) == -127);
    CHECK(qmax(integer{.bits = 8, .reduce_range = true}) == 63);
    CHECK(qmax(uint32) == 4294967295);
}

TEST_CASE("textual forms") {
    CHECK(*parse_format("bfp:block=8,exponent=8,mantissa=7") == format(bfp16));
    CHECK(*parse_format("bfp:block=16,exponent=8,mantissa=5") == format(block_float{16, 8, 5, false}));
    CHECK(*parse_format("float:exponent=4,mantissa=3,special=fn") == format(fp8_e4m3fn));
    CHECK(*parse_format("float:exponent=4,mantissa=3,special=fnuz") == format(fp8_e4m3fnuz));
    CHECK(*parse_format("float:exponent=4,mantissa=3,bias=11,special=fnuz") == format(fp8_e4m3b11fnuz));
    CHECK(*parse_format("mx:element=fp6_e3m2,block=16") == format(microscaling{.block_size = 16, .element = fp6_e3m2}));
    CHECK(*parse_format("mx:element=int8,block=32") == format(mxint8));
    CHECK(*parse_format("mx:block=8,element=float:exponent=2,mantissa=2,special=none") ==
          format(microscaling{.block_size = 8, .element = {2, 2, 1, specials::none}}));
    CHECK(*parse_format("int8:symmetric,narrow") == format(integer{.bits = 8, .symmetric = true, .narrow = true}));
    CHECK(*parse_format("int8:pow2,reduce_range") == format(integer{.bits = 8, .reduce_range = true, .pow2 = true}));
    CHECK(*parse_format("int:bits=5,signed=0,symmetric=1") == format(integer{.bits = 5, .is_signed = false, .symmetric = true}));
    CHECK(*parse_format("nvfp:block=32") == format(nvfloat{.block_size = 32}));
    CHECK(*parse_format("microexponent:block=16,sub_block=2,mantissa=4") == format(mx6));
}

TEST_CASE("facts of floats are independent, and each has a text") {
    CHECK(*parse_format("float:exponent=5,mantissa=3,sign=0,bias=15,special=nan") == format(ue5m3));
    CHECK(*parse_format("float:exponent=4,mantissa=3,sign=0,bias=7,special=nan") == format(ue4m3));
    CHECK(*parse_format("float:exponent=8,mantissa=0,sign=0,bias=127,special=nan,subnormals=0") == format(e8m0));
    CHECK(*parse_format("float:exponent=5,mantissa=2,special=inf") == format(p3109(8, 3)));
    CHECK(*parse_format("nvfp:block=16,scale=ue5m3,tensor=0") == format(amdfp4));
    CHECK(*parse_format("nvfp:block=16,scale=ue5m3") == format(nvfp4_e5m3));
    CHECK(*parse_format("e5m3") == format(ue5m3));
    CHECK(max_value(ue5m3) == 114688);
    CHECK(max_value(ue4m3) == 448);
    CHECK(max_value(fp4_e3m0) == 16);
    CHECK(max_value(fp4_e1m2) == 3.5);
    CHECK(bits(e8m0) == 8);
    CHECK(!has_zero(e8m0));
    CHECK(bits_per_value(amdfp4) == 4.5);
    CHECK(layout_of(amdfp4, along_axis{1, 32, 1}).bytes() == 16 + 2);
    CHECK(layout_of(nvfp4_e5m3, along_axis{1, 32, 1}).bytes() == 16 + 2 + 4);
    for (const char* text : {"float:exponent=4,mantissa=3,infinity,negative_zero,high_nans=one", "float:exponent=4,mantissa=3,subnormals=0",
                             "float:exponent=5,mantissa=3,sign=0", "float:exponent=3,mantissa=2,sign=0,special=none",
                             "float:exponent=6,mantissa=9,sign=0,bias=40,special=inf",
                             "nvfp:block=8,element=float:exponent=2,mantissa=2,sign=0,special=none,scale=ue4m3,tensor=0"}) {
        CAPTURE(std::string(text));
        CHECK(to_text(*parse_format(text)) == text);
    }
    CHECK(to_text(format(floating{3, 2, 4, specials::fnuz})) == "float:exponent=3,mantissa=2,special=fnuz");  // as before P3109's name
    CHECK(mentions(error_of("float:exponent=4,mantissa=3,sign=0,negative_zero"), "an unsigned format has no -0"));
    CHECK(mentions(error_of("float:exponent=4,mantissa=0,special=none,subnormals=0"), "leaves no zero"));
    CHECK(mentions(error_of("nvfp:block=16,scale=e8m0"), "with a zero"));
    CHECK(mentions(error_of("float:exponent=8,mantissa=21"), "mantissa is 21; it must be 0 to 20"));
}

TEST_CASE("tables are lists of values") {
    CHECK(to_text(*parse_format("table:values=-1/0/0.25/1,ties=lower")) == "table:values=-1/0/0.25/1,ties=lower");
    CHECK(bits(nf4) == 4);
    CHECK(value_of(nf4, 7) == 0);
    CHECK(max_value(posit8) == 16777216);
    CHECK(value_of(posit8, 0x40) == 1);
    CHECK(value_of(posit8, 0x50) == 4);
    CHECK(value_of(posit8, 0xc0) == -1);
    CHECK(value_of(lns8, 64) == 1);
    CHECK(value_of(lns8, 72) == 2);
    CHECK(value_of(apot4, 15) == static_cast<float>((0.0625 + 0.03125) / 1.5));
    for (const char* name : {"nf4", "posit8", "lns8", "apot4"}) {
        const format f = *parse_format(name);
        CHECK(*parse_format(detail::text_of(std::get<table>(f)).view()) == f);
    }
    CHECK(mentions(error_of("table:values=1/x"), "'x' is no number"));
    CHECK(mentions(error_of("table:values=1/1"), "two different numbers"));
    CHECK(mentions(error_of("table:values=1/inf"), "finite numbers"));
    CHECK(mentions(error_of("table:ties=lower"), "table needs values"));
    CHECK(mentions(error_of("table:values=0/1,ties=odd"), "ties is even-code"));
}

TEST_CASE("text and back for every split, width and block") {
    const auto round_trip = [](const format& f) {
        const format_text text = to_text(f);
        const parsed<format> back = parse_format(text);
        CAPTURE(std::string(text.view()));
        CHECK_MESSAGE(bool(back), back.error.c_str());
        CHECK(*back == f);
    };
    int splits = 0;
    for (int e = 1; e <= 8; ++e) {
        for (int m = 0; m <= 20; ++m) {
            for (const specials s : {specials::ieee, specials::fn, specials::fnuz, specials::none}) {
                for (int bias : {detail::default_bias(e, s), 0, 5}) {
                    const floating f{e, m, bias, s};
                    if (!check(f).empty()) continue;
                    ++splits;
                    round_trip(f);
                    CHECK(max_value(f) >= min_subnormal(f));
                    if (bits(f) <= 8) round_trip(microscaling{.block_size = 16, .element = f});
                    if (bits(f) <= 8) round_trip(nvfloat{.block_size = 16, .element = f, .scale = f});
                }
            }
        }
    }
    CHECK(splits > 500);
    for (int b = 1; b <= 32; ++b) {
        for (int flags = 0; flags < 32; ++flags) {
            const integer f{b, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0, (flags & 16) != 0};
            if (check(f).empty()) round_trip(f);
        }
    }
    for (int m = 1; m <= 23; ++m) {
        round_trip(block_float{.block_size = 3 * m, .exponent_bits = 2 + m % 7, .mantissa_bits = m, .bump = m % 2 == 0});
        if (m <= 15) round_trip(microexponent{.block_size = 2 * m, .sub_block_size = 2, .shift_bits = 1 + m % 3, .mantissa_bits = m});
    }
}

TEST_CASE("elements as papers name them") {
    const auto is = [](std::string_view text, const format& f) { return *parse_format(text) == f; };
    CHECK(is("e4m3", fp8_e4m3fn));
    CHECK(is("e5m2", fp8_e5m2));
    CHECK(is("e2m1", fp4_e2m1));
    CHECK(is("e3m2", fp6_e3m2));
    CHECK(is("mx:element=e2m1,block=32", mxfp4));
    CHECK(is("nvfp:block=16,scale=e4m3", nvfp4));
    CHECK(to_text(*parse_format("e2m1")).view() == "fp4_e2m1");
}

TEST_CASE("wrong text gets a sentence") {
    CHECK(mentions(error_of("mxfp5"), "did you mean mxfp4"));
    // Names that leave something open, or belong to others.
    CHECK(error_of("fp8") == "unknown format 'fp8'; say fp8_e4m3fn or fp8_e5m2");
    CHECK(error_of("msfp12") == "unknown format 'msfp12'; say bfp:block=16,exponent=8,mantissa=3");
    CHECK(error_of("bfloat16") == "unknown format 'bfloat16'; say bf16");
    CHECK(error_of("int9") == "unknown format 'int9'; say int:bits=9");
    CHECK(error_of("uint3") == "unknown format 'uint3'; say int:bits=3,signed=0");
    CHECK(mentions(error_of("fp8_e4m3f"), "did you mean fp8_e4m3"));
    CHECK(mentions(error_of("nonsense_format"), "unknown format"));
    CHECK(mentions(error_of(""), "empty"));
    CHECK(mentions(error_of("bfp"), "family"));
    CHECK(mentions(error_of("bfp:block=0"), "block is 0; it must be 1"));
    CHECK(mentions(error_of("bfp:block=-3"), "block is -3"));
    CHECK(mentions(error_of("bfp:block=abc"), "whole number"));
    CHECK(mentions(error_of("bfp:blok=8"), "unknown key 'blok'"));
    CHECK(mentions(error_of("bfp:block=8,block=8"), "twice"));
    CHECK(mentions(error_of("bfp:exponent=9"), "exponent is 9; it must be 2 to 8"));
    CHECK(mentions(error_of("bfp:mantissa=24"), "mantissa is 24; it must be 1 to 23"));
    CHECK(mentions(error_of("float:exponent=1,mantissa=0,sign=0,special=none"), "the width exponent + mantissa is 1"));
    CHECK(mentions(error_of("float:exponent=8,mantissa=7,bias=90"), "2^-149 to 2^127"));
    CHECK(mentions(error_of("float:exponent=4"), "float needs mantissa=N"));
    CHECK(mentions(error_of("float:exponent=1,mantissa=3"), "special=ieee"));
    CHECK(mentions(error_of("float:exponent=4,mantissa=3,special=odd"), "special is ieee, fn, fnuz, none, nan or inf"));
    CHECK(mentions(error_of("mx:block=32"), "mx needs element"));
    CHECK(mentions(error_of("mx:element=mxfp4"), "not a floating element"));
    CHECK(mentions(error_of("mx:element=fp16"), "8"));
    CHECK(mentions(error_of("mx:element=int1"), "at least 2 bits"));
    CHECK(mentions(error_of("int8:sym"), "unknown key 'sym'"));
    CHECK(mentions(error_of("int:signed=1"), "needs bits"));
    CHECK(mentions(error_of("int:bits=33"), "bits is 33"));
    CHECK(mentions(error_of("int:bits=1,narrow"), "two codes"));
    CHECK(mentions(error_of("fp16:narrow"), "takes no modifiers"));
    CHECK(mentions(error_of(std::string(400, 'x')), "too long"));
    CHECK(mentions(std::string(check_scale(0).view()), "scale is 0"));
    CHECK(mentions(std::string(check_scale(-1).view()), "negative"));
    CHECK(mentions(std::string(check_scale(std::nanf("")).view()), "NaN"));
    CHECK(mentions(std::string(check_zero_point(int8, 128).view()), "128"));
    CHECK(check_zero_point(int8, -128).empty());
}

TEST_CASE("options") {
    for (const auto& r : rounding_names) CHECK(*parse_rounding(r.name) == r.value);
    for (const auto& r : scale_rule_names) CHECK(to_text(r.value) == r.name);
    for (const auto& s : semantics_names) CHECK(bool(parse_semantics(s.name)));
    CHECK(mentions(std::string(parse_rounding("nearest").error.view()), "half-even, half-away"));
    CHECK(mentions(std::string(parse_semantics("amd").error.view()), "unknown semantics 'amd'"));
}

TEST_CASE("the nearest name: two letters in the wrong order are one mistake") {
    CHECK(qk::edit_distance("mxpf4", "mxfp4") == 1);
    CHECK(qk::edit_distance("ca", "abc") == 3);
    CHECK(qk::edit_distance("kitten", "sitting") == 3);
    CHECK(qk::edit_distance("", "abc") == 3);
    const auto says = [](std::string_view word) { return std::string(qk::parse_format(word).error.view()); };
    CHECK(says("mxpf4").find("did you mean mxfp4?") != std::string::npos);
    CHECK(says("bf61").find("did you mean bf16?") != std::string::npos);
    CHECK(says("nothing_like_it") == "unknown format 'nothing_like_it'; `qk formats` lists the names");
    CHECK(qk::parse_semantics("qaurk").error.view().ends_with("Did you mean quark?"));
}
