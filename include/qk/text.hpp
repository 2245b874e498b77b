// SPDX-License-Identifier: Apache-2.0
// Text of bounded length without allocation: names, canonical forms and error sentences of the core.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "qk/expect.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

/// Append to a text of `size` characters what fits.
constexpr void append_to(char* text, std::size_t& size, std::size_t capacity, std::string_view s) {
    for (char c : s) {
        if (size < capacity) text[size++] = c;
    }
}
constexpr void append_to(char* text, std::size_t& size, std::size_t capacity, std::int64_t n) {
    std::array<char, 20> digits{};
    std::size_t count = 0;
    std::uint64_t rest = n < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
    do {
        digits[count++] = static_cast<char>('0' + rest % 10);
    } while ((rest /= 10) != 0);
    if (n < 0) append_to(text, size, capacity, "-");
    while (count > 0) append_to(text, size, capacity, std::string_view(&digits[--count], 1));
}

}  // namespace QK_ISA
}  // namespace detail

/// Up to `Capacity` characters; what does not fit is cut off. Converts to std::string_view and is always terminated.
template <std::size_t Capacity>
class fixed_text {
  public:
    QK_INLINE constexpr fixed_text() = default;
    QK_INLINE constexpr fixed_text(std::string_view s) { append(s); }
    QK_INLINE constexpr fixed_text(const char* s) : fixed_text(std::string_view(s)) {}

    QK_INLINE constexpr fixed_text& append(std::string_view s) {
        detail::append_to(chars_.data(), size_, Capacity, s);
        return *this;
    }
    QK_INLINE constexpr fixed_text& append(std::int64_t n) {
        detail::append_to(chars_.data(), size_, Capacity, n);
        return *this;
    }
    QK_INLINE constexpr fixed_text& append(int n) { return append(std::int64_t{n}); }

    QK_INLINE constexpr std::string_view view() const { return {chars_.data(), size_}; }
    QK_INLINE constexpr operator std::string_view() const { return view(); }
    QK_INLINE constexpr const char* c_str() const { return chars_.data(); }
    QK_INLINE constexpr bool empty() const { return size_ == 0; }
    QK_INLINE constexpr std::size_t size() const { return size_; }
    friend QK_INLINE constexpr bool operator==(const fixed_text& a, std::string_view b) { return a.view() == b; }

  private:
    std::array<char, Capacity + 1> chars_{};
    std::size_t size_ = 0;
};

/// An error in one sentence; empty when there is none.
using message = fixed_text<383>;

/// A value, or the sentence that says why there is none. Look at `error` (or at the bool) first: an assertion refuses `*p` of a failure,
/// and where assertions are off it is a value without meaning (for parse_format: no_format, which gives NaN everywhere).
template <class T>
struct parsed {
    T value{};
    message error;
    QK_INLINE constexpr explicit operator bool() const { return error.empty(); }
    QK_INLINE constexpr const T& operator*() const {
        QK_EXPECT(error.empty(), "qk: what could not be parsed has no value; look at its error first");
        return value;
    }
    QK_INLINE constexpr const T* operator->() const { return &**this; }
};

namespace detail {
inline namespace QK_ISA {

/// The distance of edit_distance between b and a or, `anywhere`, the part of a that is nearest to b. The rows have b.size() + 1 entries.
template <class Row, class Same>
constexpr std::size_t edit_distance(std::string_view a, std::string_view b, bool anywhere, std::array<Row, 3> rows, Same same) {
    auto& [before, above, row] = rows;  // of a's prefixes of i - 2, i - 1 and i characters
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    std::size_t least = b.size();
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before, above);
        std::swap(above, row);
        row[0] = anywhere ? 0 : i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t change = above[j - 1] + std::size_t{!same(a[i - 1], b[j - 1])};
            row[j] = std::min({change, above[j] + 1, row[j - 1] + 1});
            const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
            if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
        }
        least = std::min(least, row[b.size()]);
    }
    return anywhere ? least : row[b.size()];
}
constexpr std::size_t edit_distance(std::string_view a, std::string_view b, bool anywhere) {
    constexpr std::size_t longest = 63;
    if (a.size() > longest || b.size() > longest) return a.size() + b.size();
    using row = std::array<std::size_t, longest + 1>;
    return edit_distance(a, b, anywhere, std::array<row, 3>{}, [](char x, char y) { return x == y; });
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Returns how many insertions, deletions, replacements and swaps of two neighbours turn one word into the other, so that "mxpf4" is 1 from
/// "mxfp4". Words beyond 63 characters count as unlike.
constexpr std::size_t edit_distance(std::string_view a, std::string_view b) { return detail::edit_distance(a, b, false); }

/// Returns the distance of a word from the part of a name that is nearest to it: "hoper" is 1 from "nvidia.hopper.wgmma".
constexpr std::size_t distance_from_part(std::string_view name, std::string_view word) { return detail::edit_distance(name, word, true); }

/// Returns the entry of `table` (elements with a member `name`) whose name is nearest to `word`, or null when none is near.
template <class Table>
constexpr auto nearest_name(const Table& table, std::string_view word) -> decltype(&*std::begin(table)) {
    decltype(&*std::begin(table)) best = nullptr;
    std::size_t least = 1 + (word.size() > 4 ? word.size() / 2 : std::size_t{2});
    for (const auto& entry : table) {
        const std::size_t d = edit_distance(entry.name, word);
        if (d < least) {
            least = d;
            best = &entry;
        }
    }
    return best;
}

}  // namespace QK_ISA

}  // namespace qk
