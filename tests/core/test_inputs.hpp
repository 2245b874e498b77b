// SPDX-License-Identifier: Apache-2.0
// Makes input arrays that find mistakes: ordinary, every exponent, ties, subnormal, special, sparse and others, all from a seed.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

struct generator {
    std::uint64_t state;
    std::uint32_t word() {  // splitmix64, upper half
        std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
    }
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32); }
    double uniform() { return word() * 0x1p-32; }
};

enum class data { ordinary, any_bits, ties, subnormal, special, sparse, narrow_range, top, tiny_runs, count };

inline const char* name_of(data kind) {
    constexpr const char* names[] = {"ordinary", "any_bits", "ties", "subnormal", "special", "sparse", "narrow_range", "top", "tiny_runs"};
    return names[static_cast<int>(kind)];
}

/// Returns the float32 with these fields.
inline float assemble(bool negative, std::uint32_t exponent, std::uint32_t mantissa) {
    return std::bit_cast<float>(std::uint32_t{negative} << 31 | exponent << 23 | (mantissa & 0x7fffffu));
}

/// Returns up to 20 mantissa bits followed by a 1, or a neighbour of that: a tie, or almost one, of formats with up to 20 mantissa bits.
inline float tie(generator& g, std::uint32_t exponent) {
    const std::uint32_t kept = g.below(21);
    const std::uint32_t mantissa = (g.word() & (0x7fffffu << (23 - kept))) | 1u << (22 - kept);
    const float x = assemble(g.below(2) != 0, exponent, mantissa);
    const std::uint32_t neighbour = g.below(4);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + (neighbour == 0 ? 1u : neighbour == 1 ? ~0u : 0u));
}

inline std::vector<float> make_inputs(data kind, std::size_t count, std::uint64_t seed) {
    generator g{seed * 977 + static_cast<std::uint64_t>(kind)};
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
        switch (kind) {
            case data::ordinary: {
                const double r = std::sqrt(-2 * std::log(g.uniform() + 0x1p-33)) * std::cos(6.283185307179586 * g.uniform());
                x[i] = static_cast<float>(r);
                break;
            }
            case data::any_bits: do { x[i] = std::bit_cast<float>(g.word());
                } while (!std::isfinite(x[i]));
                break;
            case data::ties: x[i] = tie(g, 120 + g.below(12)); break;
            case data::subnormal: x[i] = assemble(g.below(2) != 0, g.below(3), g.word() >> g.below(32)); break;
            case data::special: {
                constexpr float inf = std::numeric_limits<float>::infinity();
                const float specials[] = {inf,
                                          -inf,
                                          std::numeric_limits<float>::quiet_NaN(),
                                          0.0f,
                                          -0.0f,
                                          std::bit_cast<float>(0xffc00001u),
                                          std::numeric_limits<float>::max(),
                                          -std::numeric_limits<float>::max(),
                                          0x1p-149f,
                                          -0x1p-126f};
                x[i] = g.below(24) == 0 ? specials[g.below(10)] : tie(g, 100 + g.below(60));
                break;
            }
            case data::sparse:
                x[i] = g.below(5) != 0 ? std::copysign(0.0f, static_cast<float>(g.uniform() - 0.5)) : tie(g, 118 + g.below(14));
                break;
            case data::narrow_range: x[i] = tie(g, 125 + g.below(3)); break;
            case data::top: x[i] = tie(g, 240 + g.below(15)); break;
            case data::tiny_runs: {  // runs of 48 ties, 48 subnormals and 48 zeros: whole blocks of each
                const std::size_t run = i / 48 % 3;
                x[i] = run == 0 ? tie(g, 118 + g.below(14)) : run == 1 ? assemble(g.below(2) != 0, 0, g.word()) : 0.0f;
                break;
            }
            case data::count: break;
        }
    }
    return x;
}
