// SPDX-License-Identifier: Apache-2.0
// gguf-py, the quantizers in numpy beside ggml's in C: the same bytes on finite data but for the sign of a scale of zero. Where they differ
// is in Inf and NaN, which numpy's maxima pass on.
#include <algorithm>

#include "ggml_blocks.hpp"
#include "planes.hpp"
#include "qk/systems/ggml.hpp"
#include "tables.hpp"

namespace qk::systems {
namespace {

/// abs(x).max(): NaN wins. And the element of largest magnitude, the first; a NaN again wins.
float numpy_maximum_element(std::span<const float> x) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (x[i] != x[i]) return x[i];
        if (std::abs(x[i]) > std::abs(x[best])) best = i;
    }
    return x[best];
}
/// numpy's astype(uint8) and astype(int8) on x86.
std::uint8_t byte_cast(float v) { return static_cast<std::uint8_t>(ggml::truncated(v) & 0xff); }

struct affine_range {
    float low, high;
};
affine_range numpy_range(std::span<const float> x) {
    affine_range r{x[0], x[0]};
    for (const float v : x) {
        if (v != v) return {quiet_nan, quiet_nan};
        if (v <= r.low) r.low = v;  // of +0 and -0 the later one stays, as in x86's minps
        if (v >= r.high) r.high = v;
    }
    return r;
}
float round_away(float v) {
    const float a = std::abs(v), whole = std::floor(a);
    const float sign = v > 0 ? 1.0f : v < 0 ? -1.0f : v;
    return sign * (whole + std::floor(2 * (a - whole)));
}
float inverse_of(float d) { return d == 0 ? 0.0f : 1.0f / d; }

/// Codes of 32 values in the order of a block, and what stands before them.
std::vector<std::uint8_t> legacy_block(std::string_view format, std::span<const float> x) {
    const bool five = format[1] == '5', with_minimum = format[3] == '1';
    std::vector<std::uint8_t> block;
    const auto put_half = [&block](float v) {
        const std::uint16_t code = to_half(v);
        block.push_back(static_cast<std::uint8_t>(code & 0xff));
        block.push_back(static_cast<std::uint8_t>(code >> 8));
    };
    const int most = five ? 31 : 15;
    std::uint8_t codes[32];
    if (with_minimum) {
        const affine_range r = numpy_range(x);
        const float d = (r.high - r.low) / static_cast<float>(most), id = inverse_of(d);
        for (std::size_t i = 0; i < 32; ++i)
            codes[i] = std::min<std::uint8_t>(byte_cast(std::trunc((x[i] - r.low) * id + 0.5f)), static_cast<std::uint8_t>(most));
        put_half(d);
        put_half(r.low);
    } else {
        const float half = five ? 16.0f : 8.0f;
        const float extreme = numpy_maximum_element(x);
        const float d = extreme != extreme ? extreme : extreme / -half, id = inverse_of(d);
        for (std::size_t i = 0; i < 32; ++i)
            codes[i] = std::min<std::uint8_t>(byte_cast(std::trunc(x[i] * id + (half + 0.5f))), static_cast<std::uint8_t>(most));
        put_half(d);
    }
    if (five) {
        for (std::size_t i = 0; i < 32; i += 8) {
            unsigned bits = 0;
            for (std::size_t k = 0; k < 8; ++k) bits |= ((codes[i + k] >> 4) & 1u) << k;
            block.push_back(static_cast<std::uint8_t>(bits));
        }
    }
    for (std::size_t i = 0; i < 16; ++i) block.push_back(static_cast<std::uint8_t>((codes[i] & 15) | codes[i + 16] << 4));
    return block;
}

std::vector<std::uint8_t> q8_block(std::span<const float> x) {
    std::vector<std::uint8_t> block;
    const float d = absolute_maximum(x) / 127, id = inverse_of(d);
    const std::uint16_t code = to_half(d);
    block.push_back(static_cast<std::uint8_t>(code & 0xff));
    block.push_back(static_cast<std::uint8_t>(code >> 8));
    for (const float v : x) block.push_back(byte_cast(round_away(v * id)));
    return block;
}

std::vector<std::uint8_t> mxfp4_block(std::span<const float> x) {
    const float most = absolute_maximum(x);
    const std::uint8_t e = most > 0 ? byte_cast(std::floor(log2_float(most)) - 2 + 127) : std::uint8_t{0};
    const float d = ggml::half_e8m0(e);
    std::vector<std::uint8_t> block{e};
    for (std::size_t i = 0; i < 16; ++i)
        block.push_back(static_cast<std::uint8_t>(ggml::nearest_e2m1(x[i], d) | ggml::nearest_e2m1(x[i + 16], d) << 4));
    return block;
}

}  // namespace

result gguf_rule(const rule& how, const input& x) {
    result made{{x.rows, x.columns}, std::vector<float>(x.values.size()), {}};
    std::vector<std::uint8_t> codes;
    if (how.format == "bf16") {
        for (std::size_t i = 0; i < x.values.size(); ++i) {
            const std::uint16_t code = to_bfloat16(x.values[i]);
            codes.push_back(static_cast<std::uint8_t>(code & 0xff));
            codes.push_back(static_cast<std::uint8_t>(code >> 8));
            made.values[i] = from_bfloat16(code);
        }
        made.planes.push_back(make_plane("codes", {x.rows, 2 * x.columns}, codes));
        return made;
    }
    for (std::size_t at = 0; at < x.values.size(); at += 32) {
        const auto part = x.values.subspan(at, 32);
        const auto block = how.format == "q8_0"    ? q8_block(part)
                           : how.format == "mxfp4" ? mxfp4_block(part)
                                                   : legacy_block(how.format, part);
        codes.insert(codes.end(), block.begin(), block.end());
    }
    ggml::find(how.format)->dequantize(std::as_bytes(std::span(codes)), made.values);
    made.planes.push_back(make_plane("codes", {x.rows, codes.size() / x.rows}, codes));
    return made;
}

}  // namespace qk::systems
