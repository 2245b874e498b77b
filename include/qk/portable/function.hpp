// SPDX-License-Identifier: Apache-2.0
// What a function of a portable ONNX file says of itself: the attributes of its calls, and the fingerprint of its body.
//
// A call of a function in domain `qk` states its whole meaning by these attributes, so that nobody need look into the body:
// docs/reference/portable_functions.md has them. Files keep what was written: a word may be added, none changes its meaning.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qk/formats/format.hpp"
#include "qk/option_names.hpp"
#include "qk/product/whole_numbers.hpp"
#include "qk/semantics.hpp"
#include "qk/text.hpp"

namespace qk::portable {

/// The version of the attributes. Whoever reads a larger one leaves the call alone.
inline constexpr std::int64_t version = 1;

namespace attribute {
inline constexpr const char* version = "qk_version";     ///< integer: portable::version of the writer
inline constexpr const char* format = "format";          ///< text, as parse_format reads it
inline constexpr const char* semantics = "semantics";    ///< text, as parse_semantics_text reads it
inline constexpr const char* scale_rule = "scale_rule";  ///< a word of scale_rule_names
inline constexpr const char* scales = "scales";          ///< a word of scale_source_names
inline constexpr const char* axis = "axis";              ///< integer: of blocks or channels, in the input (quantizers) or result (decoders)
inline constexpr const char* block = "block";            ///< integer: how many values along the axis share a scale; 0: no blocks
inline constexpr const char* flatten = "flatten";        ///< integer: 1 where all axes but the first count as one
inline constexpr const char* result = "result";          ///< a word of result_shape_names
inline constexpr const char* shape = "shape";    ///< integers: the result's shape, where `result` is "shape"; of the matrix: "product"
inline constexpr const char* turned = "turned";  ///< integer, products: 1 where the model held the matrix as [outputs, inputs]
inline constexpr const char* bias = "bias";      ///< integer, products: 1 where the second input is a bias
inline constexpr const char* sums = "sums";      ///< a word of sums_names, products
}  // namespace attribute

/// Where the scales of a call come from.
enum class scale_source : std::uint8_t {
    none,      ///< there are none: values as they are
    own,       ///< a block chooses its own; a format whose tensor has a scale, too, takes that from input `scale`, or from all values
    run,       ///< one for the tensor, with a zero point where the format has one, from the values of the run
    one,       ///< input `scale`, and `zero_point`: one for the tensor
    channels,  ///< the same, one for each index of the axis
    blocks,    ///< the same, one for each run of `block` values along the axis: [outer, blocks, inner]
};
inline constexpr named_option<scale_source> scale_source_names[] = {{"none", scale_source::none},         {"own", scale_source::own},
                                                                    {"run", scale_source::run},           {"one", scale_source::one},
                                                                    {"channels", scale_source::channels}, {"blocks", scale_source::blocks}};

/// Which shape a call's result has.
enum class result_shape : std::uint8_t {
    input,    ///< that of the first input
    shape,    ///< that of the attribute
    product,  ///< that of the first input, whose last axis, of `shape`'s second length, gets the first one
    rows,     ///< that of the first input, whose numbers are rows of the matrix of `shape`, and behind it `shape`'s second length
};
inline constexpr named_option<result_shape> result_shape_names[] = {
    {"input", result_shape::input}, {"shape", result_shape::shape}, {"product", result_shape::product}, {"rows", result_shape::rows}};

/// How a product adds up.
enum class sums : std::uint8_t {
    floats,    ///< in float32, in an order that is the runtime's
    integers,  ///< the same of x rounded to int8 by block of 32: product_sums::integers (qk/product.hpp)
};
inline constexpr named_option<sums> sums_names[] = {{"floats", sums::floats}, {"integers", sums::integers}};

/// Returns whether products with such a matrix may have the sums `integers`: its elements are whole numbers, and 16 or a multiple of 32
/// values of a row share a scale. `block` is the format's own, or the attribute.
constexpr bool takes_integer_sums(const format& f, scale_source scales, std::int64_t axis, std::int64_t block) {
    if (scales == scale_source::channels && (axis == 1 || axis == -1)) return false;
    const bool blocked = scales == scale_source::own || scales == scale_source::blocks;
    return takes_integers(f) && (!blocked || block == 16 || (block > 0 && block % 32 == 0));
}

/// The name of a function that decodes begins with the first; the second follows the format where each run decodes. That of a product with
/// a packed matrix begins with `products`, and the type of its input follows the format where that is no float32. The names of further
/// functions of one format end with _2, _3, ... That of a table, of which each run reads a few rows, begins with `rows_of_tables`.
inline constexpr std::string_view decodes = "decode_", in_each_run = "_in_run", products = "product_", of_float16 = "_float16",
                                  of_bfloat16 = "_bfloat16", rows_of_tables = "rows_";

/// The documentation of a function ends with this and the fingerprint of its body in 16 hexadecimal digits.
inline constexpr std::string_view body_mark = "; body ";

// Semantics as text: the name of the nearest system, then ",KEY=WORD" for each choice in which they differ from it: "ocp",
// "quark,rounding=half-away". The scale rule is an attribute of its own. Weights of scales, seeds and random words have no text.

namespace detail {

inline constexpr named_option<bool> bool_names[] = {{"no", false}, {"yes", true}};
inline constexpr named_option<overflow_rule> overflow_words[] = {{"by-width", overflow_rule::by_width},
                                                                 {"saturate", overflow_rule::saturate},
                                                                 {"ieee", overflow_rule::ieee},
                                                                 {"fn-saturates", overflow_rule::fn_saturates},
                                                                 {"propagate", overflow_rule::propagate}};
inline constexpr named_option<block_specials> special_names[] = {
    {"block-nan", block_specials::block_nan}, {"pass-through", block_specials::pass_through}, {"nan-only", block_specials::nan_only}};
inline constexpr named_option<zero_sign> zero_names[] = {{"kept", zero_sign::kept},
                                                         {"positive", zero_sign::positive},
                                                         {"underflow-positive", zero_sign::underflow_positive},
                                                         {"zero-quotient-positive", zero_sign::zero_quotient_positive}};
inline constexpr named_option<nan_rule> nan_names[] = {
    {"positive-zero", nan_rule::positive_zero}, {"negative-zero", nan_rule::negative_zero}, {"nan", nan_rule::nan}};
inline constexpr named_option<integer_special> integer_names[] = {
    {"zero-point", integer_special::zero_point}, {"lowest", integer_special::lowest}, {"highest", integer_special::highest}};

/// Calls visit(key, choice, words) for each choice that has a text.
template <class Semantics, class Visit>
constexpr void each_choice(Semantics& s, const Visit& visit) {
    visit("rounding", s.rounding, rounding_names);
    visit("overflow", s.overflow, overflow_words);
    visit("scale_objective", s.scale_objective, scale_objective_names);
    visit("mx_specials", s.mx_specials, special_names);
    visit("bfp_specials", s.bfp_specials, special_names);
    visit("clamp_mx_scale", s.clamp_mx_scale, bool_names);
    visit("mxint_lowest", s.mxint_uses_lowest, bool_names);
    visit("mx_zero", s.mx_zero, zero_names);
    visit("bfp_zero", s.bfp_zero, zero_names);
    visit("mxint_zero", s.mxint_zero, zero_names);
    visit("nan", s.nan_without_code, nan_names);
    visit("integer_nan", s.integer_nan, integer_names);
    visit("integer_infinity", s.integer_infinity, integer_names);
    visit("integer_infinity_per_channel", s.integer_infinity_per_channel, integer_names);
    visit("integer_mode", s.integer_mode, integer_mode_names);
    visit("zero_point_before", s.zero_point_before, bool_names);
    visit("flush_inputs", s.flush_inputs, bool_names);
    visit("flush_outputs", s.flush_outputs, bool_names);
}

using choices = std::array<std::string_view, 18>;

/// Returns the word of each choice, in the order of each_choice.
constexpr choices words_of(const semantics& s) {
    choices words{};
    std::size_t i = 0;
    each_choice(s, [&](std::string_view, const auto& choice, const auto& names) { words[i++] = option_name(choice, names); });
    return words;
}

}  // namespace detail

using semantics_text = fixed_text<511>;

/// Returns the semantics as text, all but the scale rule.
constexpr semantics_text text_of(const semantics& s) {
    const detail::choices wanted = detail::words_of(s);
    const auto differences = [&](const semantics& base) {
        const detail::choices words = detail::words_of(base);
        std::size_t n = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) n += words[i] != wanted[i];
        return n;
    };
    const named_option<semantics>* nearest = semantics_names;
    for (const auto& entry : semantics_names)
        if (differences(entry.value) < differences(nearest->value)) nearest = &entry;
    semantics_text text(nearest->name);
    const detail::choices base = detail::words_of(nearest->value);
    std::size_t i = 0;
    detail::each_choice(s, [&](std::string_view key, const auto&, const auto&) {
        if (base[i] != wanted[i]) text.append(",").append(key).append("=").append(wanted[i]);
        ++i;
    });
    return text;
}

/// Reads what text_of wrote; the scale rule is that of the caller.
constexpr parsed<semantics> parse_semantics_text(std::string_view text, scale_rule rule) {
    const auto next = [&text] {
        const std::string_view part = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), part.size() + 1));
        return part;
    };
    parsed<semantics> result = parse_semantics(next());
    while (result && !text.empty()) {
        const std::string_view part = next(), key = part.substr(0, part.find('=')),
                               word = part.substr(std::min(part.size(), key.size() + 1));
        bool known = false;
        detail::each_choice(result.value, [&](std::string_view name, auto& choice, const auto& names) {
            if (name != key) return;
            known = true;
            const auto read = parse_option(name, word, names);
            if (read) choice = read.value;
            else result.error = read.error;
        });
        if (!known) result.error.append("semantics have no choice '").append(key.substr(0, 60)).append("'");
    }
    result.value.scale_rule = rule;
    return result;
}

/// FNV-1a of the bytes of a function's protobuf fields, tags and lengths among them, without its doc_string. It tells an edited body from
/// the one that was written; it is no protection against somebody who means to deceive.
class body_hash {
  public:
    constexpr void add(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }
    constexpr std::array<char, 16> digits() const {
        std::array<char, 16> text{};
        for (std::size_t i = 0; i < text.size(); ++i) text[i] = "0123456789abcdef"[hash_ >> (60 - 4 * i) & 15];
        return text;
    }

  private:
    std::uint64_t hash_ = 0xcbf29ce484222325u;
};

/// The head of a protobuf field: its number, its own bytes, and those of the payload behind it; number 0 where the bytes are no head.
struct field_head {
    std::uint64_t number = 0, bytes = 0, payload = 0;
};
constexpr field_head head_of(std::string_view message) {
    std::size_t at = 0;
    const auto varint = [&](std::uint64_t& v) {
        v = 0;
        for (int shift = 0; shift < 64 && at < message.size(); shift += 7) {
            const auto byte = static_cast<std::uint8_t>(message[at++]);
            v |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return true;
        }
        return false;
    };
    std::uint64_t tag = 0, value = 0;
    if (!varint(tag) || tag >> 3 == 0) return {};
    switch (tag & 7) {
        case 0: return varint(value) ? field_head{tag >> 3, at, 0} : field_head{};
        case 1: return {tag >> 3, at, 8};
        case 2: return varint(value) ? field_head{tag >> 3, at, value} : field_head{};
        case 5: return {tag >> 3, at, 4};
        default: return {};
    }
}

/// A field of a protobuf message: all of its bytes, and its payload.
struct wire_field {
    std::uint64_t number = 0;
    std::string_view all, payload;
};

/// Takes the first field off `message`; number 0 where there is none, or the bytes are no protobuf.
constexpr wire_field next_field(std::string_view& message) {
    const field_head h = head_of(message);
    if (h.number == 0 || h.payload > message.size() - h.bytes) return {};
    const wire_field f{h.number, message.substr(0, h.bytes + h.payload), message.substr(h.bytes, h.payload)};
    message.remove_prefix(f.all.size());
    return f;
}

/// Returns the fingerprint of a serialized FunctionProto: of its fields in the order of their numbers, as not every library writes them;
/// `doc_string` is field 8.
constexpr std::array<char, 16> fingerprint(std::string_view function) {
    body_hash h;
    for (std::uint64_t number = 1; number < 64; ++number) {
        if (number == 8) continue;
        std::string_view rest = function;
        for (wire_field f = next_field(rest); f.number != 0; f = next_field(rest))
            if (f.number == number)
                for (const char c : f.all) h.add(static_cast<std::uint8_t>(c));
    }
    return h.digits();
}

}  // namespace qk::portable
