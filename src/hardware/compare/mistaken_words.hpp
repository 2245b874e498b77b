// SPDX-License-Identifier: Apache-2.0
// Mistakes in the random words of stochastic rounding: of another seed, late, shared by lanes, or shorter than they should be.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"
#include "qk/rounding.hpp"

namespace qk::compare {

inline bool rounds_stochastically(const problem& p) { return is_stochastic(p.asked.how.rounding); }

/// Returns the word that each value should be rounded with.
inline std::vector<std::uint32_t> words_asked(const problem& p) {
    std::vector<std::uint32_t> w(p.x.size());
    const qk::semantics& how = p.asked.how;
    for (std::size_t i = 0; i < w.size(); ++i)
        w[i] = !how.random_words.empty() ? how.random_words[i] : random_bits(how.seed, how.first_index + i);
    return w;
}
/// Rounds with changed words: word(words, i).
template <class Word>
void with_words(conversion& c, const problem& p, Word word) {
    const std::vector<std::uint32_t> right = words_asked(p);
    std::vector<std::uint32_t> w(right.size());
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = word(right, i);
    c.use_words(std::move(w));
}
template <int Bits>
void with_upper_bits(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[i] >> (32 - Bits) << (32 - Bits); });
}
/// Values that stand in `Lanes` neighbouring places have the word of the first of them.
template <std::size_t Lanes>
void with_shared_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[i / Lanes * Lanes]; });
}
/// The words repeat: those of a generator that comes back to its start after `Period` of them.
template <std::size_t Period>
void with_repeated_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[i % Period]; });
}
template <int Bit, bool One>
void with_stuck_word_bit(conversion& c, const problem& p) {
    constexpr std::uint32_t mask = std::uint32_t{1} << Bit;
    with_words(c, p, [](const auto& w, std::size_t i) { return One ? w[i] | mask : w[i] & ~mask; });
}
inline void with_late_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[i == 0 ? 0 : i - 1]; });
}
inline void with_early_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[std::min(i + 1, w.size() - 1)]; });
}
inline void with_inverted_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return ~w[i]; });
}
inline void with_swapped_words(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) {
        std::uint32_t v = 0;
        for (int k = 0; k < 32; ++k) v |= (w[i] >> k & 1u) << (31 - k);
        return v;
    });
}

inline void with_turned_bytes(conversion& c, const problem& p) {
    with_words(c, p, [](const auto& w, std::size_t i) { return w[i] << 24 | (w[i] & 0xff00u) << 8 | (w[i] >> 8 & 0xff00u) | w[i] >> 24; });
}

/// Returns the seed from 0 to 255 with which the first values that tell it come out as the device's; the one asked for if there is none.
inline std::uint64_t seed_of(const problem& p) {
    constexpr std::size_t looked_at = 2048;
    const auto size = static_cast<std::size_t>(std::max(1, block_size(p.asked.format)));
    const bool rows = p.asked.blocks.inner == 1 && p.asked.blocks.length % size == 0;
    if (!p.asked.how.random_words.empty() || (size != 1 && !rows) || p.asked.scale.size() > 1) return p.asked.how.seed;
    const std::size_t n = std::min(p.x.size(), looked_at) / size * size;
    conversion c = p.asked;
    c.blocks = {n / size, size, 1};
    std::vector<float> y(n);
    for (std::uint64_t seed = 0; seed < 256 && n != 0; ++seed) {
        c.how.seed = seed;
        fake_quantize(c, p.x.subspan(0, n), y);
        std::size_t differ = 0;
        for (std::size_t i = 0; i < n && differ * 20 <= n; ++i) differ += !same_value(y[i], p.device[i]);
        if (differ * 20 <= n && seed != p.asked.how.seed) return seed;
    }
    return p.asked.how.seed;
}
inline bool has_other_seed(const problem& p) { return rounds_stochastically(p) && seed_of(p) != p.asked.how.seed; }
inline void with_other_seed(conversion& c, const problem& p) { c.how.seed = seed_of(p); }
inline std::string other_seed(const problem& p) { return std::to_string(seed_of(p)); }

}  // namespace qk::compare
