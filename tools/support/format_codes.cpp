// SPDX-License-Identifier: Apache-2.0
#include "support/format_codes.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "qk/codec/layout/layout.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/error.hpp"

namespace qk::tool {
namespace {

using graph::error;

/// A number in [1, 10) as the sum of two doubles, times a power of ten.
struct decimal {
    double high = 1, low = 0;
    int ten = 0;

    friend decimal operator*(const decimal& a, const decimal& b) {
        const double product = a.high * b.high, rest = std::fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high);
        decimal r{product + rest, 0, a.ten + b.ten};
        r.low = rest - (r.high - product);
        if (r.high < 10) return r;
        const double tenth = r.high / 10, left = (std::fma(-tenth, 10, r.high) + r.low) / 10;
        return {tenth + left, left - ((tenth + left) - tenth), r.ten + 1};
    }
};

/// Returns digits * 2^exponent, beyond what double holds to its last digit, with 17 decimal digits.
std::string digits_of(std::uint32_t digits, int exponent) {
    decimal power = exponent < 0 ? decimal{5, 0, -1} : decimal{2, 0, 0}, all;
    for (auto n = static_cast<unsigned>(std::abs(exponent)); n != 0; n >>= 1, power = power * power)
        if ((n & 1u) != 0) all = all * power;
    int ten = 0;
    double whole = digits;
    for (; whole >= 10; ++ten) whole /= 10;
    const decimal by{whole, 0, ten}, r = all * by;
    const double many = r.high * 1e16;
    const auto n = static_cast<std::int64_t>(many) + std::llround(std::fma(r.high, 1e16, -many) + r.low * 1e16);
    std::string text = std::to_string(n);
    const int over = static_cast<int>(text.size()) - 17;
    text.insert(1, ".");
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return fmt::format("{}e{:+}", text, r.ten + over);
}

code_value shown_number(double v) {
    if (std::isnan(v)) return {v, "nan"};
    if (std::isinf(v)) return {v, v < 0 ? "-inf" : "inf"};
    return {v, fmt::format("{}", v)};  // the fewest digits that tell it apart
}

template <class Value>
std::vector<code_value> each_code(int bits, const Value& value) {
    std::vector<code_value> codes;
    for (std::uint32_t code = 0; code < std::uint32_t{1} << bits; ++code) codes.push_back(value(code));
    return codes;
}
std::vector<code_value> each_code(floating f) {
    return each_code(bits(f), [&](std::uint32_t code) { return value_of(number_of(f, code)); });
}
/// Returns the values of sign and magnitude, or of two's complement, in units of 2^-fraction.
std::vector<code_value> signed_codes(int bits, bool complement, int fraction) {
    return each_code(bits, [&](std::uint32_t code) {
        const std::uint32_t half = 1u << (bits - 1), magnitude = complement && code >= half ? 2 * half - code : code & (half - 1);
        const double v = std::ldexp(complement && code == half ? half : magnitude, -fraction);
        return shown_number(code >= half ? -v : v);
    });
}
/// Returns the powers of two of a shared exponent; the highest code marks a NaN block.
std::vector<code_value> powers(int bits, int bias) {
    return each_code(bits, [&](std::uint32_t code) {
        return shown_number(code + 1 == 1u << bits ? std::nan("") : std::ldexp(1.0, static_cast<int>(code) - bias));
    });
}

struct of_family {
    format_codes operator()(const ggml_blocks&) const { return {}; }  // refused before: their codes lie in blocks
    format_codes operator()(floating f) const { return {bits(f), each_code(f), {}}; }
    format_codes operator()(integer f) const {
        return {
            f.bits, each_code(f.bits, [&](std::uint32_t code) { return shown_number(static_cast<double>(qk::value_of(f, code))); }), {}};
    }
    format_codes operator()(const table& f) const {
        const auto value = [&](std::uint32_t code) { return shown_number(static_cast<double>(qk::value_of(f, code))); };
        format_codes all{bits(f), each_code(bits(f), value), {}};
        all.elements.resize(static_cast<std::size_t>(f.size()));
        return all;
    }
    format_codes operator()(const block_float& f) const {
        return {f.mantissa_bits + 1, signed_codes(f.mantissa_bits + 1, f.bump, 0),
                powers(f.exponent_bits, (1 << (f.exponent_bits - 1)) - 1 + f.mantissa_bits - 1)};
    }
    format_codes operator()(const microexponent& f) const {
        return {f.mantissa_bits + 1, signed_codes(f.mantissa_bits + 1, false, 0), powers(8, 127 - 1 + f.mantissa_bits)};
    }
    format_codes operator()(const microscaling& f) const {
        if (has_integer_elements(f)) return {f.integer_bits, signed_codes(f.integer_bits, true, f.integer_bits - 2), each_code(e8m0)};
        return {bits(f.element), each_code(f.element), each_code(e8m0)};
    }
    template <class Format>
    requires requires(const Format& f) { f.scale; }
    format_codes operator()(const Format& f) const { return {bits(f.element), each_code(f.element), each_code(f.scale)}; }
};

constexpr int cells = 96;

/// Draws how many numbers lie in each cell of a line: at(v) is in [0, 1].
template <class At>
std::string line_of(const std::vector<double>& numbers, const At& at) {
    std::vector<int> count(cells, 0);
    for (const double v : numbers) ++count[static_cast<std::size_t>(std::clamp(static_cast<int>(at(v) * (cells - 1) + 0.5), 0, cells - 1))];
    std::string line;
    for (const int n : count) line += n == 0 ? '.' : n == 1 ? '|' : n < 10 ? static_cast<char>('0' + n) : '#';
    return line;
}

/// Draws the numbers above 0, by size and by exponent.
std::string drawing_of(const std::vector<code_value>& codes) {
    std::vector<double> numbers;
    bool negative = false;
    for (const code_value& c : codes) {
        if (std::isfinite(c.value) && c.value > 0) numbers.push_back(c.value);
        negative = negative || c.value < 0;
    }
    if (numbers.empty()) return {};
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    const double low = std::log2(*least), high = std::log2(*most), width = high > low ? high - low : 1;
    std::string text =
        fmt::format("\nThe {} numbers above 0{} (| one, 2 to 9, # more):\n", numbers.size(), negative ? "; those below mirror them" : "");
    text += fmt::format("  by size      0 {} {}\n", line_of(numbers, [&](double v) { return v / *most; }), *most);
    text += fmt::format("  by exponent    {}\n", line_of(numbers, [&](double v) { return (std::log2(v) - low) / width; }));
    text += fmt::format("                 {:<{}}{}\n", fmt::format("{}", *least), cells - 8, fmt::format("{:>8.4g}", *most));
    return text;
}

}  // namespace

code_value value_of(const code_number& n) {
    const double sign = n.negative ? -1 : 1;
    if (n.nan) return shown_number(std::nan(""));
    if (n.infinite) return shown_number(sign * HUGE_VAL);
    const double v = sign * std::ldexp(n.digits, n.exponent);
    if (n.digits == 0 || std::isnormal(v)) return shown_number(v);
    return {v, (n.negative ? "-" : "") + digits_of(n.digits, n.exponent)};
}

format_codes codes_of(const qk::format& f) {
    const int width = element_width(f);
    if (is_read_only(f)) throw error(fmt::format("{} has no codes of its own: they lie in blocks with their scales", to_text(f).view()));
    if (width > 16) throw error(fmt::format("--codes lists formats of up to 16 bits; {} has {}", to_text(f).view(), width));
    return std::visit(of_family(), f);
}

std::string pairs_of(const std::vector<code_value>& codes) {
    std::string text = "[";
    for (std::size_t code = 0; code < codes.size(); ++code) {
        const bool is_number = !std::isnan(codes[code].value) && codes[code].text.find("inf") == std::string::npos;
        text += fmt::format("{}[{},{}{}{}]", code == 0 ? "" : ",", code, is_number ? "" : "\"", codes[code].text, is_number ? "" : "\"");
    }
    return text + "]";
}

std::string table_of(const format_codes& all) {
    const auto list = [](const std::vector<code_value>& codes, int bits) {
        std::string text;
        for (std::size_t code = 0; code < codes.size(); ++code)
            text += fmt::format("{:>6}  0x{:0{}x}  {:0{}b}  {}\n", code, code, (bits + 3) / 4, code, bits, codes[code].text);
        return text;
    };
    std::string text = list(all.elements, all.bits) + drawing_of(all.elements);
    if (all.shared.empty()) return text;
    int width = 0;
    while (std::size_t{1} << width < all.shared.size()) ++width;
    return "Elements, in units of their block's scale or step:\n" + text + "\nScales of blocks:\n" + list(all.shared, width);
}

}  // namespace qk::tool
