// SPDX-License-Identifier: Apache-2.0
// Makes operands of dot products that find mistakes.
#pragma once

#include <cstdlib>
#include <vector>

#include "qk/dot.hpp"
#include "qk/reference/dot.hpp"
#include "test_inputs.hpp"

/// Makes codes. Moods of floats: 0 any bits, 1 ordinary, 2 few large, 3 small, 4 sparse, 5 every exponent, 6 one of these for each element.
class dot_inputs {
  public:
    explicit dot_inputs(std::uint64_t seed) : g_{seed} {}

    qk::reference::dot_row row(const qk::format& f, std::size_t k, unsigned mood) {
        qk::reference::dot_row r;
        std::visit([&](const auto& form) { fill(form, k, mood, r); }, f);
        return r;
    }
    /// Returns a code of f for C, by the same moods up to 5.
    std::uint64_t c(qk::floating f, unsigned mood) { return floating_code(f, mood); }
    generator& random() { return g_; }

  private:
    std::uint64_t floating_code(qk::floating f, unsigned mood) {
        const int m = f.mantissa_bits, e = f.exponent_bits;
        const std::uint64_t any = std::uint64_t{g_.word()} << 32 | g_.word(),
                            all = (std::uint64_t{1} << (qk::is_signed(f) ? e + m + 1 : e + m)) - 1;
        if (f == qk::e8m0) return any & 0xff;
        const std::uint64_t sign = qk::is_signed(f) ? (any >> 63) << (e + m) : 0, mantissa = any & ((std::uint64_t{1} << m) - 1);
        const auto top = std::uint64_t{1} << e;
        switch (mood) {
            case 0: return any & all;  // any bits, specials too
            case 1:
                return sign | (top / 2 - 1 - g_.below(std::min<std::uint32_t>(4, static_cast<std::uint32_t>(top / 2)))) << m |
                       mantissa;                                                                                        // ordinary
            case 2: return g_.below(5) == 0 ? sign | (top - 2) << m | mantissa : sign | (top / 2 - 1) << m | mantissa;  // few large
            case 3:
                return sign | (std::uint64_t{g_.below(2)} << m) |
                       mantissa >> g_.below(static_cast<std::uint32_t>(m + 1));  // small, subnormal, zero
            case 4:
                return g_.below(3) == 0 ? sign
                                        : sign | (top / 2 - 1) << m | std::uint64_t{g_.below(2)} << (m - (m > 0));  // sparse, few bits
            default: return sign | std::uint64_t{g_.below(static_cast<std::uint32_t>(top - 1))} << m | mantissa;    // every exponent
        }
    }
    void elements(qk::floating f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        r.elements.resize(k);
        for (std::uint64_t& e : r.elements) e = floating_code(f, mood == 6 ? g_.below(6) : mood);
    }
    void words(int width, std::size_t k, qk::reference::dot_row& r) {
        r.elements.resize(k);
        for (std::uint64_t& e : r.elements) e = g_.below(6) == 0 ? 0 : g_.word() & qk::detail::low_bits(width);
    }
    void scales(int width, int block, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        const std::uint32_t middle = 1u << (width - 1);
        for (std::size_t i = 0; i < k; i += static_cast<std::size_t>(block)) {
            r.scales.push_back(mood == 0 ? g_.word() & qk::detail::low_bits(width) : middle - 4 + g_.below(mood == 2 ? 40 : 8));
        }
    }
    void fill(qk::floating f, std::size_t k, unsigned mood, qk::reference::dot_row& r) { elements(f, k, mood, r); }
    void fill(qk::integer f, std::size_t k, unsigned, qk::reference::dot_row& r) { words(f.bits, k, r); }
    void fill(const qk::table& f, std::size_t k, unsigned, qk::reference::dot_row& r) { words(bits(f), k, r); }
    void fill(const qk::block_float& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        words(1 + f.mantissa_bits, k, r);
        scales(f.exponent_bits, f.block_size, k, mood, r);
    }
    void fill(const qk::microexponent& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        words(1 + f.mantissa_bits, k, r);
        scales(8, f.block_size, k, mood, r);
        r.shifts.resize(qk::detail::divide_up(k, f.block_size) * qk::reference::sub_blocks(f));
        for (std::uint32_t& s : r.shifts) s = g_.word() & qk::detail::low_bits(f.shift_bits);
    }
    void fill(const qk::microscaling& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        if (qk::has_integer_elements(f)) words(f.integer_bits, k, r);
        else elements(f.element, k, mood, r);
        scales(8, f.block_size, k, mood, r);
    }
    void fill(const qk::nvfloat& f, std::size_t k, unsigned mood, qk::reference::dot_row& r) {
        elements(f.element, k, mood, r);
        for (std::size_t i = 0; i < k; i += static_cast<std::size_t>(f.block_size))
            r.scales.push_back(static_cast<std::uint32_t>(floating_code(f.scale, mood) & qk::top_magnitude(f.scale)));
    }
    void fill(const qk::ggml_blocks&, std::size_t, unsigned, qk::reference::dot_row&) {
        std::abort();  // dot products take no blocks of ggml
    }
    generator g_;
};
