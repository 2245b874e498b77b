// SPDX-License-Identifier: Apache-2.0
// What a kernel can reach on this machine: a copy that does so many vector operations, of any use to nobody, with every vector, in the loop
// that the kernels have, prefetching and all. Names are operations/COUNT/BYTES and hash/BYTES (random bits for every element); BYTES and
// the rate are those of bench/kernels, whose ratios are to be held against the ratios here.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>

#include "buffers.hpp"
#include "qk/kernels/lanes/streaming.hpp"
#include "qk/kernels/rounding/fast.hpp"
#include "qk/qk.hpp"

namespace {

using namespace qk;
using namespace qk::kernels;

constexpr std::size_t w = lanes<native>;

/// y = what `make` makes of x and its position, four vectors at a time.
template <bool Streaming, class Make>
void run(benchmark::State& state, std::size_t bytes, const Make& given) {
    const float* x = bench::buffers().x.floats();
    float* y = bench::buffers().y.floats();
    const Make make = given;
    for (auto _ : state) {
        for (std::size_t i = 0; i < bytes / 8; i += 4 * w) {
            Streaming ? read_ahead<native, 4>(x + i) : own_ahead<native, 4>(y + i);
            for (std::size_t k = 0; k < 4; ++k) {
                const vf<native> v = make(load<native>(x + i + k * w), i + k * w);
                Streaming ? stream<native>(y + i + k * w, v) : store<native>(y + i + k * w, v);
            }
        }
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

template <class Make>
void add(const std::string& name, const Make& make) {
    for (const std::size_t bytes : bench::working_sets) {
        benchmark::RegisterBenchmark((name + "/" + std::to_string(bytes)).c_str(), [bytes, make](benchmark::State& state) {
            bytes >= streaming_bytes ? run<true>(state, bytes, make) : run<false>(state, bytes, make);
        });
    }
}

/// Additions of floats and of integers, turn by turn; each waits for the one before.
template <std::size_t Count>
void add_operations() {
    add("operations/" + std::to_string(Count), [](vf<native> v, std::size_t) {
        vf<native> one(1.0f);
        vi<native> two(2);
        asm volatile("" : "+x"(one.data), "+x"(two.data));  // nothing that the compiler could sum up
        [&]<std::size_t... K>(std::index_sequence<K...>) { ((v = K % 2 == 0 ? v + one : as_float<native>(as_int<native>(v) ^ two)), ...); }
        (std::make_index_sequence<Count>());
        return v;
    });
}

}  // namespace

int main(int argc, char** argv) {
    add_operations<0>();
    add_operations<4>();
    add_operations<8>();
    add_operations<12>();
    add_operations<16>();
    add_operations<20>();
    const random_source source(semantics{.rounding = rounding::stochastic});
    const fast_rounding<native> rounds(rounding::stochastic, source);
    add("hash", [rounds](vf<native> v, std::size_t i) { return as_float<native>(as_int<native>(v) ^ rounds.words(i)); });
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
}
