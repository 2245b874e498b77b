// SPDX-License-Identifier: Apache-2.0
// A decoder that makes mistakes: codes -> numbers of elements and scales -> float32, each stage with what may be wrong in it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "qk/compare/decoder.hpp"

namespace qk::compare {

/// What a decoder does; the defaults are right.
struct decoder_rules {
    std::uint32_t ones = 0, zeros = 0;  ///< bits of an element's code that are stuck
    bool bits_reversed = false;
    enum { own, swapped, reversed, next, previous, turned, exchanged, doubled } lane = own;  ///< whose code an element is made of
    std::size_t lanes_on = 0, one_lane = 0, other_lane = 0;  ///< turned: by so many; exchanged: these; doubled: one_lane has the other's
    std::optional<floating> other;                           ///< the elements are taken for this format's
    enum { right, flushed, hidden, raised, halved, twice } subnormal = right;  ///< raised: the hidden bit at the least normal exponent
    int power = 0;                                                             ///< elements are times 2^power
    enum { kept, nought, largest, infinite, number, nan } nan_is = kept, infinity_is = kept;
    enum { signs, unsigned_, inverted } sign = signs;
    bool zero_sign_lost = false;
    enum { as_it_is, no_sign, sign_magnitude, complement, offset } whole = as_it_is;
    enum { subtracted, left_out, added } zero_point = subtracted;
    bool fraction_lost = false;  ///< MXINT: elements are whole numbers
    // the scale
    std::uint32_t scale_ones = 0, scale_zeros = 0;
    int scale_power = 0, scale_of = 0;                          ///< scale_of: -1 or 1: the scale of the block before or behind
    bool top_scale_is_nan = false, least_scale_is_nan = false;  ///< the largest scale code that is a number, or code 0, is read as NaN
    bool top_is_special = false;                                ///< codes of the top exponent are read as Inf and NaN
    std::optional<float> constant;                              ///< every value is this one
    bool scale_nan_is_number = false, scale_zero_is_zero = false, scale_ignored = false, tensor_ignored = false;
    enum { shifts, no_shifts, other_way, first_shift } shift = shifts;
    // the result
    bool results_flushed = false, saturates = false;
};

struct decoder_mistake {
    int about;  ///< mistakes of one subject exclude each other
    std::string sentence;
    std::function<void(decoder_rules&)> plant;
    bool other_format = false;  ///< the decoder is taken for one of another format: where as few mistakes of this one do, these are meant
    bool everywhere = false;    ///< two lanes are mixed up for every value: where only some are explained, it fits by chance
};

/// Returns the mistakes that a decoder of this format may make, the likelier first. Which lanes are mixed up, the device's values show.
std::vector<decoder_mistake> decoder_mistakes(const problem& p);

/// Decodes under rules.
class decoder_model {
  public:
    decoder_model(const conversion& c, const coded_values& codes);
    std::size_t size() const { return codes_.elements.size(); }
    float value(std::size_t i, const decoder_rules& r) const;
    /// Returns the right factor of element i.
    float unit(std::size_t i) const { return static_cast<float>(factor(i, decoder_rules{})); }
    std::string code_text(std::size_t i) const;

  private:
    double element(std::uint32_t code, const decoder_rules& r) const;
    double floating_element(floating f, std::uint32_t code, const decoder_rules& r) const;
    double factor(std::size_t i, const decoder_rules& r) const;
    const conversion& c_;
    const coded_values& codes_;
    std::size_t block_;  ///< 1 without blocks
    int width_;
};

}  // namespace qk::compare
