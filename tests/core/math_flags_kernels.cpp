// SPDX-License-Identifier: Apache-2.0
// Kernels and oracle as a consumer compiles them, with the flags that math_flags.py gives.
#include "math_flags.hpp"

#include <type_traits>

#include <qk/dot.hpp>
#include <qk/qk.hpp>
#include <qk/reference.hpp>

namespace {

template <auto Format, bool Packs>
results through(std::span<const float> x) {
    results r{std::vector<float>(x.size()), std::vector<float>(x.size()), std::vector<float>(x.size())};
    std::vector<std::byte> packed(qk::packed_bytes<Format>(x.size()));
    const auto under = [&](auto... scale) {
        qk::fake_quantize<Format>(x, r.fake_quantized, scale...);
        if constexpr (Packs) {
            qk::encode<Format>(x, packed, scale...);
            qk::decode<Format>(packed, r.decoded, scale...);
        } else {
            r.decoded = r.fake_quantized;
        }
    };
    qk::affine scale{};
    if constexpr (qk::is_integer_format(Format)) under(scale = {.scale = integer_scale});
    else if constexpr (std::is_same_v<std::remove_const_t<decltype(Format)>, qk::nvfloat>) under(scale);
    else under();
    qk::reference::fake_quantize(Format, x, r.oracle, scale, qk::semantics{});
    return r;
}

}  // namespace

std::vector<results> run_kernels(std::span<const float> x) {
    return {through<qk::int8, true>(x), through<qk::bf16, false>(x), through<qk::bfp16, true>(x), through<qk::mx9, false>(x),
            through<qk::nvfp4, false>(x)};
}

float sum_of_products(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t size) {
    return qk::dot<qk::fp16, qk::fp16, qk::accumulators::sequential_fp32>({a, size}, {b, size});
}

/// A user's own function behind the headers: the flags still hold for it.
float users_own(float a, float b) { return (a + b) - a; }
