// SPDX-License-Identifier: Apache-2.0
// qk.h's dot products and the search for accumulators.
#include <bit>
#include <cstring>
#include <utility>

#include "door.hpp"
#include "qk/dispatch.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"

namespace qk::c {
namespace {

int stored_bits(const accumulator& a, floating f) {
    if (a.sum == summation::integer) return a.width > 32 ? 64 : 32;
    return f == fp64 ? 64 : bits(f) <= 16 ? 16 : 32;
}

std::vector<std::byte> packed_codes(const std::uint64_t* codes, std::size_t n, int width, const std::string& what) {
    std::vector<std::byte> plane((n * static_cast<std::size_t>(width) + 7) / 8);
    for (std::size_t i = 0; i < n; ++i) {
        if (width < 64 && codes[i] >> width != 0)
            throw refused{QK_BAD_ARGUMENT, what + "[" + std::to_string(i) + "] is " + std::to_string(codes[i]) + ", which is no code of " +
                                               std::to_string(width) + " bits"};
        if (width == 64) std::memcpy(plane.data() + 8 * i, &codes[i], 8);
        else put_code(plane, i, width, static_cast<std::uint32_t>(codes[i]));
    }
    return plane;
}

product_shape checked(product_shape s) {
    constexpr std::size_t most = std::size_t{1} << 60;
    for (const auto& [x, y] : {std::pair(s.m, s.n), std::pair(s.m, s.k), std::pair(s.k, s.n)}) {
        std::size_t product = 0;
        if (__builtin_mul_overflow(x, y, &product) || product > most) throw refused{QK_BAD_ARGUMENT, "m, n and k are too large"};
    }
    return s;
}
product_shape shape_of(const qk_product& p) { return checked(product_shape{p.m, p.n, p.k}); }
void expect_zero_point(const format& f, std::int64_t z, const char* what) {
    const integer* g = std::get_if<integer>(&f);
    const message m = g != nullptr ? check_zero_point(*g, z) : z != 0 ? message("is for integer formats") : message();
    if (!m.empty()) throw refused{QK_BAD_ARGUMENT, std::string(what) + ": " + std::string(m.view())};
}
multiplier checked(const qk_product* p) {
    expect_array(p, 1, "product");
    multiplier by = multiplier_of(p->accumulator, p->a_format, p->b_format);
    expect_zero_point(by.a, p->a_zero_point, "a_zero_point");
    expect_zero_point(by.b, p->b_zero_point, "b_zero_point");
    return by;
}
void add_counts(qk_dot_counts* to, const dot_counts& from) {
    if (to == nullptr) return;
    to->overflow += from.overflow, to->underflow += from.underflow, to->inexact += from.inexact;
    to->nan += from.nan, to->saturation += from.saturation;
}
/// Returns the planes of an operand from the pointers that a caller gives.
const_planes planes_of(const qk_const_planes* given, const format& f, along_axis axis, const char* what) {
    expect_array(given, 1, what);
    const std::size_t values = axis.outer * axis.length * axis.inner;
    const packed_layout l = (f == format(fp64)) ? packed_layout{} : qk::layout_of(f, axis);
    const auto one = [&](const void* data, std::size_t bytes) {
        expect_array(data, bytes, what);
        return std::span(static_cast<const std::byte*>(data), bytes);
    };
    return {one(given->elements, (f == format(fp64)) ? 8 * values : l.elements.bytes()), one(given->scales, l.scales.bytes()),
            one(given->shifts, l.shifts.bytes()),
            given->tensor == nullptr ? std::span<const std::byte>{} : one(given->tensor, l.tensor.bytes())};
}

void multiply(const qk_product& p, const multiplier& by, const_planes a, const_planes b, const std::uint64_t* c, std::uint64_t* d,
              qk_dot_counts* counts) {
    const product_shape s = shape_of(p);
    const std::size_t size = s.m * s.n;
    expect_array(d, size, "d");
    dot_counts seen;
    matrix_multiply_add(by.a, by.b, by.how, s, {a, p.a_zero_point}, {b, p.b_zero_point},
                        c == nullptr ? std::span<const std::uint64_t>{} : std::span(c, size), std::span(d, size),
                        counts == nullptr ? nullptr : &seen);
    add_counts(counts, seen);
}

std::vector<std::byte> encoded(const float* x, const format& f, along_axis axis, const char* what) {
    const std::size_t n = axis.outer * axis.length * axis.inner;
    expect_array(x, n, what);
    std::vector<std::byte> bytes(qk::layout_of(f, axis).bytes());
    const codec_parameters p = is_block_format(f) ? codec_parameters(axis) : codec_parameters(affine{.scale = 1.0f, .zero_point = 0});
    if (n != 0 && dispatch::encode(f, std::span(x, n), bytes, p) != encode_status::done)
        throw refused{QK_NO_CODE, std::string(what) + ": the format has no codes for these values"};
    return bytes;
}

compare::dot_case case_of(const compare::dot_task& task, std::size_t m, std::size_t n, const qk_codes* codes) {
    expect_array(codes, 1, "codes");
    compare::dot_case c{{m, n, task.k}, {}, {}, {}, {}, {}};
    const auto take = [](std::vector<std::uint64_t>& to, const std::uint64_t* from, std::size_t count, const char* what) {
        expect_array(from, count, what);
        to.assign(from, from + count);
    };
    take(c.a, codes->a, m * task.k, "codes->a");
    take(c.b, codes->b, task.k * n, "codes->b");
    take(c.c, codes->c, m * n, "codes->c");
    if (const int size = block_size(task.a); size != 0)
        take(c.scale_a, codes->scale_a, m * (task.k / static_cast<std::size_t>(size)), "codes->scale_a");
    if (const int size = block_size(task.b); size != 0)
        take(c.scale_b, codes->scale_b, n * (task.k / static_cast<std::size_t>(size)), "codes->scale_b");
    return c;
}
void put_found(qk_found* to, const compare::found_accumulator& found) {
    *to = {};
    put_text(to->accumulator, to_text(found.best).view());
    to->questions = found.questions;
    to->met = found.met;
}

}  // namespace

multiplier multiplier_of(const char* accumulator, const char* a_format, const char* b_format) {
    const auto said = [](const char* text) { return text != nullptr && *text != '\0'; };
    multiplier by;
    by.how = accumulator_of(accumulator);
    const device* d = find_device(accumulator);
    if (d == nullptr && (!said(a_format) || !said(b_format)))
        throw refused{QK_BAD_ARGUMENT, "an accumulator that is no device needs a_format and b_format"};
    if (d != nullptr) by.a = d->a, by.b = d->b;
    if (said(a_format)) by.a = format_of(a_format, "a_format");
    if (said(b_format)) by.b = format_of(b_format, "b_format");
    if (const message m = check_operands(by.a, by.b, by.how); !m.empty()) throw refused{QK_BAD_ARGUMENT, std::string(m.view())};
    return by;
}
int result_bits(const accumulator& a) { return stored_bits(a, a.result); }
int addend_bits(const accumulator& a) { return stored_bits(a, a.addend); }
along_axis rows_of(product_shape s) { return {s.m, s.k, 1}; }
along_axis columns_of(product_shape s) { return {1, s.k, s.n}; }

packed_operand packed_of(const format& f, const std::uint64_t* codes, const std::uint64_t* scales, std::size_t lines, std::size_t k,
                         const char* what) {
    if (std::holds_alternative<microexponent>(f))
        throw refused{QK_BAD_ARGUMENT, std::string(what) + ": microexponents have shifts; give the operands packed, or as values"};
    expect_array(codes, lines * k, what);
    packed_operand o;
    o.elements = packed_codes(codes, lines * k, element_width(f), what);
    if (!is_block_format(f)) return o;
    const std::size_t blocks = qk::layout_of(f, along_axis{lines, k, 1}).scales.count;
    expect_array(scales, blocks, "the scales of blocks");
    o.scales = packed_codes(scales, blocks, scale_width(f), std::string("scale_") + what);
    return o;
}

compare::dot_task task_of(const qk_search* given) {
    expect_array(given, 1, "search");
    compare::dot_task task{.a = format_of(given->a_format, "a_format"), .b = format_of(given->b_format, "b_format"), .seed = given->seed};
    if (given->k != 0) task.k = given->k;
    if (given->d_bits != 0) task.d_bits = given->d_bits;
    if (given->most_questions != 0) task.most_questions = given->most_questions;
    if (given->c_format != nullptr) {
        task.has_c = std::string_view(given->c_format) != "none";
        const format c = task.has_c ? format_of(given->c_format, "c_format") : format(fp32);
        const floating* f = std::get_if<floating>(&c);
        if (f == nullptr || !(*f == fp32 || *f == fp16 || *f == bf16))
            throw refused{QK_BAD_ARGUMENT, "c_format is fp32, fp16, bf16 or none"};
        task.c = *f;
    }
    if (task.d_bits != 8 && task.d_bits != 16 && task.d_bits != 32) throw refused{QK_BAD_ARGUMENT, "d_bits is 8, 16 or 32"};
    if (const std::string m = check(task); !m.empty()) throw refused{QK_BAD_ARGUMENT, m};
    return task;
}

}  // namespace qk::c

using namespace qk::c;

extern "C" {

qk_status qk_multiply_add(const qk_product* product, const qk_const_planes* a, const qk_const_planes* b, const uint64_t* c, uint64_t* d,
                          qk_dot_counts* counts) {
    return guarded([&] {
        const multiplier by = checked(product);
        const qk::product_shape s = shape_of(*product);
        multiply(*product, by, planes_of(a, by.a, rows_of(s), "a"), planes_of(b, by.b, columns_of(s), "b"), c, d, counts);
    });
}
qk_status qk_multiply_add_codes(const qk_product* product, const qk_codes* codes, uint64_t* d, qk_dot_counts* counts) {
    return guarded([&] {
        const multiplier by = checked(product);
        const qk::product_shape s = shape_of(*product);
        expect_array(codes, 1, "codes");
        const packed_operand a = packed_of(by.a, codes->a, codes->scale_a, s.m, s.k, "a");
        const packed_operand b = packed_of(by.b, codes->b, codes->scale_b, s.n, s.k, "b");
        multiply(*product, by, a.planes(), b.planes(), codes->c, d, counts);
    });
}
qk_status qk_multiply_add_values(const qk_product* product, const float* a, const float* b, const float* c, float* d,
                                 qk_dot_counts* counts) {
    return guarded([&] {
        const multiplier by = checked(product);
        if (by.how.sum == qk::summation::integer || by.how.partial == qk::fp64)
            throw refused{QK_BAD_ARGUMENT, "integer and fp64 registers hold no floats; use qk_multiply_add or qk_multiply_add_codes"};
        const qk::product_shape s = shape_of(*product);
        const std::vector<std::byte> x = encoded(a, by.a, rows_of(s), "a"), y = encoded(b, by.b, columns_of(s), "b");
        const std::size_t size = s.m * s.n;
        expect_array(d, size, "d");
        std::vector<std::uint64_t> start(c == nullptr ? 0 : size), result(size);
        for (std::size_t i = 0; i < start.size(); ++i) start[i] = qk::stored_code_of(by.how.addend, static_cast<double>(c[i]));
        multiply(*product, by, qk::planes_of(qk::layout_of(by.a, rows_of(s)), std::span<const std::byte>(x)),
                 qk::planes_of(qk::layout_of(by.b, columns_of(s)), std::span<const std::byte>(y)), start.empty() ? nullptr : start.data(),
                 result.data(), counts);
        for (std::size_t i = 0; i < size; ++i) {
            const auto code = static_cast<std::uint32_t>(result[i]);
            d[i] = bits(by.how.result) <= 16 ? qk::value_of(by.how.result, code) : std::bit_cast<float>(code);
        }
    });
}
qk_status qk_dot(const qk_product* product, const float* a, const float* b, float c, float* d) {
    if (product == nullptr) return fail(QK_BAD_ARGUMENT, "product is NULL");
    qk_product one = *product;
    one.m = one.n = 1;
    return qk_multiply_add_values(&one, a, b, &c, d, nullptr);
}

qk_status qk_find_accumulator(const qk_search* search, qk_ask device, void* user, qk_found* found) {
    return guarded([&] {
        const qk::compare::dot_task task = task_of(search);
        expect_array(found, 1, "found");
        if (device == nullptr) throw refused{QK_BAD_ARGUMENT, "device is NULL"};
        put_found(found, qk::compare::find_accumulator(task, [&](const qk::compare::dot_case& c) {
                      std::vector<std::uint64_t> d(c.shape.m * c.shape.n);
                      const qk_codes codes{c.a.data(), c.b.data(), c.c.data(), c.scale_a.empty() ? nullptr : c.scale_a.data(),
                                           c.scale_b.empty() ? nullptr : c.scale_b.data()};
                      const int status = device(user, c.shape.m, c.shape.n, c.shape.k, &codes, d.data());
                      if (status != 0) throw refused{QK_DEVICE_FAILED, "the device answered with status " + std::to_string(status)};
                      return d;
                  }));
    });
}
qk_status qk_fit_accumulator(const qk_search* search, size_t m, size_t n, const qk_codes* codes, const uint64_t* d, qk_found* found) {
    return guarded([&] {
        const qk::compare::dot_task task = task_of(search);
        expect_array(found, 1, "found");
        static_cast<void>(checked(qk::product_shape{m, n, task.k}));
        expect_array(d, m * n, "d");
        if (m == 0 || n == 0) throw refused{QK_BAD_ARGUMENT, "m and n must be at least 1"};
        put_found(found, qk::compare::fit_accumulator(task, case_of(task, m, n, codes), {d, m * n}));
    });
}

}  // extern "C"
