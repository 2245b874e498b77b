// SPDX-License-Identifier: Apache-2.0
// Times every named format of at most 16 bits at three working sets, beside two copies of the same buffers and their limits.
//   fake_quantize/FORMAT/BYTES  fake_quantize_axis/FORMAT/BYTES  encode/FORMAT/BYTES  decode/FORMAT/BYTES  copy/BYTES  copy_nt/BYTES
//   operations/COUNT/BYTES: a copy that does COUNT otherwise useless operations on every vector, in the kernels' loop with its prefetching
// BYTES is input plus output in float32; encode and decode work on as many values. bytes_per_second counts bytes read plus bytes written.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>

#include "buffers.hpp"
#include "program.hpp"
#include "qk/codec.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/qk.hpp"

namespace {

using namespace qk;
using kernels::native;

void set_rate(benchmark::State& state, std::size_t bytes) {
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

/// The vector loop of y[i] = x[i], written out because a compiler would replace it by a call of memcpy.
void copy(benchmark::State& state, std::size_t bytes, bool streaming) {
    const float* x = bench::buffers().x.floats();
    float* y = bench::buffers().y.floats();
    constexpr std::size_t w = kernels::lanes<native>;
    for (auto _ : state) {
        for (std::size_t i = 0; i < bytes / 8; i += 4 * w) {
            for (std::size_t k = 0; k < 4; ++k) {
                const auto v = kernels::load<native>(x + i + k * w);
                if (streaming) kernels::stream<native>(y + i + k * w, v);
                else kernels::store<native>(y + i + k * w, v);
            }
        }
        benchmark::ClobberMemory();
    }
    set_rate(state, bytes);
}

template <class Format>
constexpr affine scale_for(const Format&) {
    return std::is_same_v<Format, integer>   ? affine{.scale = 0.05f, .zero_point = 0}
           : std::is_same_v<Format, nvfloat> ? affine{.scale = 0.001f}
                                             : affine{};
}

template <auto Format>
void fake_quantize_whole(benchmark::State& state, std::size_t bytes) {
    const std::span<const float> x(bench::buffers().x.floats(), bytes / 8);
    const std::span<float> y(bench::buffers().y.floats(), bytes / 8);
    for (auto _ : state) {
        if constexpr (is_block_format(Format) && !std::is_same_v<std::remove_const_t<decltype(Format)>, nvfloat>)
            fake_quantize<Format>(x, y);
        else fake_quantize<Format>(x, y, scale_for(Format));
        benchmark::ClobberMemory();
    }
    set_rate(state, bytes);
}

/// Quantizes [n / (64 * 256), 64, 256] along axis 1: blocks run across the 64 channels, or each channel has a scale.
template <auto Format>
void fake_quantize_axis(benchmark::State& state, std::size_t bytes) {
    const std::size_t n = bytes / 8;
    const along_axis axis{n / (64 * 256), 64, 256};
    const std::span<const float> x(bench::buffers().x.floats(), n);
    const std::span<float> y(bench::buffers().y.floats(), n);
    float scales[64];
    for (std::size_t c = 0; c < 64; ++c) scales[c] = 0.05f + 0.001f * static_cast<float>(c);
    for (auto _ : state) {
        if constexpr (std::is_same_v<std::remove_const_t<decltype(Format)>, nvfloat>)
            fake_quantize(qk::format(Format), x, y, axis, scale_for(Format));
        else if constexpr (is_block_format(Format)) fake_quantize<Format>(x, y, axis);
        else fake_quantize<Format>(x, y, per_channel{scales, {}, axis});
        benchmark::ClobberMemory();
    }
    set_rate(state, bytes);
}

template <auto Format>
codec_parameters parameters_for() {
    if constexpr (is_block_format(Format) && !std::is_same_v<std::remove_const_t<decltype(Format)>, nvfloat>) return {};
    else return scale_for(Format);
}

template <auto Format>
void encode_whole(benchmark::State& state, std::size_t bytes) {
    const std::size_t n = bytes / 8, packed = packed_bytes<Format>(n);
    const std::span<const float> x(bench::buffers().x.floats(), n);
    const std::span<std::byte> y(bench::buffers().y.bytes(), packed);
    for (auto _ : state) {
        encode<Format>(x, y, parameters_for<Format>());
        benchmark::ClobberMemory();
    }
    set_rate(state, 4 * n + packed);
}

/// Decodes codes that encode made, which have a buffer of their own.
template <auto Format>
void decode_whole(benchmark::State& state, std::size_t bytes) {
    static bench::buffer codes(bench::working_sets[2] / 4 + bench::working_sets[2] / 64);
    const std::size_t n = bytes / 8, packed = packed_bytes<Format>(n);
    const std::span<std::byte> x(codes.bytes(), packed);
    const std::span<float> y(bench::buffers().y.floats(), n);
    encode<Format>(std::span<const float>(bench::buffers().x.floats(), n), x, parameters_for<Format>());
    for (auto _ : state) {
        decode<Format>(std::span<const std::byte>(x), y, parameters_for<Format>());
        benchmark::ClobberMemory();
    }
    set_rate(state, 4 * n + packed);
}

template <auto Format>
void add(std::string_view name) {
    for (const std::size_t bytes : bench::working_sets) {
        const std::string tail = "/" + std::string(name) + "/" + std::to_string(bytes);
        benchmark::RegisterBenchmark(("fake_quantize" + tail).c_str(), fake_quantize_whole<Format>, bytes);
        benchmark::RegisterBenchmark(("fake_quantize_axis" + tail).c_str(), fake_quantize_axis<Format>, bytes);
        benchmark::RegisterBenchmark(("encode" + tail).c_str(), encode_whole<Format>, bytes);
        benchmark::RegisterBenchmark(("decode" + tail).c_str(), decode_whole<Format>, bytes);
    }
}

/// Adds the catalogue's entries of at most 16 bits, each as a compile-time format.
template <std::size_t... I>
void add_all(std::index_sequence<I...>) {
    const auto one = [](auto index) {
        constexpr const named_format& entry = catalogue[decltype(index)::value];
        if constexpr (bits_per_value(entry.format) <= 16) add<std::get<entry.format.index()>(entry.format)>(entry.name);
    };
    (one(std::integral_constant<std::size_t, I>()), ...);
}

/// Stores make(vector of x) to y, four vectors at a time.
template <bool Streaming, class Make>
void run_limit(benchmark::State& state, std::size_t bytes, const Make& given) {
    using namespace kernels;
    constexpr std::size_t w = lanes<native>;
    const float* x = bench::buffers().x.floats();
    float* y = bench::buffers().y.floats();
    const Make make = given;
    for (auto _ : state) {
        for (std::size_t i = 0; i < bytes / 8; i += 4 * w) {
            Streaming ? read_ahead<native, 4>(x + i) : own_ahead<native, 4>(y + i);
            for (std::size_t k = 0; k < 4; ++k) {
                const vf<native> v = make(load<native>(x + i + k * w));
                Streaming ? stream<native>(y + i + k * w, v) : store<native>(y + i + k * w, v);
            }
        }
        benchmark::ClobberMemory();
    }
    set_rate(state, bytes);
}

/// Adds a limit of Count operations that alternate between float addition and integer xor; each depends on the one before.
template <std::size_t Count>
void add_operations() {
    using namespace kernels;
    const auto make = [](vf<native> v) {
        vf<native> one(1.0f);
        vi<native> two(2);
        asm volatile("" : "+x"(one.data), "+x"(two.data));  // hides the constants from the compiler
        [&]<std::size_t... K>(std::index_sequence<K...>) { ((v = K % 2 == 0 ? v + one : as_float<native>(as_int<native>(v) ^ two)), ...); }
        (std::make_index_sequence<Count>());
        return v;
    };
    for (const std::size_t bytes : bench::working_sets) {
        benchmark::RegisterBenchmark(
            ("operations/" + std::to_string(Count) + "/" + std::to_string(bytes)).c_str(), [bytes, make](benchmark::State& state) {
                bytes >= streaming_bytes ? run_limit<true>(state, bytes, make) : run_limit<false>(state, bytes, make);
            });
    }
}

/// Adds the limits of 0, 4, ... 20 operations.
void add_all_operations() {
    [&]<std::size_t... K>(std::index_sequence<K...>) { (add_operations<4 * K>(), ...); }
    (std::make_index_sequence<6>());
}

}  // namespace

int main(int argc, char** argv) {
    for (const std::size_t bytes : bench::working_sets) {
        benchmark::RegisterBenchmark(("copy/" + std::to_string(bytes)).c_str(), copy, bytes, false);
        benchmark::RegisterBenchmark(("copy_nt/" + std::to_string(bytes)).c_str(), copy, bytes, true);
    }
    add_all(std::make_index_sequence<std::size(catalogue)>());
    add_all_operations();
    return bench::run_program(argc, argv);
}
