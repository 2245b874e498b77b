// SPDX-License-Identifier: Apache-2.0
// The formats that tests run over: the whole catalogue, and splits, widths, blocks and modifiers beyond it.
#pragma once

#include <string>
#include <vector>

#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

struct test_format {
    std::string name;
    qk::format format;
};

inline std::vector<test_format> formats_named(std::initializer_list<const char*> names) {
    std::vector<test_format> all;
    for (const char* name : names) all.push_back({name, *qk::parse_format(name)});
    return all;
}

inline std::vector<test_format> catalogue_formats() {
    std::vector<test_format> all;
    for (const qk::named_format& entry : qk::catalogue) all.push_back({std::string(entry.name), entry.format});
    return all;
}

inline std::vector<test_format> unnamed_formats() {
    return formats_named({
        "float:exponent=5,mantissa=7",
        "float:exponent=8,mantissa=3",
        "float:exponent=3,mantissa=12,special=fn",
        "float:exponent=1,mantissa=6,special=none",
        "float:exponent=1,mantissa=0,special=none",
        "float:exponent=2,mantissa=0,special=fn",
        "float:exponent=1,mantissa=1,special=fnuz",
        "float:exponent=6,mantissa=9,special=fnuz",
        "float:exponent=4,mantissa=3,bias=-2,special=none",
        "float:exponent=5,mantissa=2,bias=30,special=fn",
        "float:exponent=8,mantissa=7,special=fnuz",
        "float:exponent=8,mantissa=2,bias=140,special=ieee",
        "float:exponent=4,mantissa=11",
        "float:exponent=8,mantissa=20",
        "float:exponent=5,mantissa=14",
        "float:exponent=6,mantissa=17,special=fnuz",
        "float:exponent=8,mantissa=9,sign=0",
        "float:exponent=5,mantissa=3,sign=0",
        "float:exponent=3,mantissa=2,sign=0,special=none",
        "float:exponent=4,mantissa=3,subnormals=0",
        "float:exponent=5,mantissa=0,sign=0,bias=12,special=nan,subnormals=0",
        "float:exponent=4,mantissa=3,infinity=1,high_nans=none",
        "binary8p3se",
        "binary6p1sf",
        "binary8p1ue",
        "binary5p5uf",
        "binary11p8se",
        "binary12p2se",
        "table:values=3/1/-2/nan/1/0.5/-1e-40/1e30,ties=upper",
        "table:values=-1/1",
        "int:bits=1,signed=0",
        "int:bits=3",
        "int:bits=5,signed=0",
        "int:bits=24",
        "int:bits=31",
        "int8:narrow",
        "uint8:reduce_range",
        "int8:symmetric,narrow",
        "int8:reduce_range",
        "uint4:symmetric",
        "int16:pow2",
        "bfp:block=16,exponent=8,mantissa=5",
        "bfp:block=16,exponent=8,mantissa=4",
        "bfp:block=32,exponent=5,mantissa=3",
        "bfp:block=7,exponent=4,mantissa=10",
        "bfp:block=1,exponent=8,mantissa=7",
        "bfp:block=64,exponent=2,mantissa=23",
        "bfp:block=8,exponent=8,mantissa=23",
        "bfp:block=5,exponent=6,mantissa=1",
        "bfp:block=128,exponent=8,mantissa=7",
        "bfp:block=8,exponent=8,mantissa=7,bump",
        "bfp:block=16,exponent=4,mantissa=3,bump",
        "microexponent:block=16,sub_block=4,mantissa=5",
        "microexponent:block=8,sub_block=2,mantissa=15,shift=2",
        "microexponent:block=6,sub_block=4,mantissa=3",
        "mx:element=fp6_e3m2,block=16",
        "mx:element=fp4_e2m1,block=64",
        "mx:element=fp8_e4m3fnuz,block=8",
        "mx:element=fp8_e4m3,block=5",
        "mx:element=int4,block=32",
        "mx:element=int16,block=16",
        "mx:element=float:exponent=3,mantissa=1,special=none,block=32",
        "mx:element=fp8_e3m4,block=1",
        "mx:element=float:exponent=4,mantissa=3,bias=20,special=none,block=32",  // the largest element is below 1
        "nvfp:block=32",
        "nvfp:block=8,element=fp6_e2m3",
        "nvfp:block=16,element=fp4_e2m1,scale=fp8_e5m2",
        "mx:element=binary6p3ue,block=32",
        "mx:element=binary8p3se,block=8",
        "mx:element=float:exponent=3,mantissa=2,subnormals=0,special=none,block=8",
        "nvfp:block=16,element=binary4p1sf,scale=ue4m3,tensor=0",
        "nvfp:block=8,element=binary6p3se,scale=binary8p4ue",
    });
}

/// Returns every code of a format of up to 16 bits; of a wider one some 2^16, from all over and with all their bits in use.
inline std::vector<std::uint32_t> codes_of(qk::floating f) {
    const std::uint32_t end = 1u << qk::bits(f), step = qk::bits(f) <= 16 ? 1 : (end >> 16) + 1;
    std::vector<std::uint32_t> codes;
    for (std::uint32_t code = 0; code < end; code += step) codes.push_back(code);
    return codes;
}

inline std::vector<test_format> all_formats() {
    std::vector<test_format> all = catalogue_formats();
    for (test_format& f : unnamed_formats()) all.push_back(std::move(f));
    return all;
}
