// SPDX-License-Identifier: Apache-2.0
// Measures what a kernel can reach on this machine: a copy that does COUNT otherwise useless operations on every vector, in the kernels'
// loop with its prefetching. Names are operations/COUNT/BYTES; BYTES and the rate are those of bench/kernels.
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <utility>

#include "buffers.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/qk.hpp"

namespace qk::bench {

/// Stores make(vector of x, its position) to y, four vectors at a time.
template <bool Streaming, class Make>
void run_limit(benchmark::State& state, std::size_t bytes, const Make& given) {
    using namespace kernels;
    constexpr std::size_t w = lanes<native>;
    const float* x = buffers().x.floats();
    float* y = buffers().y.floats();
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
void add_limit(const std::string& name, const Make& make) {
    for (const std::size_t bytes : working_sets) {
        benchmark::RegisterBenchmark((name + "/" + std::to_string(bytes)).c_str(), [bytes, make](benchmark::State& state) {
            bytes >= streaming_bytes ? run_limit<true>(state, bytes, make) : run_limit<false>(state, bytes, make);
        });
    }
}

/// Adds a limit of Count operations that alternate between float addition and integer xor; each depends on the one before.
template <std::size_t Count>
void add_operations() {
    using namespace kernels;
    add_limit("operations/" + std::to_string(Count), [](vf<native> v, std::size_t) {
        vf<native> one(1.0f);
        vi<native> two(2);
        asm volatile("" : "+x"(one.data), "+x"(two.data));  // hides the constants from the compiler
        [&]<std::size_t... K>(std::index_sequence<K...>) { ((v = K % 2 == 0 ? v + one : as_float<native>(as_int<native>(v) ^ two)), ...); }
        (std::make_index_sequence<Count>());
        return v;
    });
}

/// Adds the limits of 0, 4, ... 20 operations.
inline void add_all_operations() {
    [&]<std::size_t... K>(std::index_sequence<K...>) { (add_operations<4 * K>(), ...); }
    (std::make_index_sequence<6>());
}

}  // namespace qk::bench
