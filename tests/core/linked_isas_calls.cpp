// SPDX-License-Identifier: Apache-2.0
// Calls of the whole core, compiled once for each of two instruction sets and linked into one program (linked_isas.cpp). QK_LINKED_NAME is
// the function's name.
#include "linked_isas.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qk/backward.hpp"
#include "qk/codec.hpp"
#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/codes.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/formats/parse.hpp"
#include "qk/layout.hpp"
#include "qk/observe.hpp"
#include "qk/product.hpp"
#include "qk/reference.hpp"
#include "qk/reference/dot.hpp"
#include "qk/scales.hpp"

namespace {

constexpr std::uint64_t offset = 0xcbf29ce484222325u;
std::uint64_t hash = offset;
std::vector<part_hash> parts;

/// Ends a part.
void done(std::string part) {
    parts.push_back({std::move(part), hash});
    hash = offset;
}

void take(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
}
void take(const std::vector<float>& v) {
    for (const float x : v) {
        const std::uint32_t bits = std::isnan(x) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x);
        take(&bits, sizeof bits);
    }
}
void take(const std::vector<std::byte>& v) { take(v.data(), v.size()); }
void take(std::string_view s) { take(s.data(), s.size()); }

constexpr std::size_t rows = 3, columns = 288, count = rows * columns;

std::vector<float> numbers(std::size_t n) {
    std::vector<float> x(n);
    std::uint32_t state = 1;
    for (float& v : x) {
        state = state * 1664525u + 1013904223u;
        v = std::ldexp(static_cast<float>(static_cast<std::int32_t>(state)), -31 + static_cast<int>(state >> 28) - 8);
    }
    return x;
}

/// Rounds, packs, unpacks and differentiates under every kind of parameters that the format has.
template <auto Format>
void known_format() {
    const std::vector<float> x = numbers(count);
    std::vector<float> y(count);
    qk::fake_quantize<Format>(x, y);
    take(y);
    qk::fake_quantize<Format>(x, y, qk::along_axis{rows, columns, 1});
    take(y);
    std::vector<std::byte> packed(qk::layout_of(Format, qk::along_axis{1, count, 1}).bytes());
    qk::encode<Format>(x, packed);
    take(packed);
    qk::decode<Format>(packed, y);
    take(y);
    qk::fake_quantize_backward<Format>(x, x, y);
    take(y);
}
void any_format(const qk::format& f) {
    take(qk::to_text(f).view());
    take(qk::check(f).view());
    const std::vector<float> x = numbers(count);
    std::vector<float> y(count);
    const std::vector<qk::float16> halves(count, qk::narrow<qk::float16>(0.3f));
    for (const qk::semantics& how : {qk::semantics::ocp, qk::semantics::quark, qk::semantics::microxcaling,
                                     qk::semantics{.rounding = qk::rounding::stochastic, .seed = 7}}) {
        qk::fake_quantize(f, x, y, how);
        take(y);
        qk::fake_quantize(f, x, y, qk::along_axis{rows, columns, 1}, how);
        take(y);
        qk::fake_quantize(f, x, y, qk::along_axis{1, rows, columns}, how);
        take(y);
        qk::reference::fake_quantize(f, x, y, how);
        take(y);
    }
    qk::fake_quantize(f, halves, y);
    take(y);
    qk::fake_quantize_backward(f, x, x, y);
    take(y);
    std::vector<float> scale(rows * columns / 32);
    if (!qk::is_block_format(f)) {
        const qk::affine one = qk::scale_from(f, x);
        qk::fake_quantize(f, x, y, one);
        take(y);
        qk::scales_from(f, x, {{rows, columns, 1}, 32}, qk::scale_choice::mse, scale);
        qk::fake_quantize(f, x, y, qk::per_block{scale, {}, {rows, columns, 1}, 32});
        take(y);
        qk::reference::fake_quantize(f, x, y, qk::per_block{scale, {}, {rows, columns, 1}, 32});
        take(y);
        qk::fake_quantize(f, x, y, qk::per_channel{std::span(scale).first(rows), {}, {1, rows, columns}});
        take(y);
    }
    if (!qk::encodable(f, qk::semantics::ocp)) return;
    std::vector<std::byte> packed(qk::layout_of(f, qk::along_axis{rows, columns, 1}).bytes());
    take(std::to_string(static_cast<int>(qk::encode(f, x, packed, qk::along_axis{rows, columns, 1}))));
    take(packed);
    qk::decode(f, packed, y, qk::along_axis{rows, columns, 1});
    take(y);
    const qk::packed_layout l = qk::layout_of(f, qk::along_axis{rows, columns, 1});
    const qk::packed_weights w{rows, columns, qk::planes_of(l, std::span<const std::byte>(packed))};
    std::vector<float> out(rows * 2);
    for (const qk::product_sums sums : {qk::product_sums::floats, qk::product_sums::chains}) {
        qk::product(f, w, {std::span(x).first(2 * columns), 2}, {out}, {.act = qk::activation::silu, .sums = sums});
        take(out);
    }
    std::vector<float> context(columns);
    qk::weighted_rows(f, {w, rows, columns}, {std::span(x).first(rows)}, {context});
    take(context);
}

void products() {
    const std::vector<float> x = numbers(count);
    std::vector<std::byte> packed(qk::layout_of(qk::mxfp4, qk::along_axis{rows, columns, 1}).bytes());
    qk::encode<qk::mxfp4>(x, packed, qk::along_axis{rows, columns, 1});
    const qk::packed_layout l = qk::layout_of(qk::mxfp4, qk::along_axis{rows, columns, 1});
    const qk::packed_weights w{rows, columns, qk::planes_of(l, std::span<const std::byte>(packed))};
    std::vector<float> y(rows);
    qk::product<qk::mxfp4>(w, {std::span(x).first(columns)}, {y}, {.sums = qk::product_sums::integers});
    take(y);
    qk::dot_rows<qk::mxfp4>({w, rows, columns}, {std::span(x).first(columns)}, {y});
    take(y);
    const qk::expert_choice chosen[] = {{.expert = 1}, {.expert = 2, .to = 1}};
    qk::grouped_product<qk::mxfp4>(w, {.rows = 1, .chosen = chosen}, {std::span(x).first(columns)}, {y});
    take(y);
}

void sums_of_products() {
    constexpr std::size_t k = 64;
    std::vector<std::byte> packed(256);
    for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::byte>(i * 37 % 120);
    qk::devices::each([&](const qk::device& d) {
        take(d.name);
        take(qk::to_text(d.accumulator).view());
        const std::uint64_t s = qk::dot(d.a, d.b, d.accumulator, {packed, k}, {packed, k}, 0);
        take(&s, sizeof s);
    });
    const float s = qk::dot<qk::fp8_e4m3fn, qk::fp8_e4m3fn, qk::accumulator{}>({packed, k}, {packed, k});
    qk::reference::dot_row row{std::vector<std::uint64_t>(k), {}, {}};
    for (std::size_t i = 0; i < k; ++i) row.elements[i] = std::to_integer<std::uint64_t>(packed[i]);
    const double same = qk::reference::dot(qk::fp8_e4m3fn, qk::fp8_e4m3fn, qk::accumulator{}, row, row, 0);
    take(&s, sizeof s);
    take(&same, sizeof same);
}

void layouts() {
    constexpr qk::matrix_shape shape{8, 256};
    const qk::layout from = qk::layouts::gptq(4, 128, true), to = qk::layouts::matmul_nbits(4, 128, qk::scale_type::f16, true);
    for (const std::string_view name : {"gptq.int4.128", "ggml.q4_K", "mlx.int4.64.bf16", "no.such"})
        take(qk::parse_layout(name).known ? "known" : "unknown");
    const qk::plane_sizes a = qk::sizes_of(from, shape), b = qk::sizes_of(to, shape);
    std::vector<std::byte> codes(a.codes, std::byte{0x5a}), scales(a.scales, std::byte{0x11}), zeros(a.zeros, std::byte{0x33});
    std::vector<std::byte> codes_to(b.codes), scales_to(b.scales), zeros_to(b.zeros);
    std::vector<std::uint8_t> scratch(shape.columns);
    take(std::to_string(qk::compare_layouts(from, to).count));
    const qk::repack_result r = qk::repack(from, shape, {codes, scales, zeros}, to, {codes_to, scales_to, zeros_to}, scratch);
    take(std::to_string(r.exact()));
    take(codes_to);
    take(zeros_to);
}

}  // namespace

std::vector<part_hash> QK_LINKED_NAME() {
    known_format<qk::mxfp4>();
    known_format<qk::nvfp4>();
    known_format<qk::fp8_e4m3fn>();
    known_format<qk::int8>();
    done("formats known when compiling");
    for (const qk::named_format& e : qk::catalogue) {
        any_format(e.format);
        done(std::string(e.name));
    }
    any_format(qk::p3109(8, 3));
    done("IEEE P3109");
    for (const std::string_view text : {"mxpf4", "floating:exponent=9,mantissa=3", "int4"}) take(qk::parse_format(text).error.view());
    done("parse_format");
    products();
    done("products");
    sums_of_products();
    done("dot products");
    layouts();
    done("layouts");
    qk::observed_range range;
    range.observe(numbers(count));
    std::array<std::uint64_t, 16> bins{};
    qk::observe_histogram(numbers(count), -1, 1, bins);
    take(bins.data(), sizeof bins);
    take(&range.max, sizeof range.max);
    done("observers");
    return parts;
}
