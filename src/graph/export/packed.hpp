// SPDX-License-Identifier: Apache-2.0
// Packs a constant as codes at their true width, which a function of style portable turns back into float32; the values of these codes.
#pragma once

#include <numeric>
#include <optional>

#include "graph/base/kernel_calls.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/export/codes.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {

/// Codes of one width are cut into planes of 8 bits and one of the rest. A plane holds codes one after the other, from the lowest bit on.
constexpr int plane_count(int width) { return (width + 7) / 8; }
constexpr int plane_bits(int width, int plane) { return plane + 1 < plane_count(width) || width % 8 == 0 ? 8 : width % 8; }
/// The smallest group of codes that fills whole bytes: `bytes` hold `codes`.
struct packing_group {
    int bytes, codes;
};
constexpr packing_group group_of(int plane_width) { return {plane_width / std::gcd(plane_width, 8), 8 / std::gcd(plane_width, 8)}; }

inline std::vector<tensor> pack_planes(std::span<const std::uint32_t> codes, int width) {
    std::vector<tensor> planes;
    for (int p = 0; p < plane_count(width); ++p) {
        const auto w = static_cast<std::size_t>(plane_bits(width, p));
        const packing_group g = group_of(static_cast<int>(w));
        const std::size_t groups = (codes.size() + static_cast<std::size_t>(g.codes) - 1) / static_cast<std::size_t>(g.codes);
        tensor plane(data_type::uint8, {static_cast<std::int64_t>(groups) * g.bytes});
        std::memset(plane.bytes(), 0, plane.size_bytes());
        const auto bytes = plane.as<std::uint8_t>();
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const std::uint32_t part = codes[i] >> (8 * p) & ((1u << w) - 1);
            const std::size_t bit = i * w;
            const std::uint32_t placed = part << bit % 8;
            bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | placed);
            if (placed >> 8) bytes[bit / 8 + 1] = static_cast<std::uint8_t>(bytes[bit / 8 + 1] | placed >> 8);
        }
        planes.push_back(std::move(plane));
    }
    return planes;
}

/// Returns code `i` of a plane.
inline std::uint32_t code_in(std::span<const std::uint8_t> plane, std::size_t width, std::size_t i) {
    const std::size_t bit = i * width;
    const std::uint32_t both = plane[bit / 8] | (bit / 8 + 1 < plane.size() ? std::uint32_t{plane[bit / 8 + 1]} << 8 : 0u);
    return both >> bit % 8 & ((1u << width) - 1);
}
/// Inverts pack_planes.
inline std::vector<std::uint32_t> codes_of_planes(const std::vector<tensor>& planes, int width, std::size_t count) {
    std::vector<std::uint32_t> codes(count, 0);
    for (int p = 0; p < plane_count(width); ++p) {
        const auto w = static_cast<std::size_t>(plane_bits(width, p));
        const auto bytes = planes[static_cast<std::size_t>(p)].as<std::uint8_t>();
        for (std::size_t i = 0; i < count; ++i) codes[i] |= code_in(bytes, w, i) << (8 * p);
    }
    return codes;
}

/// Returns the plane of the zero points of blocks as codes of the elements' width; nullopt where they are no codes, or wider than a byte.
inline std::optional<tensor> packed_zero_points(const quantizer& q) {
    const integer* f = std::get_if<integer>(&q.format);
    if (f == nullptr || f->bits > 8 || q.block_size == 0 || q.zero_point.size() != q.scale.size()) return std::nullopt;
    std::vector<std::uint32_t> codes;
    for (const std::int64_t zero : q.zero_point) {
        if (zero < qmin(*f) || zero > qmax(*f)) return std::nullopt;
        codes.push_back(reference::low_bits(zero, f->bits));
    }
    return pack_planes(codes, f->bits).front();
}
/// Inverts packed_zero_points.
inline std::vector<std::int64_t> unpacked_zero_points(const integer& f, const tensor& plane, std::size_t count) {
    const auto bytes = plane.as<std::uint8_t>();
    const auto width = static_cast<std::size_t>(f.bits);
    std::vector<std::int64_t> zeros;
    for (std::size_t i = 0; i < count && (i + 1) * width <= bytes.size() * 8; ++i) {
        const std::uint32_t code = code_in(bytes, width, i);
        zeros.push_back(f.is_signed ? reference::sign_extend(code, f.bits) : std::int64_t{code});
    }
    return zeros;
}

struct packed_constant {
    along_axis view;         ///< the tensor as [outer][length][inner]
    std::size_t blocks = 0;  ///< number of scales along the axis; 0: one scale, or one a channel
    int element_bits = 8, scale_bits = 0, shift_bits = 0;
    std::vector<tensor> elements, scales, shifts;  ///< planes; shifts: [outer][blocks * sub-blocks][inner]
    std::size_t scale_count = 0, shift_count = 0;  ///< scales of blocks and shifts of sub-blocks
    float tensor_scale = 0;                        ///< NVFP4's

    std::size_t bytes() const {
        std::size_t n = 0;
        for (const auto* planes : {&elements, &scales, &shifts})
            for (const tensor& t : *planes) n += t.size_bytes();
        return n;
    }
};

/// Returns the bits of an element's code and of a block's scale code (0: no such code).
inline std::pair<int, int> code_bits(const format& f) {
    if (const floating* g = std::get_if<floating>(&f)) return {bits(*g), 0};
    if (const integer* g = std::get_if<integer>(&f)) return {g->bits, 0};
    if (const table* g = std::get_if<table>(&f)) return {bits(*g), 0};
    if (const block_float* g = std::get_if<block_float>(&f)) return {g->mantissa_bits + 1, g->exponent_bits};
    if (const microexponent* g = std::get_if<microexponent>(&f)) return {g->mantissa_bits + 1, g->exponent_bits};
    if (const microscaling* g = std::get_if<microscaling>(&f)) return {element_bits(*g), 8};
    return {bits(*element_float(f)), bits(*scale_float(f))};
}

/// Pads a plane of the codec (docs/reference/layouts.md), which has the order of pack_planes, to whole groups of codes.
inline tensor plane_of(std::span<const std::byte> bytes, int width) {
    const auto group = static_cast<std::size_t>(group_of(width).bytes), size = (bytes.size() + group - 1) / group * group;
    tensor plane(data_type::uint8, {static_cast<std::int64_t>(size)});
    std::memcpy(plane.bytes(), bytes.data(), bytes.size());
    std::memset(plane.bytes() + bytes.size(), 0, size - bytes.size());
    return plane;
}

/// Encodes blocks with the kernels, which give the same codes as the oracle. Returns false where the codes do not have the form of `p` or
/// do not decode to what the quantizer makes of x.
inline bool encoded(const quantizer& q, const tensor& x, packed_constant& p) {
    if (std::holds_alternative<microexponent>(q.format) || p.element_bits > 8 || p.scale_bits > 8) return false;
    const affine scale{.scale = q.scale.empty() ? 0.0f : q.scale[0]};
    const codec_parameters how = has_floating_scales(q.format) ? codec_parameters(p.view, scale) : codec_parameters(p.view);
    const packed_layout layout = layout_of(q.format, p.view);
    std::vector<std::byte> bytes(layout.bytes());
    if (kernel_calls::encode(q.format, x.as<float>(), std::span(bytes), how, q.semantics) != encode_status::done) return false;
    tensor wanted(data_type::float32, x.shape()), again(data_type::float32, x.shape());
    execute::quantize_value(q, x.shape(), false, x.as<float>(), wanted.as<float>());
    kernel_calls::decode(q.format, std::span<const std::byte>(bytes), again.as<float>(), how);
    if (std::memcmp(wanted.bytes(), again.bytes(), wanted.size_bytes()) != 0) return false;
    const auto planes = planes_of(layout, std::span<const std::byte>(bytes));
    p.elements.push_back(plane_of(planes.elements, p.element_bits));
    p.scales.push_back(plane_of(planes.scales, p.scale_bits));
    if (has_tensor_scale(q.format)) std::memcpy(&p.tensor_scale, planes.tensor.data(), sizeof(float));
    else if (has_floating_scales(q.format)) p.tensor_scale = q.scale.empty() ? 1.0f : q.scale[0];
    return true;
}

/// Returns the codes of x; nullopt when decoding them does not give exactly what the quantizer makes of x (special values without a code,
/// unclamped scales), and for dynamic scales, elements of more than 16 bits, and e8m0.
inline std::optional<packed_constant> packed(const quantizer& q, const tensor& x) {
    const bool blocked = is_block_format(q.format);
    if (const integer* f = std::get_if<integer>(&q.format); q.dynamic || (f != nullptr && f->bits > 16) || q.format == qk::format(e8m0))
        return std::nullopt;
    // A function computes values of more than 8 bits from the fields of classic formats.
    if (const floating* f = std::get_if<floating>(&q.format); f != nullptr && bits(*f) > 8 && (!is_classic(*f) || bits(*f) > 16))
        return std::nullopt;
    packed_constant p;
    p.view = view_along(x.shape(), q.axis, q.flatten && (blocked || q.block_size > 0));
    std::tie(p.element_bits, p.scale_bits) = code_bits(q.format);
    if (blocked) {
        const auto block = static_cast<std::size_t>(block_size(q.format));
        p.blocks = (p.view.length + block - 1) / block;
        p.scale_count = p.view.outer * p.blocks * p.view.inner;
        if (x.size() != 0 && encoded(q, x, p)) return p;
    }
    std::vector<std::uint32_t> elements(x.size());
    const tensor wanted = rounded(q, x);
    tensor again(data_type::float32, x.shape());
    if (!blocked) {
        if (q.block_size > 0)
            p.blocks = (p.view.length + static_cast<std::size_t>(q.block_size) - 1) / static_cast<std::size_t>(q.block_size);
        for_each_scale(q, x.shape(), x.size(), [&](std::size_t i, float scale, std::int64_t zero_point, bool one) {
            const float v = x.as<float>()[i];
            const std::uint32_t random = reference::random_word(q.semantics, i);
            if (const floating* f = std::get_if<floating>(&q.format)) {
                const float rounded_quotient = reference::quantize(*f, scale == 1 ? v : reference::divide(v, scale), q.semantics, random);
                elements[i] = reference::code_of(*f, rounded_quotient);
                again.as<float>()[i] =
                    scale == 1 ? reference::value_of(*f, elements[i]) : reference::multiply(reference::value_of(*f, elements[i]), scale);
            } else if (const table* t = std::get_if<table>(&q.format)) {
                const float quotient = scale == 1 ? v : reference::divide(reference::flush_input(v, q.semantics), scale);
                elements[i] = static_cast<std::uint32_t>(std::max(0, reference::code_of(*t, quotient, q.semantics, random)));
                const float number = value_of(*t, elements[i]);
                again.as<float>()[i] = scale == 1 ? number : reference::multiply(number, scale);
            } else {
                const integer g = std::get<integer>(q.format);
                const std::int64_t code = reference::code_of(g, v, scale, zero_point, one, q.semantics, random);
                elements[i] = reference::low_bits(code, g.bits);
                again.as<float>()[i] = reference::value_of(code, scale, zero_point);
            }
        });
    } else {
        std::vector<std::uint32_t> scales(p.scale_count);
        const microexponent* m = std::get_if<microexponent>(&q.format);
        const std::size_t parts = m ? reference::sub_blocks(*m) : 0;
        p.shift_count = scales.size() * parts;
        std::vector<std::uint32_t> shifts(p.shift_count), placed(p.shift_count);
        std::visit(
            [&](const auto& f) {
                if constexpr (qk::detail::under_floating_scales<std::remove_cvref_t<decltype(f)>>)
                    p.tensor_scale = q.scale.empty() ? reference::tensor_scale(f, x.as<float>(), q.semantics) : q.scale[0];
            },
            q.format);
        const affine scale{.scale = p.tensor_scale};
        const reference::coded out{elements, scales, shifts};
        reference::encode(q.format, x.as<float>(), out, p.view, scale, q.semantics);
        reference::decode(q.format, out, again.as<float>(), p.view, scale);
        if (m) p.shift_bits = m->shift_bits;
        for (std::size_t k = 0; k < scales.size(); ++k)
            for (std::size_t j = 0; j < parts; ++j)
                placed[(k / p.view.inner * parts + j) * p.view.inner + k % p.view.inner] = shifts[k * parts + j];
        p.scales = pack_planes(scales, p.scale_bits);
        if (p.shift_bits > 0) p.shifts = pack_planes(placed, p.shift_bits);
    }
    if (std::memcmp(wanted.bytes(), again.bytes(), wanted.size_bytes()) != 0) return std::nullopt;
    p.elements = pack_planes(elements, p.element_bits);
    return p;
}

/// Returns the element of a code, in units of its scale.
inline float element_of(const format& f, int width, std::uint32_t c) {
    if (const floating* g = std::get_if<floating>(&f)) return reference::value_of(*g, c);
    if (const table* t = std::get_if<table>(&f)) return value_of(*t, c);
    if (const floating* e = element_float(f)) return reference::value_of(*e, c);
    if (const integer* i = std::get_if<integer>(&f))
        return static_cast<float>(i->is_signed ? reference::sign_extend(c, width) : std::int64_t{c});
    if (std::holds_alternative<microscaling>(f))
        return static_cast<float>(static_cast<double>(reference::sign_extend(c, width)) / power_of_two(width - 2));
    if (const block_float* b = std::get_if<block_float>(&f); b != nullptr && b->bump)
        return static_cast<float>(reference::sign_extend(c, width));
    return c >> (width - 1) ? -static_cast<float>(c ^ 1u << (width - 1)) : static_cast<float>(c);
}

/// Returns the elements of all codes, which have at most 8 bits; elements_of uses operators for wider ones.
inline std::vector<float> element_table(const format& f, int width) {
    std::vector<float> all(std::size_t{1} << width);
    for (std::uint32_t c = 0; c < all.size(); ++c) all[c] = element_of(f, width, c);
    return all;
}

/// Returns the value of each code of a block's scale.
inline std::vector<float> scale_table(const format& f, int width) {
    std::vector<float> table(std::size_t{1} << width);
    for (std::uint32_t c = 0; c < table.size(); ++c) {
        const bool last = c + 1 == table.size();
        if (const block_float* b = std::get_if<block_float>(&f))
            table[c] = last ? reference::quiet_nan : static_cast<float>(power_of_two(reference::step_exponent(*b, static_cast<int>(c))));
        else if (const microexponent* m = std::get_if<microexponent>(&f))
            table[c] = last ? reference::quiet_nan : static_cast<float>(power_of_two(reference::step_exponent(*m, static_cast<int>(c), 0)));
        else if (const floating* scale = scale_float(f)) table[c] = reference::value_of(*scale, c);
        else table[c] = reference::value_of(e8m0, c);
    }
    return table;
}

}  // namespace qk::graph::detail
