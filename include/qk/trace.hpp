// SPDX-License-Identifier: Apache-2.0
// Which way a value took: where QK_TRACE_PATH is defined, every driver writes a line to the standard error, with the form that it runs and
// the values that it runs it on.
//
//   qk: block_rows, fast_block<qk::kernels::native>, values_of_blocks<qk::kernels::native>: 1024 values from 0 on
//
// A later line about the same values is right: what a fast form does not cover is done again by `general`. Define QK_TRACE_PATH for all
// files of a program or for none, and compile without NDEBUG if inputs may be wrong. Elsewhere nothing of this is compiled.
#pragma once

#if defined(QK_TRACE_PATH)

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Writes the line of a driver about `count` values from position `first` of the caller's array (of the piece that is walked, where a
/// driver knows no more).
template <class... Forms>
void trace_path(const char* driver, std::size_t first, std::size_t count) noexcept {
    const std::string_view whole = __PRETTY_FUNCTION__;  // "... [with Forms = {A, B}; ...]" or "... [Forms = <A, B>]"
    const std::size_t begin = whole.find("Forms = ") + 9, end = std::min(whole.find('}', begin), whole.size() - 2);
    std::string_view forms = whole.substr(begin, end - begin);
    std::fprintf(stderr, "qk: %s, ", driver);
    constexpr std::string_view ours[] = {"qk::kernels::", "qk::detail::", QK_ISA_TEXT "::"};
    while (!forms.empty()) {
        bool skipped = false;
        for (const std::string_view prefix : ours)
            if (forms.substr(0, prefix.size()) == prefix) forms.remove_prefix(prefix.size()), skipped = true;
        if (skipped) continue;
        std::fputc(forms.front(), stderr);
        forms.remove_prefix(1);
    }
    std::fprintf(stderr, ": %zu values from %zu on\n", count, first);
}

}  // namespace QK_ISA
}  // namespace qk::detail

#define QK_TRACE(driver, first, count, ...) ::qk::detail::trace_path<__VA_ARGS__>(driver, first, count)
#else
#define QK_TRACE(driver, first, count, ...) static_cast<void>(0)
#endif
