// SPDX-License-Identifier: Apache-2.0
// qk.h's converters and codes.
#include <algorithm>
#include <cstring>

#include "door.hpp"
#include "qk/compare/flags.hpp"
#include "qk/dispatch.hpp"
#include "qk/observe.hpp"

namespace {

using namespace qk::c;

template <class T>
std::span<T> array(T* data, std::size_t n, const char* what) {
    expect_array(data, n, what);
    return {data, n};
}

void expect_done(qk::encode_status s) {
    if (s == qk::encode_status::no_code)
        throw refused{QK_NO_CODE,
                      "this semantics gives NaN, Inf or scales for which the format has no code; use qk_fake_quantize, or ocp's semantics"};
    if (s == qk::encode_status::too_small)
        throw refused{QK_TOO_SMALL, "the packed buffer is too short; qk_layout_of says how long it must be"};
}
void expect_room(const qk::packed_layout& l, std::size_t bytes) {
    if (bytes < l.bytes())
        throw refused{QK_TOO_SMALL, "the packed buffer has " + std::to_string(bytes) + " bytes and needs " + std::to_string(l.bytes())};
}
/// Returns the conversion; refuses fp64, which is for dot products alone.
qk::compare::conversion coded(const qk_conversion* given, std::size_t n, bool reads = false) {
    const qk::compare::conversion how = conversion_of(given, n, reads);
    if (how.format == qk::format(qk::fp64))
        throw refused{QK_BAD_ARGUMENT, "fp64 is for dot products; numbers are converted into formats of at most 32 bits"};
    return how;
}

template <class Number>
void encode(const qk_conversion* given, const Number* x, std::size_t n, void* packed, std::size_t bytes) {
    const qk::compare::conversion how = coded(given, n);
    array(x, n, "x");
    expect_room(layout_of(how, n), bytes);
    expect_array(packed, bytes, "packed");
    if (n == 0) return;
    expect_done(
        qk::dispatch::encode(how.format, std::span(x, n), std::span(static_cast<std::byte*>(packed), bytes), parameters_of(how), how.how));
}
template <class Number>
void decode(const qk_conversion* given, const void* packed, std::size_t bytes, Number* y, std::size_t n) {
    const qk::compare::conversion how = coded(given, n, true);
    array(y, n, "y");
    expect_room(layout_of(how, n), bytes);
    expect_array(packed, bytes, "packed");
    if (n == 0) return;
    qk::dispatch::decode(how.format, std::span(static_cast<const std::byte*>(packed), bytes), std::span(y, n), parameters_of(how));
}

qk_plane plane_of(const qk::plane& p) { return {p.offset, p.count, p.bytes(), p.bits}; }

/// Returns each plane as bytes, with the sizes of layout `l`.
template <class Byte, class Planes>
qk::basic_planes<Byte> planes_of(const Planes* given, const qk::packed_layout& l) {
    expect_array(given, 1, "planes");
    const auto one = [](auto* data, const qk::plane& p, const char* what) {
        expect_array(data, p.bytes(), what);
        return std::span<Byte>(static_cast<Byte*>(data), p.bytes());
    };
    return {one(given->elements, l.elements, "planes->elements"), one(given->scales, l.scales, "planes->scales"),
            one(given->shifts, l.shifts, "planes->shifts"), one(given->tensor, l.tensor, "planes->tensor")};
}

/// Returns n numbers in memory of the caller's kind.
template <class Values>
Values values_of(const qk_values* given, std::size_t n, const char* what) {
    expect_array(given, 1, what);
    const auto refuse = [&](const char* sentence) { throw refused{QK_BAD_ARGUMENT, what + std::string(sentence)}; };
    qk::pitched_rows rows{1, n, n};
    if (given->pitch != 0) {
        rows = {given->rows, given->columns, given->pitch};
        std::size_t number = 0, reach = 0;
        if (given->pitch < given->columns) refuse("->pitch is less than its columns");
        if (__builtin_mul_overflow(given->rows, given->columns, &number) || __builtin_mul_overflow(given->rows, given->pitch, &reach) ||
            number != n)
            refuse((": rows * columns must be n, " + std::to_string(n)).c_str());
    }
    expect_array(given->data, rows.reach(), (what + std::string("->data")).c_str());
    const auto in = [&](auto number) {
        using type = std::conditional_t<std::is_same_v<Values, qk::values_in>, const decltype(number), decltype(number)>;
        return Values(std::span(static_cast<type*>(given->data), rows.reach()), rows);
    };
    if (given->storage != 0 && given->storage != QK_FLOAT16 && given->storage != QK_BFLOAT16)
        refuse("->storage is 0, QK_FLOAT16 or QK_BFLOAT16");
    return given->storage == 0 ? in(0.0f) : given->storage == QK_FLOAT16 ? in(qk::float16()) : in(qk::bfloat16());
}

void encode_values(const qk::compare::conversion& how, const qk::values_in& x, const qk_planes* planes) {
    const qk::planes to = planes_of<std::byte>(planes, layout_of(how, x.size()));
    if (x.size() != 0) expect_done(qk::dispatch::encode(how.format, x, to, parameters_of(how), how.how));
}
void decode_values(const qk::compare::conversion& how, const qk_const_planes* planes, const qk::values_out& y) {
    const qk::const_planes from = planes_of<const std::byte>(planes, layout_of(how, y.size()));
    if (y.size() != 0) qk::dispatch::decode(how.format, from, y, parameters_of(how));
}
void backward(const qk::compare::conversion& c, const qk::values_in& x, const qk::values_in& gradient, const qk::values_out& gradient_in,
              double* by_scale, double* by_zero_point) {
    if (c.scale.size() > 1) {
        const auto of = [&](double* to) { return std::span(to, to != nullptr ? c.scale.size() : 0); };
        const qk::scale_gradients by{of(by_scale), of(by_zero_point)};
        if (c.given == qk::compare::conversion::granularity::block)
            return qk::dispatch::fake_quantize_backward(c.format, x, gradient, gradient_in, c.grid(), by, c.how);
        return qk::dispatch::fake_quantize_backward(c.format, x, gradient, gradient_in, c.channels(), by, c.how);
    }
    const qk::scale_gradient g = qk::dispatch::fake_quantize_backward(c.format, x, gradient, gradient_in, c.one(), c.how);
    if (by_scale != nullptr) *by_scale = g.scale;
    if (by_zero_point != nullptr) *by_zero_point = g.zero_point;
}

/// Returns the int that C handed over, which need not be an enumerator.
int number_of(const qk_storage& storage) {
    int n = 0;
    static_assert(sizeof storage == sizeof n);
    std::memcpy(&n, &storage, sizeof n);
    return n;
}

}  // namespace

extern "C" {

qk_status qk_fake_quantize(const qk_conversion* how, const float* x, float* y, size_t n) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        fake_quantize(c, array(x, n, "x"), array(y, n, "y"));
    });
}
qk_status qk_fake_quantize_random(const qk_conversion* how, const uint32_t* words, const float* x, float* y, size_t n) {
    return guarded([&] {
        qk::compare::conversion c = coded(how, n);
        take_words(c, words, n);
        array(x, n, "x");
        array(y, n, "y");
        qk::compare::fake_quantize(c, {x, n}, {y, n});
    });
}
qk_status qk_reference(const qk_conversion* how, const float* x, float* y, size_t n) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        expected_values(c, array(x, n, "x"), array(y, n, "y"));
    });
}
qk_status qk_fake_quantize_backward(const qk_conversion* how, const float* x, const float* gradient, float* gradient_in, size_t n,
                                    double* by_scale, double* by_zero_point) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        backward(c, array(x, n, "x"), array(gradient, n, "gradient"), array(gradient_in, n, "gradient_in"), by_scale, by_zero_point);
    });
}
qk_status qk_observe(qk_range* range, const float* x, size_t n) {
    return guarded([&] {
        expect_array(range, 1, "range");
        qk::observed_range r{range->min, range->max, static_cast<std::size_t>(range->count), static_cast<std::size_t>(range->special)};
        r.observe(array(x, n, "x"));
        *range = {r.min, r.max, r.count, r.special};
    });
}
qk_status qk_count_flags(const qk_conversion* how, const float* x, size_t n, qk_flag_counts* counts) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        expect_array(counts, 1, "counts");
        std::vector<float> y(n);
        expected_values(c, array(x, n, "x"), y);
        const qk::compare::flag_counts f = qk::compare::count_flags(c, {x, n}, y);
        *counts = {f.values, f.overflow, f.saturation, f.underflow, f.inexact, f.nan, f.invalid};
    });
}

qk_status qk_layout_of(const qk_conversion* how, size_t n, qk_layout* layout) {
    return guarded([&] {
        expect_array(layout, 1, "layout");
        const qk::packed_layout l = layout_of(conversion_of(how, n, true), n);
        *layout = {plane_of(l.elements), plane_of(l.scales), plane_of(l.shifts), plane_of(l.tensor), l.bytes()};
    });
}
qk_status qk_encode(const qk_conversion* how, const float* x, size_t n, void* packed, size_t bytes) {
    return guarded([&] { encode(how, x, n, packed, bytes); });
}
qk_status qk_decode(const qk_conversion* how, const void* packed, size_t bytes, float* y, size_t n) {
    return guarded([&] { decode(how, packed, bytes, y, n); });
}
qk_status qk_encode_planes(const qk_conversion* how, const float* x, size_t n, const qk_planes* planes) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        encode_values(c, array(x, n, "x"), planes);
    });
}
qk_status qk_decode_planes(const qk_conversion* how, const qk_const_planes* planes, float* y, size_t n) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n, true);
        decode_values(c, planes, array(y, n, "y"));
    });
}
qk_status qk_encode_16(const qk_conversion* how, qk_storage storage, const uint16_t* x, size_t n, void* packed, size_t bytes) {
    return guarded([&] {
        if (number_of(storage) == QK_FLOAT16) encode(how, reinterpret_cast<const qk::float16*>(x), n, packed, bytes);
        else if (number_of(storage) == QK_BFLOAT16) encode(how, reinterpret_cast<const qk::bfloat16*>(x), n, packed, bytes);
        else throw refused{QK_BAD_ARGUMENT, "storage is QK_FLOAT16 or QK_BFLOAT16"};
    });
}
qk_status qk_decode_16(const qk_conversion* how, qk_storage storage, const void* packed, size_t bytes, uint16_t* y, size_t n) {
    return guarded([&] {
        if (number_of(storage) == QK_FLOAT16) decode(how, packed, bytes, reinterpret_cast<qk::float16*>(y), n);
        else if (number_of(storage) == QK_BFLOAT16) decode(how, packed, bytes, reinterpret_cast<qk::bfloat16*>(y), n);
        else throw refused{QK_BAD_ARGUMENT, "storage is QK_FLOAT16 or QK_BFLOAT16"};
    });
}

qk_status qk_fake_quantize_values(const qk_conversion* how, const qk_values* x, const qk_values* y, size_t n) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        const qk::values_in from = values_of<qk::values_in>(x, n, "x");
        qk::dispatch::fake_quantize_values(c.format, from, values_of<qk::values_out>(y, n, "y"), parameters_of(c), c.how);
    });
}
qk_status qk_encode_values(const qk_conversion* how, const qk_values* x, size_t n, const qk_planes* planes) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        encode_values(c, values_of<qk::values_in>(x, n, "x"), planes);
    });
}
qk_status qk_decode_values(const qk_conversion* how, const qk_const_planes* planes, const qk_values* y, size_t n) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n, true);
        decode_values(c, planes, values_of<qk::values_out>(y, n, "y"));
    });
}
qk_status qk_observe_values(qk_range* range, const qk_values* x, size_t n) {
    return guarded([&] {
        expect_array(range, 1, "range");
        qk::observed_range r{range->min, range->max, static_cast<std::size_t>(range->count), static_cast<std::size_t>(range->special)};
        r.observe(values_of<qk::values_in>(x, n, "x"));
        *range = {r.min, r.max, r.count, r.special};
    });
}
qk_status qk_fake_quantize_backward_values(const qk_conversion* how, const qk_values* x, const qk_values* gradient,
                                           const qk_values* gradient_in, size_t n, double* by_scale, double* by_zero_point) {
    return guarded([&] {
        const qk::compare::conversion c = coded(how, n);
        backward(c, values_of<qk::values_in>(x, n, "x"), values_of<qk::values_in>(gradient, n, "gradient"),
                 values_of<qk::values_out>(gradient_in, n, "gradient_in"), by_scale, by_zero_point);
    });
}

uint32_t qk_get_code(const void* plane, int bits, size_t index) {
    if (plane == nullptr || bits < 1 || bits > 32) return 0;
    const std::size_t end = ((index + 1) * static_cast<std::size_t>(bits) + 7) / 8;
    return qk::get_code({static_cast<const std::byte*>(plane), end}, index, bits);
}
void qk_put_code(void* plane, int bits, size_t index, uint32_t code) {
    if (plane == nullptr || bits < 1 || bits > 32) return;
    const std::size_t end = ((index + 1) * static_cast<std::size_t>(bits) + 7) / 8;
    qk::put_code({static_cast<std::byte*>(plane), end}, index, bits, code & qk::low_bits(bits));
}

}  // extern "C"
