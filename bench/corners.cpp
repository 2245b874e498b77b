// SPDX-License-Identifier: Apache-2.0
// Compares the speed of rarer cases (other roundings, flushed subnormals, zero points added before rounding, wide integers, planes of an
// odd size) with the speed of rounding to nearest even under one scale. Times kernels of qk::dispatch (QK_ARCH chooses them) on 256 KiB of
// float32 in the second-level cache; each case takes turns with its base, and the best of all rounds counts.
//
//     build/release/bench/corners [ROUNDS]      a table in Markdown; shares below a quarter are bold
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "buffers.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/parse.hpp"

namespace {

using namespace qk;

constexpr std::size_t n = bench::working_sets[0] / 8;

struct work {
    std::function<void()> run;
    double elements = n;
    double best = std::numeric_limits<double>::infinity();

    void measure() {
        constexpr int calls = 3;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) run();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
    }
};

struct memory {
    alignas(64) float x[n], y[n], scale[64];
    std::vector<std::byte> packed = std::vector<std::byte>(8 * n);
    memory() {
        std::copy_n(bench::buffers().x.floats(), n, x);
        for (std::size_t i = 0; i < 64; ++i) scale[i] = 0.05f + 0.001f * static_cast<float>(i);
    }
};
memory& all() {
    static memory m;
    return m;
}

bool is_elementwise(const format& f) { return std::holds_alternative<integer>(f) || std::holds_alternative<floating>(f); }

work quantizing(const format& f, const semantics& how) {
    if (!is_elementwise(f)) return {[=] { dispatch::fake_quantize(f, all().x, all().y, how); }};
    return {[=] { dispatch::fake_quantize(f, all().x, all().y, affine{.scale = 0.05f}, how); }};
}
work encoding(const format& f, const semantics& how) {
    const codec_parameters p = is_elementwise(f) ? codec_parameters(affine{.scale = 0.05f}) : codec_parameters();
    const auto failed = [](encode_status s) {
        if (s != encode_status::done) std::abort();
    };
    return {[=] { failed(dispatch::encode(f, std::span<const float>(all().x), all().packed, p, how)); }};
}
/// Returns a call on planes of 7 x 7 in 64 channels, each of which has a scale.
work planes(const format& f, bool encodes) {
    constexpr along_axis a{n / (64 * 49), 64, 49};
    constexpr std::size_t count = a.outer * a.length * a.inner;
    const std::span<const float> x(all().x, count);
    const per_channel p{std::span<const float>(all().scale), {}, a};
    if (!encodes) return {[=] { dispatch::fake_quantize(f, x, std::span(all().y).first(count), p); }, count};
    return {[=] {
                if (dispatch::encode(f, x, all().packed, p) != encode_status::done) std::abort();
            },
            count};
}

/// Returns the speed of `w` over the speed of `base`, which take turns.
double share(work w, work base, int rounds) {
    for (int r = 0; r < rounds; ++r) w.measure(), base.measure();
    return base.best / base.elements * w.elements / w.best;
}

void print(double value) { std::printf(value < 0.25 ? " **%.2f** |" : " %.2f |", value); }

struct column {
    const char* name;
    semantics how;
    bool integers_only = false;
};

void print_table(bool encodes, const std::vector<std::string>& names, int rounds) {
    const std::vector<column> columns{
        {"half-away", {.rounding = rounding::half_away}},     {"half-up", {.rounding = rounding::half_up}},
        {"toward zero", {.rounding = rounding::toward_zero}}, {"down", {.rounding = rounding::down}},
        {"stochastic", {.rounding = rounding::stochastic}},   {"inputs flushed", {.flush_inputs = true}},
        {"outputs flushed", {.flush_outputs = true}},         {"zero point before", {.zero_point_before = true}, true}};
    const auto make = encodes ? encoding : quantizing;
    std::printf("\n%s\n\n| |", encodes ? "encode" : "fake_quantize");
    for (const column& c : columns) std::printf(" %s |", c.name);
    std::printf(" planes of 49 |\n|---|");
    for (std::size_t i = 0; i <= columns.size(); ++i) std::printf("---|");
    std::printf("\n");
    for (const std::string& name : names) {
        const format f = *parse_format(name);
        std::printf("| %s |", name.c_str());
        for (const column& c : columns) {
            if (c.integers_only && !is_integer_format(f)) std::printf(" |");
            else print(share(make(f, c.how), make(f, {}), rounds));
        }
        if (!is_elementwise(f)) std::printf(" |\n");
        else print(share(planes(f, encodes), make(f, {}), rounds)), std::printf("\n");
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 60;
    const std::vector<std::string> names{"int8",         "int:bits=3", "int16",    "int:bits=24", "int:bits=32", "fp8_e4m3fn",
                                         "fp8_e4m3fnuz", "fp6_e2m3",   "fp4_e2m1", "fp16",        "bf16",        "e8m0",
                                         "bfp16",        "mx9",        "mxint8",   "mxfp8_e4m3",  "mxfp4",       "nvfp4"};
    std::printf("Shares of the speed of half-even. Of integers of more than 16 bits as shares of int16's: ");
    for (const bool encodes : {false, true})
        for (const char* name : {"int:bits=24", "int:bits=32"}) {
            const auto make = encodes ? encoding : quantizing;
            std::printf("%s %s %.2f, ", encodes ? "encode" : "fake_quantize", name,
                        share(make(*parse_format(name), {}), make(*parse_format("int16"), {}), rounds));
        }
    std::printf("\n");
    print_table(false, names, rounds);
    print_table(true, names, rounds);
}
