// SPDX-License-Identifier: Apache-2.0
// Compares the whole numbers of 128 bits that processors of 32 bits get with the compiler's own.
#include <doctest/doctest.h>

#include <bit>

#include "qk/whole_128.hpp"
#include "test_inputs.hpp"

#if defined(__SIZEOF_INT128__)

namespace {

using qk::detail::int128;
using qk::detail::two_words;
using qk::detail::uint128;

/// Returns a number with few or many bits set, at the ends of the words more often than a random one.
uint128 some_number(generator& g) {
    uint128 v = 0;
    for (int k = 0; k < 4; ++k) v = v << 32 | (g.below(3) == 0 ? 0u : g.below(3) == 0 ? ~0u : g.word());
    return v >> g.below(128);
}
template <bool Signed>
two_words<Signed> in_words(uint128 v) {
    return {static_cast<std::uint64_t>(v >> 64), static_cast<std::uint64_t>(v)};
}
template <bool Signed>
bool equal(two_words<Signed> words, uint128 v) {
    return words == in_words<Signed>(v);
}

template <bool Signed, class Own>
std::size_t wrong_answers(uint128 x, uint128 y, int n) {
    const two_words<Signed> a = in_words<Signed>(x), b = in_words<Signed>(y);
    const Own p = static_cast<Own>(x), q = static_cast<Own>(y);
    const bool right[] = {equal(a + b, x + y),
                          equal(a - b, x - y),
                          equal(a * b, x * y),
                          equal(-a, -x),
                          equal(~a, ~x),
                          equal(a & b, x & y),
                          equal(a | b, x | y),
                          equal(a ^ b, x ^ y),
                          equal(a << n, x << n),
                          equal(a >> n, static_cast<uint128>(p >> n)),
                          (a < b) == (p < q),
                          (a > b) == (p > q),
                          (a <= b) == (p <= q),
                          (a >= b) == (p >= q),
                          (a == b) == (p == q),
                          (a != 0) == (p != 0),
                          (a < 0) == (p < 0),
                          static_cast<std::int64_t>(a) == static_cast<std::int64_t>(p),
                          equal(two_words<Signed>(static_cast<std::int32_t>(x)), static_cast<uint128>(static_cast<std::int32_t>(x))),
                          equal(two_words<Signed>(static_cast<std::uint32_t>(x)), static_cast<std::uint32_t>(x)),
                          static_cast<bool>(a) == (p != 0)};
    std::size_t wrong = 0;
    for (const bool r : right) wrong += r ? 0 : 1;
    return wrong;
}

}  // namespace

TEST_CASE("two words are a whole number of 128 bits") {
    generator g{128};
    std::size_t wrong = 0;
    for (int i = 0; i < 200000; ++i) {
        const uint128 x = some_number(g), y = g.below(8) == 0 ? x : some_number(g);
        const auto n = static_cast<int>(i < 128 ? i : static_cast<int>(g.below(128)));
        wrong += wrong_answers<true, int128>(x, y, n) + wrong_answers<false, uint128>(x, y, n);
    }
    CHECK(wrong == 0);
}

#endif
