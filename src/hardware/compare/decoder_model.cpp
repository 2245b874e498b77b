// SPDX-License-Identifier: Apache-2.0
#include "decoder_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diagnose.hpp"
#include "mistaken_lanes.hpp"
#include "mistaken_results.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/memory/bits.hpp"

namespace qk::compare {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double no_end = std::numeric_limits<double>::infinity();

std::uint32_t mirrored(std::uint32_t code, int width) {
    std::uint32_t v = 0;
    for (int k = 0; k < width; ++k) v |= (code >> k & 1u) << (width - 1 - k);
    return v;
}

/// Returns a code as the number that its fields would be without special values.
double plain_number(floating f, std::uint32_t code, bool hidden) {
    const int magnitude_bits = f.exponent_bits + f.mantissa_bits;
    const std::uint32_t m = code & low_bits(f.mantissa_bits), e = code >> f.mantissa_bits & low_bits(f.exponent_bits);
    const bool negative = f.is_signed && (code >> magnitude_bits & 1u) != 0;
    const double one = std::ldexp(1.0, f.mantissa_bits);
    const double v = e == 0 && !hidden ? std::ldexp(m, 1 - f.bias - f.mantissa_bits)
                                       : std::ldexp(one + m, static_cast<int>(e) - f.bias - f.mantissa_bits);
    return negative ? -v : v;
}

template <auto Member, auto Value>
std::function<void(decoder_rules&)> setting() {
    return [](decoder_rules& r) { r.*Member = Value; };
}

}  // namespace

decoder_model::decoder_model(const conversion& c, const coded_values& codes)
    : c_(c),
      codes_(codes),
      block_(std::max<std::size_t>(1, static_cast<std::size_t>(block_size(c.format)))),
      width_(element_width(c.format)) {}

double decoder_model::floating_element(floating f, std::uint32_t code, const decoder_rules& r) const {
    double v = static_cast<double>(value_of(f, code));
    const bool special = !std::isfinite(v);
    const double sign = f.is_signed && (code >> (bits(f) - 1) & 1u) != 0 ? -1 : 1;
    const double most = sign * max_value(f);
    const auto as = [&](auto what, double usual) {
        switch (what) {
            case decoder_rules::nought: return sign * 0.0;
            case decoder_rules::largest: return most;
            case decoder_rules::infinite: return sign * no_end;
            case decoder_rules::number: return plain_number(f, code, false);
            case decoder_rules::nan: return not_a_number;
            default: return usual;
        }
    };
    if (std::isnan(v)) v = as(r.nan_is, v);
    else if (std::isinf(v)) v = as(r.infinity_is, v);
    const std::uint32_t m = code & low_bits(f.mantissa_bits), e = code >> f.mantissa_bits & low_bits(f.exponent_bits);
    if (r.top_is_special && !special && e == low_bits(f.exponent_bits)) v = m == 0 ? sign * no_end : not_a_number;
    if (!special && e == 0 && f.subnormals) {
        if (r.subnormal == decoder_rules::hidden) v = plain_number(f, code, true);
        if (m != 0 && r.subnormal == decoder_rules::flushed) v = sign * 0.0;
        if (r.subnormal == decoder_rules::halved) v /= 2;
        if (r.subnormal == decoder_rules::raised) v = std::ldexp(plain_number(f, code, true), 1);
        if (r.subnormal == decoder_rules::twice) v *= 2;
    }
    return v;
}

double decoder_model::element(std::uint32_t code, const decoder_rules& r) const {
    if (r.bits_reversed) code = mirrored(code, width_);
    code = (code | r.ones) & ~r.zeros & low_bits(width_);
    double v = 0;
    const std::uint32_t top = std::uint32_t{1} << (width_ - 1);
    if (const floating* f = number_float(c_.format)) {
        v = floating_element(r.other.value_or(*f), code, r);
    } else {
        const integer* g = std::get_if<integer>(&c_.format);
        const block_float* b = std::get_if<block_float>(&c_.format);
        const bool complement = g != nullptr ? g->is_signed : b != nullptr ? b->bump : std::holds_alternative<microscaling>(c_.format);
        const bool magnitude = g == nullptr && !complement;
        auto how = r.whole;
        if (how == decoder_rules::as_it_is)
            how = complement ? decoder_rules::complement : magnitude ? decoder_rules::sign_magnitude : decoder_rules::no_sign;
        const double low = code & (top - 1);
        const bool negative = (code & top) != 0;
        if (how == decoder_rules::no_sign) v = code;
        if (how == decoder_rules::sign_magnitude) v = negative ? -low : low;
        if (how == decoder_rules::complement) v = negative ? low - static_cast<double>(top) : low;
        if (how == decoder_rules::offset) v = static_cast<double>(code) - static_cast<double>(top);
        const double z = g == nullptr || c_.zero_point.empty() ? 0 : static_cast<double>(c_.zero_point.front());
        if (r.zero_point == decoder_rules::subtracted) v -= z;
        if (r.zero_point == decoder_rules::added) v += z;
        if (const auto* m = std::get_if<microscaling>(&c_.format); m != nullptr && !r.fraction_lost) v = std::ldexp(v, 2 - m->integer_bits);
    }
    v = std::ldexp(v, r.power);
    if (r.sign == decoder_rules::unsigned_) v = std::fabs(v);
    if (r.sign == decoder_rules::inverted) v = -v;
    return v;
}

double decoder_model::factor(std::size_t i, const decoder_rules& r) const {
    const double tensor = c_.scale.empty() || r.tensor_ignored ? 1 : static_cast<double>(c_.scale.front());
    if (codes_.scales.empty()) return tensor;
    if (r.scale_ignored) return tensor;
    const auto blocks = static_cast<std::ptrdiff_t>(codes_.scales.size());
    const std::ptrdiff_t at = std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(i / block_) + r.scale_of, 0, blocks - 1);
    const int width = scale_width(c_.format);
    const std::uint32_t code = ((codes_.scales[static_cast<std::size_t>(at)] | r.scale_ones) & ~r.scale_zeros) & low_bits(width);
    if (code == 0 && r.scale_zero_is_zero) return 0;
    if ((code == 0 && r.least_scale_is_nan) || (code == low_bits(width) - 1 && r.top_scale_is_nan)) return not_a_number;
    double v = 0;
    if (const floating* scale = scale_float(c_.format)) {
        v = static_cast<double>(value_of(*scale, code));
        if (v != v && r.scale_nan_is_number) v = plain_number(*scale, code, false);
        v *= tensor;
    } else if (std::holds_alternative<microscaling>(c_.format)) {
        v = code == 255 && !r.scale_nan_is_number ? not_a_number : std::ldexp(1.0, static_cast<int>(code) - 127);
    } else {
        const auto* b = std::get_if<block_float>(&c_.format);
        const auto* x = std::get_if<microexponent>(&c_.format);
        const int exponent_bits = b != nullptr ? b->exponent_bits : x->exponent_bits;
        const int mantissa = b != nullptr ? b->mantissa_bits : x->mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
        int e = static_cast<int>(code) - bias - (mantissa - 1);
        if (code == low_bits(width) && !r.scale_nan_is_number) return not_a_number;
        if (x != nullptr && !codes_.shifts.empty()) {
            const std::size_t each = codes_.shifts.size() / codes_.scales.size();
            const std::size_t which = r.shift == decoder_rules::first_shift ? 0 : i % block_ / static_cast<std::size_t>(x->sub_block_size);
            const auto s = static_cast<int>(codes_.shifts[i / block_ * each + which]);
            if (r.shift == decoder_rules::shifts || r.shift == decoder_rules::first_shift) e -= s;
            if (r.shift == decoder_rules::other_way) e += s;
        }
        v = std::ldexp(1.0, e);
    }
    return std::ldexp(v, r.scale_power);
}

float decoder_model::value(std::size_t i, const decoder_rules& r) const {
    if (r.constant) return *r.constant;
    const std::size_t first = i / block_ * block_, k = i - first, n = std::min(block_, size() - first);
    std::size_t from = k;
    if (r.lane == decoder_rules::swapped && (k ^ 1) < n) from = k ^ 1;
    if (r.lane == decoder_rules::reversed) from = n - 1 - k;
    if (r.lane == decoder_rules::next) from = (k + 1) % n;
    if (r.lane == decoder_rules::previous) from = (k + n - 1) % n;
    if (r.lane == decoder_rules::turned) from = (k + r.lanes_on) % n;
    const bool mixed = r.lane == decoder_rules::exchanged || r.lane == decoder_rules::doubled;
    if (mixed && k == r.one_lane && r.other_lane < n) from = r.other_lane;
    if (r.lane == decoder_rules::exchanged && k == r.other_lane && r.one_lane < n) from = r.one_lane;
    auto y = static_cast<float>(element(codes_.elements[first + from], r) * factor(i, r));
    if (std::isinf(y) && r.saturates) y = std::copysign(std::numeric_limits<float>::max(), y);
    if (y != 0 && std::abs(y) < 0x1p-126f && r.results_flushed) y = std::copysign(0.0f, y);
    return y == 0 && r.zero_sign_lost ? 0.0f : y;
}

std::string decoder_model::code_text(std::size_t i) const {
    std::string s = "code " + hexadecimal(codes_.elements[i]);
    if (!codes_.scales.empty()) s += ", scale " + hexadecimal(codes_.scales[i / block_]);
    return s;
}

namespace {

enum decoder_topic {
    code_bits,
    lanes_of,
    another,
    of_subnormals,
    of_bias,
    of_nans,
    of_infinities,
    of_signs,
    of_zeros,
    of_wholes,
    of_offsets,
    of_scales,
    of_neighbours,
    scale_bits,
    of_specials,
    of_shifts,
    of_results
};

void add_floating_mistakes(floating f, std::vector<decoder_mistake>& all) {
    using r = decoder_rules;
    const auto add = [&](int about, std::string sentence, std::function<void(r&)> plant) {
        all.push_back({about, std::move(sentence), std::move(plant)});
    };
    if (f.subnormals && f.mantissa_bits > 0) {
        add(of_subnormals, "a subnormal is read with the hidden bit of a normal number", setting<&r::subnormal, r::hidden>());
        add(of_subnormals, "subnormals are flushed to zero", setting<&r::subnormal, r::flushed>());
        add(of_subnormals, "a subnormal is a binade too small: its exponent is the field's, 0, and not that of the least normal number",
            setting<&r::subnormal, r::halved>());
        add(of_subnormals, "a subnormal is a binade too large", setting<&r::subnormal, r::twice>());
        add(of_subnormals, "a subnormal is read as the normal number of the least exponent that has its mantissa",
            setting<&r::subnormal, r::raised>());
    }
    add(of_bias, "the bias of the exponent is one too large: values are half of what they should be", setting<&r::power, -1>());
    add(of_bias, "the bias of the exponent is one too small: values are twice what they should be", setting<&r::power, 1>());
    if (has_nan(f)) {
        add(of_nans, "a NaN is read as the number that its bits would be", setting<&r::nan_is, r::number>());
        add(of_nans, "a NaN becomes zero", setting<&r::nan_is, r::nought>());
        add(of_nans, "a NaN becomes the largest number", setting<&r::nan_is, r::largest>());
        add(of_nans, "a NaN becomes Inf", setting<&r::nan_is, r::infinite>());
    }
    if (has_infinity(f)) {
        add(of_infinities, "an Inf is read as the number that its bits would be", setting<&r::infinity_is, r::number>());
        add(of_infinities, "an Inf becomes the largest number", setting<&r::infinity_is, r::largest>());
        add(of_infinities, "an Inf becomes NaN", setting<&r::infinity_is, r::nan>());
    }
    if (!has_infinity(f) && f.exponent_bits > 1)
        add(of_infinities, "codes of the top exponent are read as Inf and NaN, which this format does not have",
            setting<&r::top_is_special, true>());
    for (const named_format& other : catalogue) {
        const auto* g = std::get_if<floating>(&other.format);
        if (g == nullptr || *g == f || bits(*g) != bits(f)) continue;
        add(another, "codes are read as those of " + std::string(other.name), [g = *g](r& rules) { rules.other = g; });
        all.back().other_format = true;
    }
}

void add_whole_mistakes(const conversion& c, std::vector<decoder_mistake>& all) {
    using r = decoder_rules;
    const auto add = [&](int about, std::string sentence, std::function<void(r&)> plant) {
        all.push_back({about, std::move(sentence), std::move(plant)});
    };
    add(of_wholes, "codes are read as unsigned numbers", setting<&r::whole, r::no_sign>());
    add(of_wholes, "codes are read as sign and magnitude", setting<&r::whole, r::sign_magnitude>());
    add(of_wholes, "codes are read as two's complement", setting<&r::whole, r::complement>());
    add(of_wholes, "codes are read as offset by half of their range", setting<&r::whole, r::offset>());
    if (!c.zero_point.empty()) {
        add(of_offsets, "the zero point is not subtracted", setting<&r::zero_point, r::left_out>());
        add(of_offsets, "the zero point is added", setting<&r::zero_point, r::added>());
    }
    if (std::holds_alternative<microscaling>(c.format))
        add(of_bias, "elements are read as whole numbers: the implied factor is left out", setting<&r::fraction_lost, true>());
    add(of_bias, "values are half of what they should be", setting<&r::power, -1>());
    add(of_bias, "values are twice what they should be", setting<&r::power, 1>());
}

void add_block_mistakes(const conversion& c, std::vector<decoder_mistake>& all) {
    using r = decoder_rules;
    const auto add = [&](int about, std::string sentence, std::function<void(r&)> plant) {
        all.push_back({about, std::move(sentence), std::move(plant)});
    };
    add(of_scales, "a block's scale is a power of two too low", setting<&r::scale_power, -1>());
    add(of_scales, "a block's scale is a power of two too high", setting<&r::scale_power, 1>());
    add(of_scales, "a block's scale is left out", setting<&r::scale_ignored, true>());
    add(of_neighbours, "a block has the scale of the block before", setting<&r::scale_of, -1>());
    add(of_neighbours, "a block has the scale of the block behind", setting<&r::scale_of, 1>());
    add(of_specials, "the scale code that means NaN is read as a number", setting<&r::scale_nan_is_number, true>());
    add(of_specials, "the largest scale code that is a number is read as NaN", setting<&r::top_scale_is_nan, true>());
    add(of_specials, "the scale code 0 is read as NaN", setting<&r::least_scale_is_nan, true>());
    add(of_specials, "the scale code 0 is read as a scale of 0", setting<&r::scale_zero_is_zero, true>());
    add(lanes_of, "neighbouring elements are swapped", setting<&r::lane, r::swapped>());
    add(lanes_of, "the elements of a block come in reverse order", setting<&r::lane, r::reversed>());
    add(lanes_of, "the elements of a block are rotated by one: each is its neighbour behind", setting<&r::lane, r::next>());
    add(lanes_of, "the elements of a block are rotated by one: each is its neighbour before", setting<&r::lane, r::previous>());
    const int width = scale_width(c.format);
    for (int k = 0; k < width; ++k) {
        add(scale_bits, "bit " + std::to_string(k) + " of the scale's code is stuck at 0",
            [k](r& rules) { rules.scale_zeros |= std::uint32_t{1} << k; });
        add(scale_bits, "bit " + std::to_string(k) + " of the scale's code is stuck at 1",
            [k](r& rules) { rules.scale_ones |= std::uint32_t{1} << k; });
    }
    if (std::holds_alternative<microexponent>(c.format)) {
        add(of_shifts, "the shifts of the sub-blocks are left out", setting<&r::shift, r::no_shifts>());
        add(of_shifts, "the shifts of the sub-blocks go the other way", setting<&r::shift, r::other_way>());
        add(of_shifts, "every sub-block has the shift of the first", setting<&r::shift, r::first_shift>());
    }
}

/// Adds the lanes that the device's values show.
void add_mixed_lanes(const problem& p, std::vector<decoder_mistake>& all) {
    using r = decoder_rules;
    const auto of_two = [](auto how, std::pair<std::size_t, std::size_t> two) {
        return [how, two](r& rules) { rules.lane = how, rules.one_lane = two.first, rules.other_lane = two.second; };
    };
    if (with_turned_lanes(p)) {
        const std::size_t n = lanes_turned(p), size = static_cast<std::size_t>(block_size(p.asked.format));
        if (n > 1 && n + 1 < size)
            all.push_back({lanes_of,
                           "the elements of every block are rotated: each position has that of the one " + turned_lanes(p) + " places on",
                           [n](r& rules) { rules.lane = r::turned, rules.lanes_on = n; }, false, true});
    }
    if (with_swapped_lanes(p))
        all.push_back({lanes_of, "two elements of every block are swapped: those at positions " + swapped_lanes(p),
                       of_two(r::exchanged, lanes_mixed_up<true>(p)), false, true});
    if (with_doubled_lane(p))
        all.push_back({lanes_of, "an element of every block comes out twice: position " + doubled_lane(p),
                       of_two(r::doubled, lanes_mixed_up<false>(p)), false, true});
}

}  // namespace

std::vector<decoder_mistake> decoder_mistakes(const problem& p) {
    using r = decoder_rules;
    const conversion& c = p.asked;
    std::vector<decoder_mistake> all;
    const auto add = [&](int about, std::string sentence, std::function<void(r&)> plant) {
        all.push_back({about, std::move(sentence), std::move(plant)});
    };
    if (const auto constant = constant_output(p))
        add(of_results, "every output is " + constant_text(p) + ", whatever the code", [constant](r& rules) { rules.constant = constant; });
    if (const floating* f = number_float(c.format)) add_floating_mistakes(*f, all);
    else add_whole_mistakes(c, all);
    add(of_zeros, "the sign of zero is lost", setting<&r::zero_sign_lost, true>());
    add(of_signs, "the sign is lost", setting<&r::sign, r::unsigned_>());
    add(of_signs, "the sign is inverted", setting<&r::sign, r::inverted>());
    add(of_results, "results that are subnormal float32 are flushed to zero", setting<&r::results_flushed, true>());
    add(of_infinities, "results beyond float32 become its largest number", setting<&r::saturates, true>());
    if (!c.scale.empty()) add(of_offsets, "the scale of the tensor is left out", setting<&r::tensor_ignored, true>());
    if (is_block_format(c.format)) add_block_mistakes(c, all), add_mixed_lanes(p, all);
    add(code_bits, "the bits of a code come in reverse order", setting<&r::bits_reversed, true>());
    for (int k = 0; k < std::min(16, element_width(c.format)); ++k) {
        add(code_bits, "bit " + std::to_string(k) + " of an element's code is stuck at 0",
            [k](r& rules) { rules.zeros |= std::uint32_t{1} << k; });
        add(code_bits, "bit " + std::to_string(k) + " of an element's code is stuck at 1",
            [k](r& rules) { rules.ones |= std::uint32_t{1} << k; });
    }
    return all;
}

}  // namespace qk::compare
