// SPDX-License-Identifier: Apache-2.0
// Names come from files, and a terminal obeys some characters: text is made safe here before a person or another program reads it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qk::graph {

/// `text` as messages, tables and pages show it. What a terminal obeys (C0 and C1 control characters), what hides or reorders the text
/// around it (bidirectional and zero-width controls, line separators) and bytes that are not UTF-8 become \n, \t, \x1b, \u202e, \xff.
/// Everything else stays, backslashes included; so text that went through once comes out the same the second time.
/// Characters in `layout` stay, too: "\n" for text that was laid out in lines by its writer.
std::string printable(std::string_view text, std::string_view layout = {});

/// Only the bytes that are not UTF-8 become \xff; control characters stay.
std::string as_utf8(std::string_view text);

/// Whether `text` is UTF-8 (RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF).
bool is_utf8(std::string_view text);

/// A code point and its bytes; `length` 0: what `text` begins with is not UTF-8, or `text` is empty.
struct code_point {
    char32_t value = 0;
    std::size_t length = 0;
};
code_point first_code_point(std::string_view text);

/// Whether a terminal or a reader of text obeys `c` instead of showing it.
bool is_control(char32_t c);

}  // namespace qk::graph
