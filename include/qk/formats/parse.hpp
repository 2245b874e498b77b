// SPDX-License-Identifier: Apache-2.0
// Formats from text and back.
//
//   NAME                                         a name of the catalogue (mxfp4), or an element alone as papers write it (e2m1)
//   INTEGER[:symmetric][,pow2][,narrow][,reduce_range]        int8:symmetric,pow2
//   int:bits=N[,signed=0][,symmetric]...         integers of 1 to 32 bits
//   float:exponent=E,mantissa=M[,sign=0][,bias=B][,special=ieee|fn|fnuz|none|nan|inf][,subnormals=0]
//         [,infinity=0|1][,negative_zero=0|1][,high_nans=none|one|mantissas]      facts that no word of `special` means
//   binaryKpP{s,u}{e,f}                          IEEE P3109's formats (p3109.hpp)
//   bfp:block=N,exponent=E,mantissa=M[,bump]
//   microexponent:block=N,sub_block=N,mantissa=M[,shift=D]
//   mx:element=F,block=N                         F: a floating name, int8, intN or float:...
//   table:values=V/V/...[,ties=even-code|lower|upper|toward-zero|away]       2 to 256 numbers, or nan; code i is the i-th
//   nvfp:block=N[,element=F][,scale=F][,tensor=0]
//   ggml.TYPE                                    blocks of a .gguf (ggml.q4_K), which are only read: by decode and products
//
// parse_format never throws or allocates: `if (auto f = parse_format(text)) use(*f); else show(f.error.view());`.
// A format that it returns has passed `check`; `*f` of a failure is an assertion in debug builds, and no_format where assertions are off.
// The rooms of the families read and write their keys.
// to_text gives the catalogue's name, or the form above with no default spelled out; parse_format(to_text(f)) == f for every valid f.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/block_float/text.hpp"
#include "qk/formats/floating/text.hpp"
#include "qk/formats/ggml/text.hpp"
#include "qk/formats/integer/text.hpp"
#include "qk/formats/microexponent/text.hpp"
#include "qk/formats/microscaling/text.hpp"
#include "qk/formats/nvfloat/text.hpp"
#include "qk/formats/table/text.hpp"
#include "qk/isa.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

inline message unknown_format(std::string_view name) {
    message m("unknown format '");
    m.append(name.substr(0, 60)).append("'");
    for (const short_name& other : other_names)
        if (other.name == name) return m.append("; say ").append(other.catalogued);
    const std::string_view width = name.substr(name.substr(0, 1) == "u" ? 1 : 0);
    int bits = 0;
    if (width.substr(0, 3) == "int" && parse_number(width.substr(3), bits) && bits >= 1 && bits <= 32)
        return m.append("; say int:bits=").append(bits).append(width.size() == name.size() ? "" : ",signed=0");
    constexpr std::string_view families[] = {"int", "float", "bfp", "microexponent", "mx", "nvfp", "table"};
    for (std::string_view family : families) {
        if (family == name)
            return m.append("; ").append(name).append(" is a family, say its keys as in bfp:block=16,exponent=8,mantissa=5");
    }
    const named_format* near = nearest_name(catalogue, name);
    if (near != nullptr) m.append("; did you mean ").append(near->name).append("?");
    return m.append(near != nullptr ? " " : "; ").append("`qk formats` lists the names");
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

inline parsed<format> parse_format(std::string_view text) {
    if (text.empty()) return {no_format, "the format is empty; `qk formats` lists the names"};
    if (text.size() > (text.substr(0, 6) == "table:" ? longest_format_text : std::size_t{255}))
        return {no_format, message("the format '").append(text.substr(0, 60)).append("...' is too long")};
    if (const named_format* entry = detail::find_named(text)) return {entry->format, {}};
    if (const floating f = find_p3109(text); f != no_format) return {f, {}};
    if (text.substr(0, 5) == "ggml.") return detail::parse_ggml(text.substr(5));
    std::string_view keys = text;
    const std::string_view head = detail::take_until(keys, ':');
    const named_format* entry = find_format(head);
    parsed<format> result;
    if (head.size() == text.size()) {
        return {no_format, detail::unknown_format(head)};
    }
    if (entry != nullptr && std::holds_alternative<integer>(entry->format))
        result = detail::parse_integer(std::get<integer>(entry->format), head, keys, true);
    else if (head == "int") result = detail::parse_integer({}, head, keys, false);
    else if (head == "float") {
        const parsed<floating> f = detail::parse_split(keys);
        result = {f.value, f.error};
    } else if (head == "bfp") result = detail::parse_block_float(keys);
    else if (head == "microexponent") result = detail::parse_microexponent(keys);
    else if (head == "mx") result = detail::parse_microscaling(keys);
    else if (head == "table") result = detail::parse_table(keys);
    else if (head == "nvfp") result = detail::parse_nvfloat(keys);
    else if (entry != nullptr) result.error = message(head).append(" takes no modifiers; only integers do, as in int8:symmetric");
    else result.error = detail::unknown_format(head);
    if (!result.error.empty() && result.error.view().substr(0, 7) != "unknown") {
        const message why = result.error;
        result.error = message("format '").append(text.substr(0, 160)).append("': ").append(why);
    }
    if (!result.error.empty()) result.value = no_format;
    return result;
}

/// The same for formats that numbers are rounded to, which ggml's blocks are not.
inline parsed<format> parse_rounded_format(std::string_view text) {
    parsed<format> f = parse_format(text);
    if (f && is_read_only(f.value)) f = {no_format, message("format '").append(text).append("': ").append(check_rounds(f.value))};
    return f;
}

inline format_text to_text(const format& f) {
    if (const named_format* entry = find_format(f)) return format_text(entry->name);
    if (f == format(no_format)) return "no format";
    if (const floating* g = std::get_if<floating>(&f); g != nullptr && !is_classic(*g) && is_p3109(*g)) return {p3109_name(*g).view()};
    return detail::with_read_family(f, [](const auto& g) { return detail::text_of(g); });
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
