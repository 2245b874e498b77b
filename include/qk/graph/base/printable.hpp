// SPDX-License-Identifier: Apache-2.0
// Makes text from files safe before a person or another program reads it: a terminal obeys some characters instead of showing them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qk::graph {

/// Returns `text` as messages, tables and pages show it. What a terminal obeys (C0 and C1 control characters), what hides or reorders the
/// text around it (bidirectional and zero-width controls, line separators) and bytes that are not UTF-8 become \n, \t, \x1b, \u202e, \xff.
/// Everything else stays, backslashes included, so a second pass changes nothing.
/// Characters in `layout` stay, too: "\n" for text that its writer laid out in lines.
std::string printable(std::string_view text, std::string_view layout = {});

/// Returns a sentence with the middle of each long word, and of a long sentence, left out: "aaaa...[99840 bytes]...aaaa". A name from a
/// file may be of any length, and nobody reads a message of that length.
std::string shortened(std::string_view sentence);

/// Returns `text` with only the bytes that are not UTF-8 replaced by \xff and the like; control characters stay.
std::string as_utf8(std::string_view text);

/// Returns whether `text` is UTF-8 (RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF).
bool is_utf8(std::string_view text);

/// A text's first code point and its number of bytes. `length` is 0 when the text is empty or does not begin with UTF-8.
struct code_point {
    char32_t value = 0;
    std::size_t length = 0;
};
code_point first_code_point(std::string_view text);

/// Returns whether a terminal or a reader of text obeys `c` instead of showing it.
bool is_control(char32_t c);

}  // namespace qk::graph
