// SPDX-License-Identifier: Apache-2.0
// Wrong use of the verbs formats, convert, compare and vectors: exit status 2, one sentence that names what is wrong, and no file.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;

void refuse(const qk_test::scratch& place, const words& command, const std::string& says) {
    const std::size_t before = place.files();
    const auto done = qk_test::run_tool(command);
    std::string line;
    for (const std::string& w : command) line += " " + w;
    INFO("qk", line, ": ", done.err);
    CHECK(done.status == 2);
    CHECK(done.out.empty());
    CHECK(done.err.find(says) != std::string::npos);
    CHECK(done.err.starts_with("qk: "));
    CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
    CHECK(place.files() == before);
}

}  // namespace

TEST_CASE("bad input is a sentence, and nothing is written") {
    const qk_test::scratch place;
    const auto save = [&](const char* name, std::vector<std::int64_t> shape, std::vector<float> v) {
        qk::graph::write_npy(place(name), qk::graph::make_tensor<float>(std::move(shape), v));
        return place(name);
    };
    const std::string x = save("x.npy", {2, 3}, {1, 2, 3, 4, 5, 6}), y = place("y.npy");
    const std::string three = save("three.npy", {3}, {1, 2, 3}), bad = save("bad.npy", {2}, {1, std::numeric_limits<float>::quiet_NaN()});
    std::ofstream(place("text.npy")) << "not an array";
    const auto convert = [&](words options) {
        options.insert(options.begin(), {"convert", x, y});
        return options;
    };
    refuse(place, convert({}), "--format");
    refuse(place, convert({"--format", "fp9"}), "unknown format 'fp9'");
    refuse(place, convert({"--format", "bfp:block=0"}), "block is 0");
    refuse(place, convert({"--format", "bfp:mantissa=24"}), "mantissa is 24");
    refuse(place, convert({"--format", "bfp:exponent=9"}), "exponent is 9");
    refuse(place, convert({"--format", "float:exponent=9,mantissa=9"}), "exponent is 9");
    refuse(place, convert({"--format", "int:bits=33"}), "bits is 33");
    refuse(place, convert({"--format", "int8", "--scale", "0"}), "scale is 0");
    refuse(place, convert({"--format", "int8", "--scale", "-1"}), "negative");
    refuse(place, convert({"--format", "int8", "--scale", "nan"}), "NaN");
    refuse(place, convert({"--format", "int8", "--scale", "inf"}), "infinite");
    refuse(place, convert({"--format", "int8", "--scale", "abc"}), "needs a number");
    refuse(place, convert({"--format", "int8", "--zero-point", "128"}), "zero point is 128");
    refuse(place, convert({"--format", "int8", "--zero-point", "1.5"}), "whole number");
    refuse(place, convert({"--format", "fp16", "--zero-point", "1"}), "integer formats");
    refuse(place, convert({"--format", "mxfp4", "--scale", "2"}), "from the data");
    refuse(place, convert({"--format", "mxfp4", "--axis", "2"}), "--axis 2 is out of range");
    refuse(place, convert({"--format", "mxfp4", "--axis", "-3"}), "out of range");
    refuse(place, convert({"--format", "mxfp4", "--rounding", "nearest"}), "unknown rounding");
    refuse(place, convert({"--format", "mxfp4", "--semantics", "nvidea"}), "unknown semantics");
    refuse(place, convert({"--format", "mxfp4", "--scale-rule", "round"}), "unknown scale rule");
    refuse(place, convert({"--format", "int8", "--integer-mode", "x"}), "unknown integer mode");
    refuse(place, convert({"--format", "fp8_e5m2", "--overflow", "wrap"}), "unknown overflow rule");
    refuse(place, convert({"--format", "int8", "--scales", three}), "--scale-axis");
    refuse(place, convert({"--format", "int8", "--scales", three, "--scale-axis", "0"}), "holds 3 scales");
    refuse(place, convert({"--format", "int8", "--scales", bad, "--scale-axis", "0"}), "NaN");
    refuse(place, convert({"--format", "int8", "--scales", three, "--scale-axis", "5"}), "--scale-axis 5 is out of range");
    refuse(place, convert({"--format", "int8:pow2", "--scale", "0.3"}), "power of two");
    refuse(place, convert({"--format", "mxfp4", "--semantics", "quark", "--packed", place("p.npz")}), "has no code");
    refuse(place, convert({"--format", "mxfp4", "--packed", place("nowhere/p.npz")}), "no folder");
    refuse(place, convert({"--format", "mxfp4", "--bogus"}), "--bogus");
    refuse(place, {"convert", place("none.npy"), y, "--format", "mxfp4"}, "none.npy");
    refuse(place, {"convert", place("text.npy"), y, "--format", "mxfp4"}, "text.npy");
    refuse(place, {"convert", x, place("nowhere/y.npy"), "--format", "mxfp4"}, "no folder");
    refuse(place, {"convert", x}, "required");
    refuse(place, {"compare", x, three, "--format", "mxfp4"}, "must be the same");
    refuse(place, {"compare", x, place("none.npy"), "--format", "mxfp4"}, "none.npy");
    refuse(place, {"compare", x, place("text.npy"), "--packed", "--format", "mxfp4"}, "packs into");
    refuse(place, {"vectors", "--format", "fp9", "--out", place("v")}, "unknown format");
    refuse(place, {"vectors", "--format", "int8", "--scale", "0", "--out", place("v")}, "scale is 0");
    refuse(place, {"vectors", "--format", "int8"}, "--out");
    refuse(place, {"formats", "mxfp5"}, "unknown format");
    refuse(place, {"frobnicate"}, "no verb");
}
