// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime/kernel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "qk/codec/layout/layout.hpp"
#include "qk/dispatch.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/observe.hpp"
#include "qk/portable/range_scale.hpp"
#include "qk/storage.hpp"

namespace qk::onnxruntime {
namespace {

using enum portable::scale_source;

/// The scales and zero points that a call was given.
struct given_scales {
    std::span<const float> scale;
    zero_points_in zero_point;  ///< empty: all 0

    /// Returns the parameters of one scale for the tensor.
    affine only() const { return {scale[0], zero_point.empty() ? 0 : zero_point[0]}; }
};

/// Unpacks codes of at most 8 bits to whole numbers of a byte. `Memory` here and below: what has room_for().
template <class Byte, class Memory>
std::span<const Byte> unpacked(const integer& f, std::span<const std::uint8_t> bytes, std::size_t count, Memory& memory) {
    const auto width = static_cast<std::size_t>(f.bits);
    if (width > 8 || bytes.size() * 8 < count * width) throw refusal("its zero points are too few");
    const auto zeros = memory.template room_for<Byte>(count);
    const unsigned sign = f.is_signed ? 1u << (width - 1) : 0u, all = (1u << width) - 1;
    const auto number = [&](unsigned code) { return static_cast<Byte>(static_cast<int>((code & all) ^ sign) - static_cast<int>(sign)); };
    std::size_t i = 0;
    if (width == 4)
        for (; i + 2 <= count; i += 2) zeros[i] = number(bytes[i / 2]), zeros[i + 1] = number(unsigned{bytes[i / 2]} >> 4);
    for (; i < count; ++i) {
        const std::size_t bit = i * width;
        zeros[i] = number((bytes[bit / 8] | (bit / 8 + 1 < bytes.size() ? unsigned{bytes[bit / 8 + 1]} << 8 : 0u)) >> bit % 8);
    }
    return zeros;
}

/// Returns zero points as numbers: floats and doubles that are whole, or codes of the format.
template <class Memory>
zero_points_in zero_points(const call_meaning& m, const input_tensor& t, std::size_t count, Memory& memory) {
    const integer* f = std::get_if<integer>(&m.format);
    if (f == nullptr) throw refusal("only integer formats have zero points");
    if (t.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8) {
        if (f->is_signed) return unpacked<std::int8_t>(*f, t.as<std::uint8_t>(), count, memory);
        return unpacked<std::uint8_t>(*f, t.as<std::uint8_t>(), count, memory);
    }
    const auto zeros = memory.template room_for<std::int64_t>(count);
    if (t.size != 1 && t.size != count)
        throw refusal("it has " + std::to_string(t.size) + " zero points for " + std::to_string(count) + " scales");
    const bool wide = t.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
    if (!wide && t.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) throw refusal("its zero points are neither float nor double");
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = t.size == 1 ? 0 : i;
        const double v = wide ? t.as<double>()[at] : static_cast<double>(t.as<float>()[at]);
        if (!(v >= static_cast<double>(qmin(*f)) && v <= static_cast<double>(qmax(*f)) && v == std::floor(v)))
            throw refusal("a zero point is no code of its format");
        zeros[i] = static_cast<std::int64_t>(v);
    }
    return zeros;
}

/// Returns whether all are finite numbers above 0. It looks at sixteen at a time: a matrix has a million of them.
bool are_scales(std::span<const float> all) {
    constexpr std::size_t step = 16;
    const auto is_one = [](float s) { return (s > 0) & (s <= std::numeric_limits<float>::max()); };
    std::size_t i = 0;
    int good = 1;
    for (; i + step <= all.size(); i += step) {
        int each = 1;
        for (std::size_t k = 0; k < step; ++k) each &= is_one(all[i + k]);
        good &= each;
    }
    for (; i < all.size(); ++i) good &= is_one(all[i]);
    return good != 0;
}

/// `known`: what is known of them, or null.
template <class Memory>
given_scales scales_of(const call_meaning& m, const along_axis& a, const input_tensor& scale, const input_tensor& zero, Memory& memory,
                       const constant_scales* known = nullptr) {
    if (!scale.is_there()) throw refusal("its input 'scale' is missing");
    if (scale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) throw refusal("its scales are not float32");
    const std::size_t wanted = m.scales == channels ? a.length
                               : m.scales == blocks ? a.outer * ((a.length + m.block - 1) / m.block) * a.inner
                                                    : 1;
    if (scale.size != wanted)
        throw refusal("it has " + std::to_string(scale.size) + " scales for " + std::to_string(wanted) +
                      (m.scales == blocks     ? " blocks"
                       : m.scales == channels ? " channels"
                                              : " tensor"));
    if (known != nullptr && known->known) return {scale.as<float>(), known->zero_point};
    given_scales g{.scale = scale.as<float>(), .zero_point = {}};
    if (!are_scales(g.scale)) throw refusal("a scale is no finite number above 0");
    if (zero.is_there()) g.zero_point = zero_points(m, zero, wanted, memory);
    return g;
}

/// Returns the scales of a part, which lie together, as they do for the whole.
template <class Values>
Values of_part(const call_meaning& m, const along_axis& whole, const part& p, const Values& all) {
    if (all.empty()) return all;
    if (m.scales == channels) return all.subspan(p.along, p.axis.length);
    const std::size_t row = (whole.length + m.block - 1) / m.block;
    return all.subspan((p.outer * row + p.along / m.block) * whole.inner,
                       p.axis.outer * ((p.axis.length + m.block - 1) / m.block) * whole.inner);
}

/// Returns the smallest and the largest finite value, with 0 among them.
std::pair<float, float> range_of(std::span<const float> x, run_context& run) {
    const parts all({1, x.size(), 1}, 1, 1);
    const auto of = run.room_for<std::pair<float, float>>(all.count());
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        observed_range r;
        r.observe(x.subspan(all[i].offset, all[i].size()));
        of[i] = {std::min(r.min, 0.0f), std::max(r.max, 0.0f)};
    });
    return std::accumulate(of.begin(), of.end(), std::pair(0.0f, 0.0f), [](const auto& a, const auto& b) {
        return std::pair(std::min(a.first, b.first), std::max(a.second, b.second));
    });
}

void quantize_blocks(const call_meaning& m, along_axis a, std::span<const float> x, std::span<float> y, const input_tensor& scale,
                     run_context& run) {
    float of_tensor = 1;
    if (has_floating_scales(m.format)) {
        if (scale.is_there()) {
            if (scale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || scale.size != 1)
                throw refusal("the scale of its tensor is not one float32");
            of_tensor = scale.as<float>()[0];
            if (!(of_tensor > 0 && std::isfinite(of_tensor))) throw refusal("the scale of its tensor is no finite number above 0");
        } else if (has_tensor_scale(m.format)) {
            const auto [low, high] = range_of(x, run);
            of_tensor = kernels::tensor_scale_of(m.format, std::max(-low, high), m.semantics);
        }
    }
    if (a.inner == 1 && a.length % m.block == 0) a = {1, x.size(), 1};  // blocks follow each other: one row
    const parts all(a, 1, m.block);
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        const part p = all[i];
        const auto from = x.subspan(p.offset, p.size());
        const auto to = y.subspan(p.offset, p.size());
        if (has_floating_scales(m.format)) dispatch::fake_quantize(m.format, from, to, p.axis, affine{of_tensor, 0}, m.semantics);
        else dispatch::fake_quantize(m.format, from, to, p.axis, m.semantics);
    });
}

}  // namespace

void quantize(const call_meaning& m, run_context& run) {
    const input_tensor in = run.input(0);
    if (in.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) throw refusal("its input is not float32");
    quantize(m, in.shape, in.as<float>(), run.output<float>(in.shape), run.input(1), run.input(2), run);
}

void quantize(const call_meaning& m, std::span<const std::int64_t> shape, std::span<const float> x, std::span<float> y,
              const input_tensor& scale, const input_tensor& zero, run_context& run) {
    const along_axis a = seen_along(m, shape);
    if (x.empty()) return;
    if (m.scales == own) return quantize_blocks(m, a, x, y, scale, run);
    given_scales given;
    affine only;
    if (m.scales == portable::scale_source::run) {
        const auto [low, high] = range_of(x, run);
        only = scale_of_range(m.format, low, high);
    } else if (m.scales != none) {
        given = scales_of(m, a, scale, zero, run);
        only = given.only();
    }
    const parts all(a, 1, m.scales == blocks ? m.block : 1);
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        const part p = all[i];
        const auto from = x.subspan(p.offset, p.size());
        const auto to = y.subspan(p.offset, p.size());
        if (m.scales == none) return dispatch::fake_quantize(m.format, from, to, m.semantics);
        if (m.scales != channels && m.scales != blocks) return dispatch::fake_quantize(m.format, from, to, only, m.semantics);
        const auto scales = of_part(m, a, p, given.scale);
        const auto zeros = of_part(m, a, p, given.zero_point);
        if (m.scales == channels) return dispatch::fake_quantize(m.format, from, to, per_channel{scales, zeros, p.axis}, m.semantics);
        dispatch::fake_quantize(m.format, from, to, per_block{scales, zeros, p.axis, m.block}, m.semantics);
    });
}

namespace {

/// Returns whether a call has an input for a plane of its format.
bool is_input(const plane& p) { return p.count != 0 || p.bits != 0; }

/// A packed constant as a call holds it: the planes, cut to their layout, and the scales beside them.
struct held_codes {
    along_axis axis;
    const_planes planes;
    given_scales given;
    affine only{.scale = 1};
};

/// Reads inputs from number `next` on; `input` gives the one of a number.
template <class Input>
held_codes held_in(const call_meaning& m, std::size_t next, run_context& run, const Input& input, const constant_scales* known = nullptr) {
    held_codes h{.axis = seen_along(m, m.shape), .planes = {}, .given = {}};
    const packed_layout whole = layout_of(m.format, h.axis);
    const auto plane_of = [&](const plane& wanted, const char* what) -> std::span<const std::byte> {
        if (!is_input(wanted)) return {};
        const input_tensor t = input(next++);
        if (t.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 || t.size < wanted.bytes())
            throw refusal(std::string("its ") + what + " are " + std::to_string(t.size) + " bytes; its shape needs " +
                          std::to_string(wanted.bytes()) + " of uint8");
        return t.as<std::byte>().first(wanted.bytes());
    };
    h.planes.elements = plane_of(whole.elements, "codes");
    h.planes.scales = plane_of(whole.scales, "scales");
    h.planes.shifts = plane_of(whole.shifts, "shifts");
    const input_tensor scale = input(next), zero = input(next + 1);
    if (m.scales == own) {
        if (scale.is_there()) {
            if (scale.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || scale.size != 1)
                throw refusal("the scale of its tensor is not one float32");
            h.only.scale = scale.as<float>()[0];
            h.planes.tensor = std::as_bytes(scale.as<float>()).first(whole.tensor.bytes());
        } else if (has_tensor_scale(m.format)) {
            throw refusal("its input 'scale' is missing");
        }
    } else if (m.scales != none) {
        h.given = scales_of(m, h.axis, scale, zero, run, known);
        if (!h.given.scale.empty()) h.only = h.given.only();
    }
    return h;
}
held_codes held_in(const call_meaning& m, std::size_t next, run_context& run, const constant_scales& known) {
    return held_in(
        m, next, run, [&](std::size_t i) { return run.input(i); }, &known);
}

/// Returns what decodes the whole of a constant.
codec_parameters parameters_of(const call_meaning& m, const held_codes& h) {
    if (m.scales == own) return {h.axis, h.only};
    if (m.scales == one) return h.only;
    if (m.scales == channels) return per_channel{h.given.scale, h.given.zero_point, h.axis};
    if (m.scales == blocks) return per_block{h.given.scale, h.given.zero_point, h.axis, m.block};
    return {};
}

}  // namespace

constant_scales look_at_constants(const call_meaning& m, std::size_t first, const constant_input& input) {
    constant_scales c;
    if (m.scales == own || m.scales == none) return c;
    try {
        const along_axis a = seen_along(m, m.shape);
        const packed_layout whole = layout_of(m.format, a);
        for (const plane& p : {whole.elements, whole.scales, whole.shifts}) first += is_input(p);
        const std::optional<input_tensor> scale = input(first), zero = input(first + 1);
        if (!scale || !zero) return c;
        const given_scales g = scales_of(m, a, *scale, *zero, c.memory);
        bool shifted = false;
        for (std::size_t i = 0; i < g.zero_point.size() && !shifted; ++i) shifted = g.zero_point[i] != 0;
        if (shifted) c.zero_point = g.zero_point;
        c.known = true;
    } catch (const refusal&) {  // a run says what is wrong, and where
    }
    return c;
}

void decode(const call_meaning& m, const constant_scales& known, run_context& run) {
    const held_codes h = held_in(m, 0, run, known);
    const along_axis a = h.axis;
    const const_planes& planes = h.planes;
    const given_scales& given = h.given;
    const affine only = h.only;
    const packed_layout whole = layout_of(m.format, a);
    const std::span<float> y = run.output<float>(m.shape);
    if (y.empty()) return;
    if (m.scales == own && whole.shifts.bits != 0 && a.length % m.block != 0)
        throw refusal("its last block is short, which this library does not decode");
    // Parts begin at whole bytes of every plane: after eight rows, or eight blocks of a row.
    const parts all(a, 8, a.outer == 1 ? 8 * std::max<std::size_t>(m.block, 1) : 0);
    run.in_parallel(all.count(), [&](std::size_t i) noexcept {
        const part p = all[i];
        const packed_layout l = layout_of(m.format, p.axis), before = layout_of(m.format, {p.outer, a.length, a.inner}),
                            behind = layout_of(m.format, {1, p.along, a.inner});
        const auto cut = [](std::span<const std::byte> all_of, const plane& of, const plane& rows, const plane& positions) {
            return all_of.subspan(rows.bytes() + positions.bytes(), of.bytes());
        };
        const const_planes own_planes{cut(planes.elements, l.elements, before.elements, behind.elements),
                                      cut(planes.scales, l.scales, before.scales, behind.scales),
                                      cut(planes.shifts, l.shifts, before.shifts, behind.shifts), planes.tensor};
        const values_out to = y.subspan(p.offset, p.size());
        if (m.scales == own) return dispatch::decode(m.format, own_planes, to, codec_parameters(p.axis, only));
        if (m.scales == none) return dispatch::decode(m.format, own_planes, to);
        if (m.scales == one) return dispatch::decode(m.format, own_planes, to, only);
        const auto scales = of_part(m, a, p, given.scale);
        const auto zeros = of_part(m, a, p, given.zero_point);
        if (m.scales == channels) return dispatch::decode(m.format, own_planes, to, per_channel{scales, zeros, p.axis});
        dispatch::decode(m.format, own_planes, to, per_block{scales, zeros, p.axis, m.block});
    });
}

namespace {

template <class T>
void product_of(const call_meaning& m, const input_tensor& in, std::span<const float> bias, const held_codes& h, run_context& run) {
    const auto rows = static_cast<std::size_t>(m.shape[0]), columns = static_cast<std::size_t>(m.shape[1]);
    std::vector<std::int64_t> shape = in.shape;
    shape.back() = m.shape[0];
    const std::span<T> y = run.output<T>(shape);
    if (y.empty()) return;
    const codec_parameters by = parameters_of(m, h);
    const std::span<const T> x = in.as<T>();
    const product_input from{x, x.size() / columns};
    const product_options how{.bias = bias, .sums = m.sums == portable::sums::integers ? product_sums::integers : product_sums::floats};
    // Pieces of whole groups of rows, of some hundred thousand products with each vector: threads share them, and no bit depends on the
    // cut. Each piece makes tables of its own, which takes as long as some ten thousand products.
    constexpr std::size_t group = 16, wanted = 1 << 17;
    const std::size_t piece = std::max<std::size_t>(wanted / columns / group, 1) * group;
    const auto parallel = [&](std::size_t n, const auto& body) {
        const auto each = [&](std::size_t i) noexcept { body(i); };
        run.in_parallel(n, each);
    };
    dispatch::product(m.format, {rows, columns, h.planes, by}, from, {y}, how, parallel, piece);
}

}  // namespace

void product(const call_meaning& m, const constant_scales& known, ONNXTensorElementDataType type, run_context& run) {
    const input_tensor in = run.input(0), given_bias = m.bias ? run.input(1) : input_tensor();
    if (in.type != type) throw refusal("its input has not the type that its name says");
    if (in.shape.empty() || in.shape.back() != m.shape[1])
        throw refusal("its input's last axis has not the " + std::to_string(m.shape[1]) + " values that a row of its matrix has");
    const held_codes h = held_in(m, m.bias ? 2 : 1, run, known);
    const auto with_type = [&](const auto& work) {
        if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16) return work(float16{});
        if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16) return work(bfloat16{});
        work(0.0f);
    };
    with_type([&]<class T>(T) {
        std::span<const float> bias;
        if (m.bias) {
            if (given_bias.type != type || given_bias.size != static_cast<std::size_t>(m.shape[0]))
                throw refusal("its bias is not one value of its input's type for each output");
            if constexpr (std::is_same_v<T, float>) bias = given_bias.as<float>();
            else {
                const auto wide = run.room_for<float>(given_bias.size);
                std::ranges::transform(given_bias.as<T>(), wide.begin(), [](T v) { return widen(v); });
                bias = wide;
            }
        }
        product_of<T>(m, in, bias, h, run);
    });
}

namespace {

/// How many rows of a table begin at a whole byte of every plane, whatever the widths.
constexpr std::size_t group_of_rows = 8;

/// Cuts input `i` of a table's codes, scales and zero points, counted from the codes on, to rows [first, first + n). `first` is a multiple
/// of group_of_rows.
input_tensor cut_to_rows(const call_meaning& m, std::size_t first, std::size_t n, input_tensor t, std::size_t i) {
    const auto width = static_cast<std::size_t>(m.shape[1]);
    const auto skip = [&](std::size_t values, std::size_t size_of_one) {
        const std::size_t skipped = std::min(values, t.size);
        t.data = static_cast<const std::byte*>(t.data) + skipped * size_of_one;
        t.size -= skipped;
    };
    const packed_layout before = layout_of(m.format, {first, width, 1}), own_planes = layout_of(m.format, {n, width, 1});
    const std::pair<plane, plane> planes[] = {
        {own_planes.elements, before.elements}, {own_planes.scales, before.scales}, {own_planes.shifts, before.shifts}};
    for (const auto& [own_plane, skipped] : planes) {
        if (!is_input(own_plane)) continue;
        if (i-- == 0) return skip(skipped.bytes(), 1), t;
    }
    const bool by_row = m.scales == channels && seen_along(m, m.shape).outer == 1 && seen_along(m, m.shape).inner == width;
    const std::size_t entries = m.scales == blocks ? (width + m.block - 1) / m.block : by_row ? 1 : 0, skipped = first * entries;
    if (!t.is_there() || entries == 0 || t.size == 1) return t;
    if (t.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8) {
        const integer* f = std::get_if<integer>(&m.format);
        return skip(skipped * (f == nullptr ? 8 : static_cast<std::size_t>(f->bits)) / 8, 1), t;
    }
    const std::size_t size_of_one = t.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE ? sizeof(double) : sizeof(float);
    if (t.size != entries * static_cast<std::size_t>(m.shape[0]))
        throw refusal("it has not " + std::to_string(entries) + " scales for each row");
    skip(skipped, size_of_one);
    t.size = n * entries;
    return t;
}

}  // namespace

void rows(const call_meaning& m, run_context& run) {
    const input_tensor in = run.input(0);
    const bool wide = in.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
    if (!wide && in.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32) throw refusal("its indices are neither int64 nor int32");
    if ((m.scales == own || m.scales == blocks) && seen_along(m, m.shape).inner != 1)
        throw refusal("its attributes contradict each other: the blocks of a table lie in its rows");
    std::vector<std::int64_t> shape = in.shape;
    shape.push_back(m.shape[1]);
    const std::span<float> y = run.output<float>(shape);
    const auto width = static_cast<std::size_t>(m.shape[1]);
    const std::span<float> group = run.room_for<float>(group_of_rows * width);
    std::int64_t there = -1;  // the first row of `group`
    for (std::size_t i = 0; i < in.size; ++i) {
        const std::int64_t wanted = wide ? in.as<std::int64_t>()[i] : in.as<std::int32_t>()[i];
        const std::int64_t row = wanted < 0 ? wanted + m.shape[0] : wanted;
        if (row < 0 || row >= m.shape[0])
            throw refusal("index " + std::to_string(wanted) + " is outside of " + std::to_string(m.shape[0]) + " rows");
        const auto step = static_cast<std::int64_t>(group_of_rows), first = row / step * step;
        if (first != there) {
            call_meaning few = m;
            few.shape[0] = std::min(step, m.shape[0] - first);
            const auto n = static_cast<std::size_t>(few.shape[0]);
            const held_codes h = held_in(few, 1, run, [&](std::size_t input) {
                return cut_to_rows(m, static_cast<std::size_t>(first), n, run.input(input), input - 1);
            });
            dispatch::decode(m.format, h.planes, group.first(n * width), parameters_of(few, h));
            there = first;
        }
        std::ranges::copy(group.subspan(static_cast<std::size_t>(row - first) * width, width), y.subspan(i * width).begin());
    }
}

}  // namespace qk::onnxruntime
