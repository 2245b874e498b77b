// SPDX-License-Identifier: Apache-2.0
// The fast forms of tables. At most 32 numbers are searched by halving where registers can be looked up in. Others are found by the upper
// bits of a value: those that agree in them are at most two numbers, which one comparison tells apart.
#pragma once

#include <concepts>

#include "qk/formats/floating/fast.hpp"
#include "qk/formats/table/step.hpp"
#include "qk/isa.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// A value becomes the number that the search finds; NaN is left to the general form.
template <class Arch, int Levels>
struct fast_table {
    static constexpr std::int32_t limit = infinity_bits;
    const table_rules<Arch>* rules;

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> q, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return multiplied<Scaled>(rules->template number_of<Levels>(q), by);
    }
    QK_INLINE vi<Arch> code(vf<Arch> q) const noexcept { return rules->template code_of<Levels>(q); }
};

/// What the values with the same upper bits become. (A template, so that each instruction set has its own.)
template <class Arch>
struct table_buckets {
    static constexpr std::size_t most = 8192;
    int shift = 0;                     ///< bits of a value's order that are not looked up; 0: no such table
    std::int32_t first = 0, last = 0;  ///< buckets; beyond them nothing changes any more
    /// The place of the lowest number in the upper 8 bits. The others: from where on, among the values of the bucket, it is the next one.
    std::uint32_t entry[most];
    const float* number = nullptr;

    table_buckets() noexcept {}  // leaves the entries uninitialised
    bool usable() const noexcept { return shift != 0; }

    void fill(const table_rules<Arch>& r) noexcept {
        shift = 0, number = r.number;
        for (const int bits : {22, 21, 20, 19, 18})
            if (fits(r, bits)) return fill(r, bits);
    }
    /// Returns the numbers that values become, by their orders.
    QK_INLINE vf<Arch> number_of(vi<Arch> order) const noexcept {
        using V = vi<Arch>;
        const V at = min(max(order >> shift, V(first)), V(last)) - V(first), rest = order & V((1 << shift) - 1);
#if QK_HAS(SIXTEEN_LANES)
        if constexpr (lanes<Arch> == 16) {
            const V e = _mm512_i32gather_epi32(at.data, entry, sizeof(std::uint32_t));
            const V place = as_int<Arch>(as_unsigned<Arch>(e) >> 24) - all_bits<Arch>(rest >= (e & V(0xffffff)));
            return _mm512_i32gather_ps(place.data, number, sizeof(float));
        }
#endif
        alignas(64) std::int32_t bucket[lanes<Arch>], own[lanes<Arch>];
        store<Arch>(bucket, at), store<Arch>(own, rest);
        const auto of_lane = [&](std::size_t i) QK_INLINE_CALL {
            const std::uint32_t e = entry[bucket[i]];
            return number[(e >> 24) + (static_cast<std::uint32_t>(own[i]) >= (e & 0xffffffu) ? 1 : 0)];
        };
#if QK_HAS(BYTE_SHUFFLES)
        if constexpr (lanes<Arch> == 8)  // eight lanes are gathered one by one as fast, and joined without a way through memory
            return _mm256_setr_ps(of_lane(0), of_lane(1), of_lane(2), of_lane(3), of_lane(4), of_lane(5), of_lane(6), of_lane(7));
#endif
        alignas(64) float lane[lanes<Arch>];
        for (std::size_t i = 0; i < lanes<Arch>; ++i) lane[i] = of_lane(i);
        return load<Arch>(lane);
    }

  private:
    /// Is true where no two numbers begin in one bucket, and the buckets are not too many.
    static bool fits(const table_rules<Arch>& r, int bits) noexcept {
        const auto bucket = [&](int k) { return r.from[k] >> bits; };
        if (r.count < 2 || bucket(r.count - 1) - bucket(1) + 3 > static_cast<std::int32_t>(most)) return false;
        for (int k = 2; k < r.count; ++k)
            if (bucket(k) == bucket(k - 1)) return false;
        return true;
    }
    void fill(const table_rules<Arch>& r, int bits) noexcept {
        shift = bits, first = (r.from[1] >> bits) - 1, last = (r.from[r.count - 1] >> bits) + 1;
        const std::uint32_t size = 1u << bits;
        std::uint32_t* to = entry;
        for (int k = 1; k < r.count; ++k) {  // up to the bucket in which number k begins: nothing begins there, and number k - 1 goes on
            const std::uint32_t below = static_cast<std::uint32_t>(k - 1) << 24;
            std::uint32_t* const begin = entry + ((r.from[k] >> bits) - first);
            std::fill(to, begin, below | size);
            *begin = below | (static_cast<std::uint32_t>(r.from[k]) & (size - 1));
            to = begin + 1;
        }
        *to = static_cast<std::uint32_t>(r.count - 1) << 24 | size;
    }
};

/// A value becomes the number of its bucket; NaN is left to the general form.
template <class Arch>
struct fast_buckets {
    static constexpr std::int32_t limit = infinity_bits;
    const table_buckets<Arch>* buckets;

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> q, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return multiplied<Scaled>(buckets->number_of(table_rules<Arch>::ordered(as_int<Arch>(q))), by);
    }
};

constexpr floating_kind kind_of(const table&) { return floating_kind::any; }

/// Is true when a fast form may apply under these rules. (Scales are a matter of the caller's.)
template <class Arch>
bool may_be_fast(const table_rules<Arch>& r) noexcept {
    return !r.random.used && r.flush_below == 0 && r.least_input == 0 && default_environment<Arch>();
}
/// Is true when that of tables in registers applies.
template <class Arch>
bool has_fast_form(const table_rules<Arch>& r) noexcept {
    return r.in_registers && may_be_fast(r);
}

/// What the rows (or columns) of an array have in common.
template <class Arch>
struct table_rows {
    table_rules<Arch> rules;
    table_buckets<Arch> buckets;
    bool usable = false, streaming = false;

    table_rows(const table& f, const semantics& how, bool stream_rows) noexcept : rules(f, how) {
        if (!may_be_fast(rules)) return;
        if (!rules.in_registers) buckets.fill(rules);
        usable = rules.in_registers || buckets.usable();
        streaming = usable && stream_rows;
    }
    table_rows(const table_rows&) = delete;  // the buckets look up numbers in the rules
    table_rows& operator=(const table_rows&) = delete;
    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t*, std::size_t count, bool) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            t.scale[k] = scale[k];
            t.lowest[k] = t.highest[k] = 0;
            t.limit[k] = infinity_bits;
        }
        t.finish(count, 0, false);
    }
    template <std::size_t Size>
    table_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t*) const noexcept {
        return {&rules, vf<Arch>(t.scale[k]), t.scale[k] != 1.0f};
    }
    template <std::size_t Size>
    table_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t, const std::int64_t*) const noexcept {
        return {&rules, load<Arch>(t.scale + i), true};
    }
    template <class Scaled, class Call>
    void with_form(Scaled scaled, bool, const Call& call) const noexcept {
        const auto either = [&](const auto& form) {
            if constexpr (std::same_as<Scaled, bool>) scaled ? call(form, std::true_type()) : call(form, std::false_type());
            else call(form, scaled);
        };
        if constexpr (most_looked_up<Arch>() != 0) {
            if (rules.in_registers) return rules.levels == 4 ? either(fast_table<Arch, 4>{&rules}) : either(fast_table<Arch, 5>{&rules});
        }
        either(fast_buckets<Arch>{&buckets});
    }
};

template <class Arch, floating_kind = floating_kind::any>
table_rows<Arch> rows_of(const table& f, const semantics& how, bool, bool stream_rows) noexcept {
    return {f, how, stream_rows};
}

constexpr bool is_identity(const table&, const semantics&) { return false; }

}  // namespace QK_ISA
}  // namespace qk::kernels
