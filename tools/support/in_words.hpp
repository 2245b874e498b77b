// SPDX-License-Identifier: Apache-2.0
// Checks of numbers on the command line whose refusals are sentences: what was given, what is allowed, and what to do instead.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

namespace qk::tool {

using option_check = std::function<std::string(const std::string&)>;

/// A whole number of at least `least`. `advice` follows: "leave it out to use all samples".
inline option_check whole_number(long long least, const std::string& advice, long long most = 1LL << 53) {
    return [=](const std::string& text) {
        char* end = nullptr;
        errno = 0;
        const long long v = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == '\0' && errno == 0 && v >= least && v <= most) return std::string();
        const std::string upto = most == 1LL << 53 ? fmt::format("of at least {}", least) : fmt::format("from {} to {}", least, most);
        return fmt::format("'{}' is not a whole number {}; {}", text, upto, advice);
    };
}

/// A number from `least` to `most`, infinity for no bound. `advice` says what it means.
inline option_check number_within(double least, double most, const std::string& advice) {
    return [=](const std::string& text) {
        char* end = nullptr;
        const double v = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && v >= least && v <= most && !std::isnan(v)) return std::string();
        const std::string range = std::isinf(most) ? fmt::format("of at least {:g}", least) : fmt::format("from {:g} to {:g}", least, most);
        return fmt::format("'{}' is not a number {}; {}", text, range, advice);
    };
}

}  // namespace qk::tool
