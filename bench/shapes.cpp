// SPDX-License-Identifier: Apache-2.0
// Times cases that bench/kernels leaves out: scales and blocks in the shapes of real tensors, 16-bit memory, stochastic rounding. Input
// plus output are 256 KiB of float32, in the second-level cache. Formats are chosen at run time, by qk::dispatch. Names are WHAT/FORMAT;
// bytes_per_second counts bytes read plus bytes written.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "buffers.hpp"
#include "program.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/qk.hpp"

namespace {

using namespace qk;

constexpr std::size_t n = bench::working_sets[0] / 8;

/// The same values in float32, float16 and bfloat16, a scale for every element, and room for results.
struct tensors {
    std::vector<float> x, y = std::vector<float>(n), scale = std::vector<float>(n);
    std::vector<float16> half, half_out = std::vector<float16>(n);
    std::vector<bfloat16> brain, brain_out = std::vector<bfloat16>(n);
    std::vector<std::byte> packed = std::vector<std::byte>(8 * n);

    tensors() : x(bench::buffers().x.floats(), bench::buffers().x.floats() + n) {
        for (const float v : x) {
            half.push_back(narrow<float16>(v));
            brain.push_back(narrow<bfloat16>(v));
        }
        for (std::size_t i = 0; i < n; ++i) scale[i] = 0.05f + 0.001f * static_cast<float>(i % 64) + 1e-5f * static_cast<float>(i % 977);
    }
};

tensors& all() {
    static tensors t;
    return t;
}

/// Registers a benchmark; `bytes` are read plus written by one call.
void add(const std::string& name, double bytes, std::function<void()> call) {
    benchmark::RegisterBenchmark(name.c_str(), [bytes, call = std::move(call)](benchmark::State& state) {
        for (auto _ : state) {
            call();
            benchmark::ClobberMemory();
        }
        state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<double>(state.iterations()) * bytes));
    });
}

/// Returns the axis of channels for whole images of `channels` planes of `plane` values.
along_axis images(std::size_t channels, std::size_t plane) { return {n / (channels * plane), channels, plane}; }
std::size_t size_of(along_axis a) { return a.outer * a.length * a.inner; }

void add_quantizer(const std::string& name, const format& f, along_axis a, const semantics& how = {}) {
    const std::size_t count = size_of(a);
    add(name, 8.0 * static_cast<double>(count),
        [=] { dispatch::fake_quantize(f, std::span<const float>(all().x).first(count), std::span(all().y).first(count), a, how); });
}
template <class Scales>
void add_scaled(const std::string& name, const format& f, const Scales& p) {
    const std::size_t count = size_of(p.axis);
    add(name, 8.0 * static_cast<double>(count),
        [=] { dispatch::fake_quantize(f, std::span<const float>(all().x).first(count), std::span(all().y).first(count), p); });
}
/// Adds encode and decode, for float32 or for both types of 16-bit memory.
void add_codec(const std::string& what, const std::string& tail, const format& f, const codec_parameters& p, bool floats = true) {
    const along_axis a = p.axis.inner == 0 ? along_axis{1, n, 1} : p.axis;
    const std::size_t count = size_of(a);
    const auto codes = std::make_shared<std::vector<std::byte>>(packed_bytes(f, a));
    benchmark::DoNotOptimize(dispatch::encode(f, std::span<const float>(all().x).first(count), *codes, p));
    const auto both = [&](const std::string& memory, double width, const auto& x, auto& y) {
        const double bytes = width * static_cast<double>(count) + static_cast<double>(codes->size());
        add("encode/" + memory + what + tail, bytes,
            [from = std::span(x).first(count), f, p] { benchmark::DoNotOptimize(dispatch::encode(f, from, all().packed, p)); });
        add("decode/" + memory + what + tail, bytes, [to = std::span(y).first(count), codes, f, p] { dispatch::decode(f, *codes, to, p); });
    };
    if (floats) return both("", 4, all().x, all().y);
    both("float16", 2, all().half, all().half_out);
    both("bfloat16", 2, all().brain, all().brain_out);
}

void add_encoder(const std::string& name, const format& f, along_axis a, const semantics& how) {
    add("encode/" + name, 4.0 * n + static_cast<double>(packed_bytes(f, a)),
        [=] { benchmark::DoNotOptimize(dispatch::encode(f, all().x, all().packed, a, how)); });
}

}  // namespace

int main(int argc, char** argv) {
    const std::span<const float> scale = all().scale;
    add("copy", 8.0 * n, [] {
        constexpr std::size_t w = kernels::lanes<native>;
        for (std::size_t i = 0; i < n; i += 4 * w) {
            for (std::size_t k = i; k < i + 4 * w; k += w)
                kernels::store<native>(all().y.data() + k, kernels::load<native>(all().x.data() + k));
        }
    });
    for (const char* name : {"int8", "int4", "int16", "fp8_e4m3fn", "fp4_e2m1", "fp16", "bf16", "e8m0"}) {
        const format f = find_format(name)->format;
        const std::string tail = std::string("/") + name;
        add_scaled("per_channel/planes_of_49" + tail, f, per_channel{scale.first(64), {}, images(64, 49)});
        add_scaled("per_channel/last_512" + tail, f, per_channel{scale.first(512), {}, {n / 512, 512, 1}});
        add_scaled("per_channel/last_16" + tail, f, per_channel{scale.first(16), {}, {n / 16, 16, 1}});
        const per_block rows{scale.first(n / 32), {}, {n / 512, 512, 1}, 32}, columns{scale.first(n / 32), {}, {1, n / 512, 512}, 32};
        add_scaled("per_block/last_32" + tail, f, rows);
        add_scaled("per_block/first_32" + tail, f, columns);
        add("stochastic" + tail, 8.0 * n,
            [f] { dispatch::fake_quantize(f, all().x, all().y, affine{.scale = 0.05f}, semantics{.rounding = rounding::stochastic}); });
        add_codec("", tail, f, affine{.scale = 0.05f}, false);
        add_codec("channels_last_512", tail, f, per_channel{scale.first(512), {}, {n / 512, 512, 1}});
        add_codec("blocks_last_32", tail, f, rows);
    }
    for (const char* name : {"bfp16", "mx9", "mx4", "mxint8", "mxfp8_e4m3", "mxfp4", "nvfp4"}) {
        const format f = find_format(name)->format;
        const std::string tail = std::string("/") + name;
        add_quantizer("rows_of_100" + tail, f, {n / 100, 100, 1});
        add_quantizer("axis/planes_of_49" + tail, f, images(64, 49));
        const along_axis row{1, n, 1}, axis_0{1, n / 512, 512};
        const semantics stochastic{.rounding = rounding::stochastic};
        add_quantizer("stochastic" + tail, f, row, stochastic);
        add_quantizer("stochastic/axis_0" + tail, f, axis_0, stochastic);
        add_quantizer("microxcaling" + tail, f, row, semantics::microxcaling);
        add_quantizer("microxcaling/axis_0" + tail, f, axis_0, semantics::microxcaling);
        add_codec("", tail, f, {}, false);
        add_codec("axis_0", tail, f, axis_0);
        add_codec("rows_of_100", tail, f, along_axis{n / 100, 100, 1});
        add_codec("planes_of_49", tail, f, images(64, 49));
        add_encoder("stochastic" + tail, f, row, stochastic);
        add_encoder("stochastic/axis_0" + tail, f, axis_0, stochastic);
    }
    return bench::run_program(argc, argv);
}
