// SPDX-License-Identifier: Apache-2.0
#include "qk/compare/conversion.hpp"

#include <cstring>

#include "qk/reference.hpp"
#ifdef QK_COMPARE_DISPATCH
#include "qk/dispatch.hpp"
#endif
#include "qk/codec/block_factors.hpp"

namespace qk::compare {
#ifdef QK_COMPARE_DISPATCH
namespace kernels_here = qk::dispatch;
#else
namespace kernels_here = qk;
#endif

affine conversion::one() const {
    if (given != granularity::tensor) return {.scale = has_floating_scales(format) ? 0.0f : 1.0f};
    return {.scale = scale[0], .zero_point = zero_point.empty() ? 0 : zero_point[0]};
}

along_axis seen_along(std::span<const std::int64_t> shape, int axis) {
    along_axis a{1, 1, 1};
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const auto d = static_cast<std::size_t>(shape[i]);
        if (static_cast<int>(i) < axis) a.outer *= d;
        else if (static_cast<int>(i) == axis) a.length = d;
        else a.inner *= d;
    }
    return a;
}

codec_parameters parameters_of(const conversion& c) {
    switch (c.given) {
        case conversion::granularity::channel: return c.channels();
        case conversion::granularity::block: return c.grid();
        default: return is_block_format(c.format) ? codec_parameters(c.blocks, c.one()) : codec_parameters(c.one());
    }
}

packed_layout layout_of(const conversion& c, std::size_t n) {
    return qk::layout_of(c.format, is_block_format(c.format) ? c.blocks : along_axis{1, n, 1});
}

void fake_quantize(const conversion& c, std::span<const float> x, std::span<float> y) {
    if (x.empty()) return;
    switch (c.given) {
        case conversion::granularity::none:
        case conversion::granularity::tensor:
            if (is_block_format(c.format)) return kernels_here::fake_quantize(c.format, x, y, c.blocks, c.one(), c.how);
            return kernels_here::fake_quantize(c.format, x, y, c.one(), c.how);
        case conversion::granularity::channel: return kernels_here::fake_quantize(c.format, x, y, c.channels(), c.how);
        case conversion::granularity::block: return kernels_here::fake_quantize(c.format, x, y, c.grid(), c.how);
    }
}

void expected_values(const conversion& c, std::span<const float> x, std::span<float> y) {
    switch (c.given) {
        case conversion::granularity::none:
        case conversion::granularity::tensor:
            // Where scales are searched the oracle tries every one, the kernels with the same result a few.
            if (is_searched(c.how.scale_rule)) return fake_quantize(c, x, y);
            return reference::fake_quantize(c.format, x, y, c.blocks, c.one(), c.how);
        case conversion::granularity::channel: return reference::fake_quantize(c.format, x, y, c.channels(), c.how);
        case conversion::granularity::block: return reference::fake_quantize(c.format, x, y, c.grid(), c.how);
    }
}

namespace {

/// Returns the index in `scale` and `zero_point` for the value at position i.
std::size_t entry_of(const conversion& c, std::size_t i) {
    if (c.given == conversion::granularity::none || c.given == conversion::granularity::tensor) return 0;
    const along_axis a = c.scale_blocks;
    return parameters_of(c).index(a, i / (a.inner * a.length), i / a.inner % a.length, i % a.inner);
}

std::vector<float> units_of_blocks(const conversion& c, std::span<const float> x) {
    std::vector<float> unit(x.size(), 1.0f);
    qk::semantics how = c.how;  // only the scales matter here: any special value makes its block NaN
    how.mx_specials = how.bfp_specials = block_specials::block_nan;
    how.clamp_mx_scale = true;
    how.mxint_zero = zero_sign::positive;
    std::vector<std::byte> packed(packed_bytes(c.format, c.blocks));
    if (kernels_here::encode(c.format, x, std::span(packed), parameters_of(c), how) != encode_status::done) return unit;
    const const_planes planes = planes_of(layout_of(c.format, c.blocks), std::span<const std::byte>(packed));
    block_factors(c.format, planes, c.blocks, unit);
    return unit;
}

}  // namespace

std::int64_t zero_point_of(const conversion& c, std::size_t i) { return c.zero_point.empty() ? 0 : c.zero_point[entry_of(c, i)]; }

float scale_of(const conversion& c, std::size_t i) { return c.scale.empty() ? 1.0f : c.scale[entry_of(c, i)]; }

std::vector<float> units_of(const conversion& c, std::span<const float> x) {
    if (x.empty()) return {};
    if (is_block_format(c.format)) return units_of_blocks(c, x);
    std::vector<float> unit(x.size(), 1.0f);
    for (std::size_t i = 0; i < x.size() && !c.scale.empty(); ++i) unit[i] = scale_of(c, i);
    return unit;
}

}  // namespace qk::compare
