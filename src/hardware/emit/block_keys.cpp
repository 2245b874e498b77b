// SPDX-License-Identifier: Apache-2.0
// Which bins a block hits, as a circuit: what src/hardware/compare/converter_bins.cpp counts, over the words of the block's values. The
// block's scale, the codes and the numbers are those of the golden; scales are powers of two.
#include <algorithm>

#include "bin_keys.hpp"
#include "cases.hpp"
#include "convert.hpp"
#include "qk/formats/facts.hpp"
#include "qk/reference.hpp"

namespace qk::emit {
namespace {

constexpr int exponent_bits = 16, least_float = -149;  ///< exponents are counted from least_binade

word place(std::uint64_t v) { return constant(v, 32); }
word at(int exponent) { return constant(static_cast<std::uint64_t>(exponent - least_binade), exponent_bits); }

/// The grid of a block's elements, in steps or as floats. Of floats that have no sign, subnormals or mantissa rounding has no bins.
struct element_steps {
    grid numbers;
    bool is_known = true;
    int step = 0;  ///< of a fixed grid 2^step times the unit
    int least() const { return numbers.base - 127; }
};
element_steps steps_of_elements(const converter& what) {
    element_steps s;
    if (const floating* g = element_float(what.format)) {
        s.is_known = g->is_signed && g->subnormals && g->mantissa_bits > 0;
        s.numbers = {.mantissa = g->mantissa_bits, .base = min_exponent(*g) + 127, .largest = max_value(*g), .lowest = max_value(*g)};
        return s;
    }
    int magnitude_bits = 0;
    double more = 0;
    if (const microscaling* m = std::get_if<microscaling>(&what.format)) {
        magnitude_bits = m->integer_bits - 1, s.step = 2 - m->integer_bits, more = what.how.mxint_uses_lowest ? 1 : 0;
    } else if (const block_float* b = std::get_if<block_float>(&what.format)) {
        magnitude_bits = b->mantissa_bits;
    } else {
        magnitude_bits = std::get<microexponent>(what.format).mantissa_bits;
    }
    const double most = static_cast<double>(ones(magnitude_bits));
    s.numbers = {.fixed = true, .largest = most, .lowest = most + more};
    return s;
}

class keys_of_values {
  public:
    explicit keys_of_values(const converter& what) : what_(what), shape_(shape_of(unit(what))), steps_(steps_of_elements(what)) {
        size_ = static_cast<std::uint64_t>(shape_.in_words());
    }
    key_functions made() {
        made_.all = functions_of(unit(what_));
        converter decoder = what_;
        decoder.decode = true;
        for (const function& f : functions_of(unit(decoder))) made_.all.push_back(f);
        function f;
        f.name = what_.name + "_keys", f.comment = "Gives the bins that a block hits, as keys; ffffffff is none.";
        f.input_array("x", width(), size_);
        keys_ = f.returned_array("keys", 32);
        add_scale(f);
        add_values(f);
        f.returns(at_);
        drop_unused(f);
        made_.all.push_back(f);
        made_.asks = at_, made_.of_lines = true;
        return made_;
    }

  private:
    int width() const { return bits(what_.input); }
    std::string function_of(const char* verb) const { return what_.name + "_" + verb; }
    word magnitude(function& f, const word& i) const { return f.let("magnitude", bits(f.let("word", f.at("x", i)), 0, width() - 1)); }
    word lanes(function& f) const { return bounded(f.loop("i", place(0), place(size_)), size_); }
    void store(function& f, const word& i, const word& k) { f.store(keys_, i + at_, k), at_ += size_; }

    /// The code of the block's scale, and of the shifts where it has some.
    void add_scale(function& f) {
        const word most = f.variable("most", constant(0, width() - 1));
        word v = magnitude(f, lanes(f));
        f.assign(most, choose(v > most, v, most));
        f.end_loop();
        const int scale_bits = shape_.out[1].width;
        scale_ = f.let("scale", call(function_of("scale"), scale_bits, {most}));
        if (shape_.sub_block == 0) return;
        shift_bits_ = shape_.out[2].width;
        const auto sub = static_cast<std::uint64_t>(shape_.sub_block);
        shifts_ = f.array("shifts", shift_bits_, static_cast<std::uint64_t>(shape_.out[2].count));
        const word first = bounded(f.loop("first", place(0), place(size_), sub), size_);
        const word own = f.variable("own_most", constant(0, width() - 1));
        v = magnitude(f, f.loop("j", first, first + sub));
        f.assign(own, choose(v > own, v, own));
        f.end_loop();
        f.store(shifts_, block_at(first, sub), call(function_of("shift"), shift_bits_, {own, scale_}));
        f.end_loop();
    }
    /// The exponent of a lane's unit, and whether it has one.
    struct lane_unit {
        word exponent, is_power;
    };
    lane_unit unit_at(function& f, const word& i) const {
        const word s = extend(scale_, exponent_bits);
        const auto counted = [&](const word& w, int offset) {  // w - offset
            return w + static_cast<std::uint64_t>(-offset - least_binade);
        };
        if (std::holds_alternative<microscaling>(what_.format)) return {f.let("unit", counted(s, 127)), scale_ != 255};
        if (const block_float* b = std::get_if<block_float>(&what_.format)) {
            const int offset = reference::exponent_bias(*b) + b->mantissa_bits - 1;
            const word is_number = !(scale_ > static_cast<std::uint64_t>(reference::largest_exponent_code(*b)));
            const word e = f.let("unit", counted(s, offset));
            return {e, is_number & (e >= at(least_float))};
        }
        const microexponent& m = std::get<microexponent>(what_.format);
        const std::uint64_t top = ones(m.shift_bits);
        const word shift = extend(f.at(shifts_, block_at(i, static_cast<std::uint64_t>(m.sub_block_size))), exponent_bits);
        const word e = f.let("own_unit", counted(s + lessened(constant(top, exponent_bits), bounded(shift, top)),
                                                 126 + m.mantissa_bits + static_cast<int>(top)));
        return {f.let("unit", choose(e < at(least_float), at(least_float), e)), scale_ != ones(m.exponent_bits)};
    }
    /// Returns the exponent of a float32 that is no zero, counted from least_binade, and its digits with the highest bit at the top.
    static word exponent_of(function& f, const parts& x, word* digits = nullptr) {
        const unpacked n = unpack(f, fp32, x.all, true, false);
        if (digits != nullptr) *digits = n.digits;
        return f.let("own_exponent", extend(n.exponent, exponent_bits) + static_cast<std::uint64_t>(23 - n.offset - least_binade));
    }

    void add_values(function& f) {
        const word special = f.variable("special", truth(false)), most = f.variable("largest", constant(0, 31)),
                   second = f.variable("second", constant(0, 31)), lane = f.variable("lane", place(0)),
                   negative = f.variable("largest_negative", truth(false));
        const word i = lanes(f), word_x = f.let("word", f.at("x", i));
        const parts x = parts_of(f, as_float32(f, what_.input, word_x), "x");
        std::vector<word> operands{word_x, scale_}, codes{scale_};
        if (shape_.sub_block != 0) {
            const word shift = f.let("shift", f.at(shifts_, block_at(i, static_cast<std::uint64_t>(shape_.sub_block))));
            operands.push_back(shift), codes.push_back(shift);
        }
        const word code = f.let("code", call(function_of("element"), shape_.out[0].width, operands));
        codes.insert(codes.begin(), code);
        const parts y = parts_of(f, f.let("y", call(function_of("decode"), 32, codes)), "y");
        const lane_unit u = unit_at(f, i);
        const word has_unit = f.let("has_unit", u.is_power);
        std::vector<word> keys{input_key(f, what_, x)};
        add_result_keys(f, x, y, u.exponent, has_unit, keys);
        if (steps_.is_known) add_rounding(f, x, u.exponent, has_unit, keys);
        const word is_special = f.let("is_special", !x.is_finite);
        keys.push_back(
            where(is_special, choose(x.is_nan, key(bin_kind::nan_at, i, truth(false)), key(bin_kind::infinity_at, i, x.negative))));
        for (const word& k : keys) store(f, i, k);
        // The largest value and the one below it.
        const word above = f.let("above", (!is_special) & (x.magnitude > most)),
                   between = f.let("between", (!is_special) & (!above) & (x.magnitude > second));
        f.assign(special, special | is_special);
        f.assign(second, choose(above, most, choose(between, x.magnitude, second)));
        f.assign(most, choose(above, x.magnitude, most));
        f.assign(lane, choose(above, i, lane));
        f.assign(negative, choose(above, x.negative, negative));
        f.end_loop();
        add_block(f, special, most, second, lane, negative);
    }
    void add_result_keys(function& f, const parts& x, const parts& y, const word& unit, const word& has_unit,
                         std::vector<word>& keys) const {
        const grid& g = steps_.numbers;
        word digits;
        const word is_number = f.let("is_number", y.is_finite & (!y.is_zero) & has_unit);
        // The exponent of the element.
        const word e =
            f.let("element_exponent",
                  choose(is_number, lessened(exponent_of(f, y, &digits) + static_cast<std::uint64_t>(-least_binade), unit), at(0)));
        word kind = choose(y.is_zero, choose(x.is_zero, small(0), small(1)), small(7));
        if (!g.fixed && steps_.is_known) kind = choose(is_number & (e < at(steps_.least())), small(2), kind);
        kind = f.let("result_kind", choose(y.is_nan, small(5), choose(y.is_finite, kind, small(4))));
        keys.push_back(where(kind != 7, key(bin_kind::result, kind, y.negative & !y.is_nan)));
        keys.push_back(where(is_number, key(bin_kind::binade, e, y.negative)));
        if (!steps_.is_known) return;
        const int step = g.fixed ? steps_.step : 0;
        const auto reaches = [&](double end) {  // is the element at least `end` steps?
            const double v = std::ldexp(end, step);
            const int top = std::ilogb(v);
            const word least = constant(static_cast<std::uint64_t>(std::ldexp(v, 23 - top)), 24);
            return (e > at(top)) | ((e == at(top)) & (digits >= least));
        };
        const word reached = g.lowest == g.largest ? reaches(g.largest) : choose(y.negative, reaches(g.lowest), reaches(g.largest));
        keys.push_back(where(is_number & reached, key(bin_kind::result, small(3), y.negative)));
    }
    void add_rounding(function& f, const parts& x, const word& unit, const word& has_unit, std::vector<word>& keys) const {
        const grid& g = steps_.numbers;
        const word field = f.let("field", extend(choose(x.exponent == 0, constant(1, 8), x.exponent), exponent_bits));
        cut_number c;
        word from = unit;  // the exponent of the step, above its own by what is taken off below
        int less = 150 + least_binade + steps_.step;
        c.subnormal = truth(false);
        if (!g.fixed) {
            const word own = exponent_of(f, x);
            const word normal = f.let("first_normal", lessened(unit + static_cast<std::uint64_t>(1024),
                                                               constant(static_cast<std::uint64_t>(1024 - steps_.least()), exponent_bits)));
            c.subnormal = f.let("subnormal", own < normal, "below the normal numbers");
            from = f.let("highest", choose(c.subnormal, normal, own));
            less = 150 + least_binade - g.mantissa;
            c.binades = extend(choose(c.subnormal, number(0, own), lessened(own, normal)), 32);
        }
        // shift = from + less - field, where that is above 0; `less` is below 0
        const word lowest = f.let("lowest_cut", field + static_cast<std::uint64_t>(-less));
        c.shift = f.let("shift", choose(has_unit & (from > lowest), lessened(from, lowest), number(0, from)), "how many bits are cut off");
        cut_digits(f, x, c);
        add_rounding_keys(f, g, x.negative, c, keys);
    }
    void add_block(function& f, const word& special, const word& most, const word& second, const word& lane, const word& negative) {
        const word zero = f.let("all_zero", most == 0);
        // Half of the largest value, to the even word where that is subnormal.
        const word is_low = f.let("is_low", bits(most, 24, 7) == 0), low_half = f.let("low_half", most >> constant(1, 5));
        const word rounded = low_half + extend(bits(most, 0, 1) & bits(low_half, 0, 1), 31);
        const word half = f.let("half_of_largest", choose(is_low, rounded, most - constant(0x800000, 31)));
        const word alone = f.let("alone", !(second > half));
        const auto one = [&](const word& k) { f.store(keys_, place(at_++), k); };
        one(where(!special,
                  choose(zero, key(bin_kind::zeros, small(0), truth(false)), where(alone, key(bin_kind::largest_at, lane, negative)))));
        const lane_unit u = unit_at(f, place(0));
        one(where((!special) & (!zero) & u.is_power,
                  key(bin_kind::scale, u.exponent, small(compare::scale_as_exponent), small(0), truth(false))));
    }

    const converter& what_;
    case_shape shape_;
    element_steps steps_;
    std::uint64_t size_ = 0, at_ = 0;
    std::string keys_, shifts_;
    word scale_;
    int shift_bits_ = 0;
    key_functions made_;
};

}  // namespace

key_functions keys_of_block(const converter& what) { return keys_of_values(what).made(); }

}  // namespace qk::emit
