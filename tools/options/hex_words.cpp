// SPDX-License-Identifier: Apache-2.0
#include "options/hex_words.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "qk/graph/error.hpp"

namespace qk::tool {

std::string hex_words(std::span<const std::uint64_t> values, const std::vector<int>& widths) {
    std::string s;
    for (std::size_t k = 0; k < values.size(); ++k) {
        const auto digits = static_cast<std::size_t>((widths[k % widths.size()] + 3) / 4);
        if (k != 0) s += ' ';
        s += values[k] == no_number ? std::string(digits, 'x') : fmt::format("{:0{}x}", values[k], digits);
    }
    return s;
}

hex_row words_of_line(std::string line) {
    if (const std::size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
    hex_row w;
    std::string word;
    for (const char ch : line + " ") {
        if (ch == '_') continue;
        if (!std::isspace(static_cast<unsigned char>(ch))) {
            word += ch;
            continue;
        }
        if (!word.empty() && word.front() != '@') {
            std::uint64_t v = 0;
            const char* const end = word.data() + word.size();
            const auto read = std::from_chars(word.data(), end, v, 16);
            const bool number = read.ptr == end;
            if (read.ec == std::errc::result_out_of_range) throw graph::error("'" + word + "' has more than 64 bits");
            if (!number && word.find_first_not_of("0123456789abcdefABCDEFxXzZ?") != std::string::npos)
                throw graph::error("'" + word + "' is no hexadecimal word");
            w.push_back(number ? v : no_number);
        }
        word.clear();
    }
    return w;
}

}  // namespace qk::tool
