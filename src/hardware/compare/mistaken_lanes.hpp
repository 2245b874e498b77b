// SPDX-License-Identifier: Apache-2.0
// Mistakes in the wires of a block's lanes: values that come out where others belong. Which lanes, the device's values show.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "model.hpp"

namespace qk::compare {

/// How often lane `to` has what belongs to lane `from`: in so many blocks of those in which the two should differ.
struct lane_matches {
    std::size_t size = 0;
    std::vector<std::size_t> same, told;  ///< [to * size + from]
    explicit lane_matches(const problem& p)
        : size(static_cast<std::size_t>(block_size(p.asked.format))), same(size * size), told(size * size) {
        std::size_t blocks = 0;
        for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
            if (count != size || ++blocks > 2048) return;
            for (std::size_t to = 0; to < size; ++to) {
                const float here = p.expected[first + to * stride], device = p.device[first + to * stride];
                for (std::size_t from = 0; from < size; ++from) {
                    const float there = p.expected[first + from * stride];
                    if (same_value(here, there)) continue;
                    ++told[to * size + from];
                    same[to * size + from] += same_value(device, there);
                }
            }
        });
    }
    /// Returns the share of blocks in which `to` has what belongs to `from`, 0 without blocks.
    double share(std::size_t to, std::size_t from) const {
        const std::size_t k = to * size + from;
        return told[k] == 0 ? 0 : static_cast<double>(same[k]) / static_cast<double>(told[k]);
    }
};

/// A share of blocks that no accident explains: a mistake of another kind may hide the rest.
inline constexpr double shows = 0.4;

/// Returns the lane whose value lane `to` has, if the device shows that, or `to`.
inline std::size_t source_of_lane(const lane_matches& m, std::size_t to) {
    std::size_t best = to;
    for (std::size_t from = 0; from < m.size; ++from) {
        if (m.share(to, from) > std::max(shows, best == to ? 0 : m.share(to, best))) best = from;
    }
    return best;
}
/// Returns two lanes that have each other's values, or one that has another's (first the one that has it); equal if there are none.
template <bool Swapped>
std::pair<std::size_t, std::size_t> lanes_mixed_up(const problem& p) {
    const lane_matches m(p);
    for (std::size_t to = 0; to < m.size; ++to) {
        const std::size_t from = source_of_lane(m, to);
        if (from != to && (source_of_lane(m, from) == to) == Swapped) return {to, from};
    }
    return {0, 0};
}
/// Returns by how many lanes the values of every block are turned: lane k has the value of lane k + n. 0 if they are not.
inline std::size_t lanes_turned(const problem& p) {
    const lane_matches m(p);
    for (std::size_t n = 1; n < m.size; ++n) {
        double share = 0;
        for (std::size_t k = 0; k < m.size; ++k) share += m.share(k, (k + n) % m.size);
        if (share > shows * static_cast<double>(m.size)) return n;
    }
    return 0;
}

/// Gives every value the one at position lane(k, count) of its block.
template <class Lane>
void arrange_blocks(const problem& p, std::span<std::size_t> source, Lane lane) {
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t from = lane(k, count);
            source[first + k * stride] = from == nowhere ? nowhere : first + from * stride;
        }
    });
}
inline void neighbours_swapped(const problem& p, std::span<std::size_t> source) {
    arrange_blocks(p, source, [](std::size_t k, std::size_t count) { return (k ^ 1) < count ? k ^ 1 : k; });
}
inline void lanes_reversed(const problem& p, std::span<std::size_t> source) {
    arrange_blocks(p, source, [](std::size_t k, std::size_t count) { return count - 1 - k; });
}
inline void two_lanes_swapped(const problem& p, std::span<std::size_t> source) {
    const auto [a, b] = lanes_mixed_up<true>(p);
    arrange_blocks(p, source, [a = a, b = b](std::size_t k, std::size_t count) {
        return std::max(a, b) >= count ? k : k == a ? b : k == b ? a : k;
    });
}
inline void one_lane_doubled(const problem& p, std::span<std::size_t> source) {
    const auto [a, b] = lanes_mixed_up<false>(p);
    arrange_blocks(p, source, [a = a, b = b](std::size_t k, std::size_t count) { return k == a && b < count ? b : k; });
}
inline void lanes_rotated(const problem& p, std::span<std::size_t> source) {
    const std::size_t n = lanes_turned(p);
    arrange_blocks(p, source, [n](std::size_t k, std::size_t count) { return (k + n) % count; });
}
/// Shifts values by one place within the blocks; the lane at the end gets a zero.
template <bool Up>
void lanes_shifted(const problem& p, std::span<std::size_t> source) {
    arrange_blocks(p, source, [](std::size_t k, std::size_t count) {
        return Up ? (k == 0 ? nowhere : k - 1) : k + 1 == count ? nowhere : k + 1;
    });
}
/// Shifts values by one place in the order in which they are stored, blocks with their scales; the one at the end keeps its own.
template <bool Up>
void values_shifted(const problem&, std::span<std::size_t> source) {
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = Up ? (i == 0 ? 0 : i - 1) : std::min(i + 1, source.size() - 1);
}

inline bool with_lanes(const problem& p) { return block_size(p.asked.format) > 1; }
inline bool with_swapped_lanes(const problem& p) {
    if (!with_lanes(p)) return false;
    const auto [a, b] = lanes_mixed_up<true>(p);
    return a != b;
}
inline bool with_doubled_lane(const problem& p) {
    if (!with_lanes(p)) return false;
    const auto [a, b] = lanes_mixed_up<false>(p);
    return a != b;
}
inline bool with_turned_lanes(const problem& p) { return with_lanes(p) && lanes_turned(p) != 0; }
inline std::string swapped_lanes(const problem& p) {
    const auto [a, b] = lanes_mixed_up<true>(p);
    return std::to_string(a) + " and " + std::to_string(b);
}
inline std::string doubled_lane(const problem& p) {
    const auto [a, b] = lanes_mixed_up<false>(p);
    return std::to_string(a) + " has the value of position " + std::to_string(b);
}
inline std::string turned_lanes(const problem& p) { return std::to_string(lanes_turned(p)); }

}  // namespace qk::compare
