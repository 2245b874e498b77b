// SPDX-License-Identifier: Apache-2.0
#include "hardware/dot_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "options/format_options.hpp"
#include "qk/dot/text.hpp"

namespace qk::tool {
namespace {

using graph::data_type;
using graph::error;
using graph::tensor;

void put(std::vector<std::byte>& plane, std::size_t i, int width, std::uint64_t code) {
    if (width == 64) std::memcpy(plane.data() + 8 * i, &code, 8);
    else put_code(plane, i, width, static_cast<std::uint32_t>(code));
}
std::vector<std::byte> packed(const std::vector<std::uint64_t>& codes, int width) {
    std::vector<std::byte> plane((codes.size() * static_cast<std::size_t>(width) + 7) / 8);
    for (std::size_t i = 0; i < codes.size(); ++i) put(plane, i, width, codes[i]);
    return plane;
}
int code_bits(const accumulator& a, floating of) {
    if (a.sum == summation::integer) return a.width > 32 ? 64 : 32;
    return of == fp64 ? 64 : bits(of) <= 8 ? 8 : bits(of) <= 16 ? 16 : 32;
}

}  // namespace

coded_operand packed_operand(const format& f, const std::vector<std::uint64_t>& elements, const std::vector<std::uint64_t>& scales) {
    return {packed(elements, width_of(f)), scales.empty() ? std::vector<std::byte>() : packed(scales, scale_width(f))};
}

std::vector<std::uint64_t> codes_of(const tensor& t, const std::string& what, int bits) {
    const std::size_t size = graph::size_of(t.type());
    const bool whole = t.type() != data_type::float32 && t.type() != data_type::float64 && t.type() != data_type::float16 &&
                       (size == 1 || size == 2 || size == 4 || size == 8) && t.type() != data_type::complex64;
    if (!whole)
        throw error(fmt::format("{} holds {}; codes are unsigned integers (numpy: x.view(np.uint16), say)", what, name_of(t.type())));
    if (8 * size < static_cast<std::size_t>(bits))
        throw error(fmt::format("{} holds {}; these codes have {} bits: is it another device's case?", what, name_of(t.type()), bits));
    std::vector<std::uint64_t> codes(t.size(), 0);
    for (std::size_t i = 0; i < codes.size(); ++i) {
        std::memcpy(&codes[i], t.bytes() + i * size, size);
        if (bits < 64 && codes[i] >> bits != 0)
            throw error(fmt::format("{}: element {} is {:#x}, which is no code of {} bits", what, i, codes[i], bits));
    }
    return codes;
}

std::vector<std::uint64_t> parted(const std::vector<std::uint64_t>& bytes, std::size_t rows, std::size_t half, std::size_t columns) {
    std::vector<std::uint64_t> codes(2 * bytes.size());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t h = 0; h < half; ++h) {
            for (std::size_t j = 0; j < columns; ++j) {
                const std::uint64_t byte = bytes[(r * half + h) * columns + j];
                codes[(r * 2 * half + 2 * h) * columns + j] = byte & 15;
                codes[(r * 2 * half + 2 * h + 1) * columns + j] = byte >> 4;
            }
        }
    }
    return codes;
}

std::vector<std::uint64_t> joined(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t k, std::size_t columns) {
    std::vector<std::uint64_t> bytes(codes.size() / 2);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t h = 0; h < k / 2; ++h) {
            for (std::size_t j = 0; j < columns; ++j)
                bytes[(r * (k / 2) + h) * columns + j] = codes[(r * k + 2 * h) * columns + j] | codes[(r * k + 2 * h + 1) * columns + j]
                                                                                                    << 4;
        }
    }
    return bytes;
}

multiplier multiplier_of(const std::string& device_name, const std::string& accumulator, const std::string& a_format,
                         const std::string& b_format) {
    if (device_name.empty() == accumulator.empty())
        throw error("say what multiplies: --device NAME, or --accumulator TEXT with --a-format and --b-format");
    multiplier by;
    if (!device_name.empty()) {
        const device* d = find_device(device_name);
        if (d == nullptr) throw error("--device: " + std::string(unknown_device(device_name).view()));
        by = {std::string(d->name), d->a, d->b, d->accumulator};
    } else {
        if (a_format.empty() || b_format.empty())
            throw error("--accumulator needs --a-format and --b-format; `qk formats` lists the formats");
        const auto a = parse_accumulator(accumulator);
        if (!a) throw error("--accumulator: " + std::string(a.error.view()));
        by.how = *a;
        by.name = to_text(*a).view();
    }
    if (!a_format.empty()) by.a = parsed_format(a_format, "--a-format: ");
    if (!b_format.empty()) by.b = parsed_format(b_format, "--b-format: ");
    if (const message m = check_operands(by.a, by.b, by.how); !m.empty()) throw error(fmt::format("{}: {}", by.name, m.view()));
    return by;
}

int result_bits(const accumulator& a) { return code_bits(a, a.result); }
int addend_bits(const accumulator& a) { return code_bits(a, a.addend); }

bool same_result(const accumulator& a, std::uint64_t x, std::uint64_t y) {
    if (x == y || a.sum == summation::integer) return x == y;
    const floating f = result_bits(a) == 32 ? fp32 : a.result;
    const auto nan = [&](std::uint64_t v) { return device_sums::is_nan_code(f, v); };
    return nan(x) && nan(y);
}

graph::tensor codes_tensor(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t columns, int bits) {
    const graph::dims shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    tensor t(bits <= 8 ? data_type::uint8 : bits <= 16 ? data_type::uint16 : bits <= 32 ? data_type::uint32 : data_type::uint64, shape);
    const std::size_t size = graph::size_of(t.type());
    for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(t.bytes() + i * size, &codes[i], size);
    return t;
}

const tensor* find_array(const std::vector<graph::named_tensor>& arrays, const std::string& name) {
    const auto found = std::ranges::find(arrays, name, &graph::named_tensor::name);
    return found == arrays.end() ? nullptr : &found->value;
}

dot_case case_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, const multiplier& by) {
    const auto matrix = [&](const std::string& name) -> const tensor& {
        const tensor* t = find_array(arrays, name);
        if (t == nullptr)
            throw error(fmt::format("{} has no array {}; a case has a, b and mostly c: codes [m,k], [k,n], [m,n]", file, name));
        if (t->shape().size() != 2)
            throw error(fmt::format("{}: {} has shape {}; it must have two dimensions", file, name, graph::to_string(t->shape())));
        return *t;
    };
    dot_case p;
    const tensor &a = matrix("a"), &b = matrix("b");
    const bool half_a = width_of(by.a) == 4, half_b = width_of(by.b) == 4;
    p.shape = {static_cast<std::size_t>(a.shape()[0]), static_cast<std::size_t>(b.shape()[1]),
               static_cast<std::size_t>(a.shape()[1]) * (half_a ? 2 : 1)};
    if (static_cast<std::size_t>(b.shape()[0]) * (half_b ? 2 : 1) != p.shape.k)
        throw error(fmt::format("{}: a {} and b {} do not agree about k", file, graph::to_string(a.shape()), graph::to_string(b.shape())));
    const auto operand = [&](const tensor& t, const std::string& name, const format& f, bool half, bool rows) {
        coded_operand o;
        std::vector<std::uint64_t> codes = codes_of(t, fmt::format("{}: {}", file, name), half ? 8 : width_of(f));
        const std::size_t k = p.shape.k, lines = rows ? p.shape.m : p.shape.n;
        if (half) codes = rows ? parted(codes, lines, k / 2, 1) : parted(codes, 1, k / 2, lines);
        o.elements = packed(codes, width_of(f));
        if (!is_block_format(f)) return o;
        if (std::holds_alternative<microexponent>(f))
            throw error(fmt::format("{}: cases hold no shifts of microexponents; give the operands as values", file));
        const tensor& scale = matrix("scale_" + name);
        const auto blocks = static_cast<std::int64_t>(blocks_of(f, k));
        const graph::dims wanted =
            rows ? graph::dims{static_cast<std::int64_t>(lines), blocks} : graph::dims{blocks, static_cast<std::int64_t>(lines)};
        if (scale.shape() != wanted)
            throw error(fmt::format("{}: scale_{} has shape {}, not {}; k is {}{}", file, name, graph::to_string(scale.shape()),
                                    graph::to_string(wanted), k,
                                    half_a || half_b ? ", since codes of 4 bits stand two to a byte along k" : ""));
        o.scales = packed(codes_of(scale, fmt::format("{}: scale_{}", file, name), scale_width(f)), scale_width(f));
        return o;
    };
    p.a = operand(a, "a", by.a, half_a, true);
    p.b = operand(b, "b", by.b, half_b, false);
    const graph::dims out{a.shape()[0], b.shape()[1]};
    const auto result = [&](const std::string& name, int bits) {
        const tensor& t = matrix(name);
        if (t.shape() != out)
            throw error(fmt::format("{}: {} has shape {}, not {}", file, name, graph::to_string(t.shape()), graph::to_string(out)));
        const auto& output = by.how.requantize.output;
        const bool narrow = by.how.requantize.by != requantize_by::nothing && static_cast<int>(8 * graph::size_of(t.type())) < bits;
        std::vector<std::uint64_t> codes = codes_of(t, fmt::format("{}: {}", file, name), narrow ? output.bits : bits);
        if (narrow && name == "d") {  // codes of the output stand for whole numbers of the register
            for (std::uint64_t& c : codes) c = static_cast<std::uint64_t>(value_of(output, static_cast<std::uint32_t>(c))) & 0xffffffffu;
        }
        if (by.how.sum == summation::integer && bits == 32) {
            for (std::uint64_t& c : codes) c = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(c)});
        }
        return codes;
    };
    if (find_array(arrays, "c") != nullptr) p.c = result("c", addend_bits(by.how));
    if (find_array(arrays, "d") != nullptr) p.d = result("d", result_bits(by.how));
    return p;
}

std::vector<std::uint64_t> usual_c(const accumulator& a, const product_shape& shape) {
    if (a.sum == summation::integer || shape.k != 1) return {};
    const int sign = (addend_bits(a) <= 16 ? bits(a.addend) : addend_bits(a)) - 1;
    return std::vector<std::uint64_t>(shape.m * shape.n, std::uint64_t{1} << sign);
}

std::vector<std::uint64_t> multiply(const dot_case& problem, const multiplier& by, dot_counts* counts) {
    std::vector<std::uint64_t> d(problem.shape.m * problem.shape.n);
    const std::vector<std::uint64_t> c = problem.c.empty() ? usual_c(by.how, problem.shape) : problem.c;
    matrix_multiply_add(by.a, by.b, by.how, problem.shape, problem.a.matrix(), problem.b.matrix(), c, d, counts);
    return d;
}

namespace {

/// Makes a code for row or column number `line`: the five kinds take turns by that number.
std::uint64_t made_code(const format& f, std::size_t line, std::mt19937_64& random) {
    const std::uint64_t any = random();
    const floating* element = number_float(f);
    const int width = width_of(f);
    if (element == nullptr || width < 8 || line % 5 == 1) return width == 64 ? any : any & ((std::uint64_t{1} << width) - 1);
    const int m = element->mantissa_bits, e = element->exponent_bits;
    const std::uint64_t sign = (any >> 63) << (e + m), mantissa = any >> 3 & ((std::uint64_t{1} << m) - 1),
                        middle = (std::uint64_t{1} << (e - 1)) - 1;
    switch (line % 5) {
        case 0: return sign | (middle - (any & 3)) << m | mantissa;  // ordinary
        case 2:
            return sign | ((any & 28) == 0 ? (std::uint64_t{1} << e) - 2 : middle - (any & 1)) << m | mantissa;  // a few large among small
        case 3: return sign | (any & 1) << m | mantissa;                        // subnormal and smallest normal
        default: return sign | middle << m | (mantissa >> (m - 1) << (m - 1));  // few bits: sums cancel
    }
}

}  // namespace

std::vector<graph::named_tensor> make_case(const multiplier& by, std::size_t rows, std::size_t columns, std::size_t k, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<graph::named_tensor> arrays;
    const auto operand = [&](const std::string& name, const format& f, bool by_rows) {
        const std::size_t lines = by_rows ? rows : columns;
        std::vector<std::uint64_t> codes(lines * k);
        for (std::size_t line = 0; line < lines; ++line) {
            for (std::size_t i = 0; i < k; ++i) codes[by_rows ? line * k + i : i * lines + line] = made_code(f, line, random);
        }
        const bool half = width_of(f) == 4;
        if (half) codes = by_rows ? joined(codes, lines, k, 1) : joined(codes, 1, k, lines);
        const std::size_t held = half ? k / 2 : k;
        arrays.push_back({name, codes_tensor(codes, by_rows ? lines : held, by_rows ? held : lines, half ? 8 : width_of(f))});
        if (!is_block_format(f)) return;
        const std::size_t blocks = blocks_of(f, k);
        const int width = scale_width(f);
        std::vector<std::uint64_t> scales(lines * blocks);
        for (std::size_t i = 0; i < scales.size(); ++i) {
            const std::uint64_t any = random(), middle = std::uint64_t{1} << (width - 1);
            scales[i] = any % 16 == 0 ? any >> 8 & ((std::uint64_t{1} << width) - 1)
                                      : (has_floating_scales(f) ? 0x38 : middle) - 4 + (any >> 8) % 8;
        }
        arrays.push_back({"scale_" + name, codes_tensor(scales, by_rows ? lines : blocks, by_rows ? blocks : lines, width)});
    };
    operand("a", by.a, true);
    operand("b", by.b, false);
    std::vector<std::uint64_t> c(rows * columns);
    const bool whole = by.how.sum == summation::integer;
    const format addend = bits(by.how.addend) <= 16 || by.how.addend == fp64 ? format(by.how.addend) : format(fp32);
    for (std::size_t i = 0; i < c.size(); ++i) {
        c[i] = whole ? (i % 3 == 0 ? random() >> 32 : random() >> 50) : made_code(addend, i, random);
        if (whole && addend_bits(by.how) < 64) c[i] &= 0xffffffffu;
    }
    arrays.push_back({"c", codes_tensor(c, rows, columns, addend_bits(by.how))});
    return arrays;
}

}  // namespace qk::tool
