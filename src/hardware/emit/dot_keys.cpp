// SPDX-License-Identifier: Apache-2.0
// Which bins a question for a unit that multiplies and adds hits, as a circuit: what src/hardware/compare/dot_bins.cpp counts, over codes.
#include <algorithm>
#include <bit>

#include "bin_keys.hpp"
#include "convert.hpp"
#include "dot.hpp"
#include "hardware/compare/dot_operands.hpp"
#include "qk/codec/layout/layout.hpp"

namespace qk::emit {
namespace {

using compare::operand_codes;

constexpr int exponent_bits = 16;  ///< of every exponent and distance

word place(std::uint64_t v) { return constant(v, 32); }
word no() { return truth(false); }
/// Returns value + k, in a word of 16 bits; where k is below 0 no value is below -k.
word moved(const word& value, int k) {
    const word wide = extend(value, exponent_bits);
    const word size = number(static_cast<std::uint64_t>(std::abs(k)), wide);
    return k >= 0 ? wide + size : lessened(wide, size);
}
word either_of(const word& which, bin_kind kind, std::uint64_t first, std::uint64_t second, std::uint64_t b) {
    return key(kind, choose(which, small(first), small(second)), small(b), small(0), truth(false));
}

/// An operand as one word, from the top down: NaN, Inf, subnormal, sign, exponent, digits. Its value is digits * 2^(exponent + unit); of
/// Inf the digits are 1, and of NaN and zero 0, without a sign.
struct operand_word {
    int digits = 1, exponent = 1, unit = 0;
    std::uint64_t most = 0;  ///< exponent
    int width() const { return 4 + exponent + digits; }
    word digits_of(const word& w) const { return bits(w, 0, digits); }
    word exponent_of(const word& w) const { return bounded(bits(w, digits, exponent), most); }
    word flag(const word& w, int above) const { return bits(w, digits + exponent + above, 1); }
    word negative_of(const word& w) const { return flag(w, 0); }
    word subnormal_of(const word& w) const { return flag(w, 1); }
    word infinite_of(const word& w) const { return flag(w, 2); }
    word nan_of(const word& w) const { return flag(w, 3); }
};
/// A number with its highest bit at the top: digits * 2^(exponent + unit - (bits - 1)); the exponent is 0 of a zero alone.
struct number_word {
    int digits = 1, unit = 0;
    std::uint64_t most = 0;
    int width() const { return 1 + exponent_bits + digits; }
    word digits_of(const word& w) const { return bits(w, 0, digits); }
    word exponent_of(const word& w) const { return bounded(bits(w, digits, exponent_bits), most); }
    word negative_of(const word& w) const { return bits(w, digits + exponent_bits, 1); }
};

class keys_of_sum {
  public:
    keys_of_sum(const multiplier& m, int kept)
        : m_(m),
          k_(static_cast<std::uint64_t>(m.k)),
          reach_(static_cast<std::uint64_t>(kept + 2)),
          whole_(m.how.sum == summation::integer) {
        for (const qk::format* f : {&m.a, &m.b}) {
            if (number_float(*f) == nullptr && !is_integer_format(*f) && !std::holds_alternative<block_float>(*f))
                refuse("operands of this format have no bins");
        }
        const floating c = m.how.addend;
        if (!whole_ && bits(c) > 16 && c != fp32 && c != fp64)
            refuse("c is a float32 that is rounded first; give c=fp32, fp16, bf16 or a format of up to 16 bits");
    }

    key_functions made() {
        a_ = make_operand("read_a", m_.a, 0), b_ = make_operand("read_b", m_.b, 0);
        if (!whole_ && m_.has_c) c_ = make_operand("read_c", m_.how.addend, addend_width(m_.how));
        if (!whole_) make_product();
        function f = named("keys", "Gives the bins that a line hits, as keys; ffffffff is none.");
        begin(f);
        whole_ ? whole_sum(f) : sum(f);
        made_.all.push_back(f);
        for (function& g : made_.all) drop_unused(g);
        made_.asks = at_, made_.of_lines = true;
        return made_;
    }

  private:
    function named(const std::string& verb, const std::string& comment) const {
        function f;
        f.name = m_.name + "_" + verb, f.comment = comment;
        return f;
    }
    static std::uint64_t block_of(const qk::format& f) { return is_block_format(f) ? static_cast<std::uint64_t>(block_size(f)) : 0; }
    std::uint64_t blocks_of(const qk::format& f) const {
        const std::uint64_t size = block_of(f);
        return size == 0 ? 0 : (k_ + size - 1) / size;
    }

    /// Makes NAME_verb of a code, in `stored` bits where that is not 0, and of the code of its block's scale.
    operand_word make_operand(const std::string& verb, const qk::format& of, int stored) {
        function f = named(verb, "Takes an operand apart: NaN, Inf, subnormal, sign, exponent, digits.");
        const int own = stored != 0 && std::holds_alternative<floating>(of) ? bits(std::get<floating>(of)) : element_width(of);
        word code = f.input("code", stored != 0 ? stored : own);
        if (stored > own) code = f.let("own", bits(code, 0, own));
        word nan = no(), infinite = no(), subnormal = no(), negative = no(), exponent = truth(false), digits = code;
        operand_word w;
        if (const floating* g = number_float(of)) {
            const int m = g->mantissa_bits;
            const unpacked x = unpack(f, *g, code, false, false);
            const word field = f.let("exponent_field", bits(code, m, g->exponent_bits)), is_small = f.let("is_small", field == 0);
            if (g->is_signed) negative = bits(code, own - 1, 1);
            nan = f.let("nan", x.is_nan), infinite = f.let("infinite", x.is_infinite);
            const word whole = m > 0 ? join(!is_small, bits(code, 0, m)) : !is_small;
            if (m > 0) subnormal = is_small & (bits(code, 0, m) != 0);
            digits = f.let("digits", choose(nan, constant(0, m + 1), choose(infinite, constant(1, m + 1), whole)));
            exponent = choose(is_small, constant(1, g->exponent_bits), field);
            w.unit = min_exponent(*g) - 1 - m;
        } else {
            const block_float* b = std::get_if<block_float>(&of);
            const bool magnitude = b != nullptr && !b->bump;
            if (b != nullptr || std::get<integer>(of).is_signed) negative = f.let("minus", bits(code, own - 1, 1));
            if (magnitude) digits = bits(code, 0, own - 1);
            else if (!negative.is_constant()) digits = f.let("digits", choose(negative, minus(code), code));
        }
        if (is_block_format(of)) scale_operand(f, of, w, nan, infinite, subnormal, negative, exponent, digits);
        digits = f.let("size", digits);
        w.digits = digits.width(), w.exponent = exponent.width(), w.most = exponent.largest();
        const word sign = negative & (digits != number(0, digits));
        f.result = join(nan, join(infinite, join(subnormal, join(sign, join(exponent, digits)))));
        made_.all.push_back(f);
        return w;
    }
    static void scale_operand(function& f, const qk::format& of, operand_word& w, word& nan, word& infinite, word& subnormal,
                              word& negative, word& exponent, word& digits) {
        const int width = scale_width(of);
        const word code = f.input("scale", width);
        word special = no(), above = code;
        if (const floating* g = scale_float(of)) {
            const int m = g->mantissa_bits;
            special = f.let("scale_is_nan", unpack(f, *g, code, false, false).is_nan);
            const word field = f.let("scale_field", bits(code, m, g->exponent_bits)), is_small = f.let("scale_is_small", field == 0);
            const word whole = m > 0 ? join(!is_small, bits(code, 0, m)) : !is_small;
            const int both = digits.width() + whole.width();
            digits = f.let("scaled", extend(digits, both) * extend(whole, both));
            if (g->is_signed) negative = negative ^ bits(code, width - 1, 1);
            above = choose(is_small, constant(1, g->exponent_bits), field);
            w.unit += min_exponent(*g) - 1 - m;
        } else {
            const block_float* b = std::get_if<block_float>(&of);
            if (b == nullptr) special = f.let("scale_is_nan", code == ones(width));
            w.unit += b == nullptr ? -127 : 2 - b->mantissa_bits - (1 << (b->exponent_bits - 1));
        }
        const int sum = std::max({width_of(exponent.largest() + above.largest()), exponent.width(), above.width()});
        exponent = f.let("exponent", extend(exponent, sum) + extend(above, sum));
        nan = nan | special, infinite = infinite & !special, subnormal = subnormal & !special;
        digits = choose(special, number(0, digits), digits);
    }

    /// Makes NAME_product of two operands that are numbers.
    void make_product() {
        function f = named("product", "Returns a product: its sign, the exponent of its highest bit, its digits with that bit at the top.");
        const word x = f.input("x", a_.width()), y = f.input("y", b_.width());
        const int width = a_.digits + b_.digits;
        const word size = f.let("size", extend(a_.digits_of(x), width) * extend(b_.digits_of(y), width));
        const word e = extend(a_.exponent_of(x), exponent_bits) + extend(b_.exponent_of(y), exponent_bits);
        p_ = with_top(f, size, e, a_.unit + b_.unit, a_.negative_of(x) ^ b_.negative_of(y));
        made_.all.push_back(f);
    }
    /// Makes the result of a function: size * 2^(exponent + unit) with its highest bit at the top.
    number_word with_top(function& f, const word& size, const word& e, int unit, const word& negative) const {
        const int width = size.width(), steps = steps_of(width);
        word digits = size, exponent = f.let("exponent_above", e + static_cast<std::uint64_t>(steps + 1));
        const std::uint64_t most = exponent.largest();
        const word zero = f.let("is_zero", size == number(0, size));
        if (width > 1) normalize(f, digits, exponent);
        if (width == 106) {  // of fp64 the exponent is that of the product as a double
            exponent = f.let("rounded", exponent + extend(bits(digits, width - 54, 54) == ones(54), exponent_bits));
        }
        f.result = join(negative, join(choose(zero, constant(0, exponent_bits), exponent), digits));
        return {width, unit - steps - 1 + width - 1, most + 1};
    }

    // ---- the line

    void begin(function& f) {
        f.input_array("a", element_width(m_.a), k_);
        if (is_block_format(m_.a)) f.input_array("scale_a", scale_width(m_.a), blocks_of(m_.a));
        f.input_array("b", element_width(m_.b), k_);
        if (is_block_format(m_.b)) f.input_array("scale_b", scale_width(m_.b), blocks_of(m_.b));
        if (m_.has_c) c_code_ = f.input("c", addend_width(m_.how));
        keys_ = f.returned_array("keys", 32);
        add_ends(f);
        for (const auto& [of, name, side] : {std::tuple{&m_.a, "scale_a", 0u}, std::tuple{&m_.b, "scale_b", 1u}}) {
            if (!is_block_format(*of)) continue;
            const word i = counted(f, blocks_of(*of));
            store(f, i, key(bin_kind::operand_scale, small(side), f.at(name, i), truth(false), truth(false)), blocks_of(*of));
            f.end_loop();
        }
    }
    word counted(function& f, std::uint64_t count) const { return bounded(f.loop("i", place(0), place(count)), count); }
    void store(function& f, const word& k) { f.store(keys_, place(at_++), k); }
    /// Stores a key of each turn of a loop of `count` turns.
    void store(function& f, const word& i, const word& k, std::uint64_t count) { f.store(keys_, i + at_, k), at_ += count; }

    /// Lowest and highest codes: 0 all lowest, 1 all highest, 2 both, 3 others.
    void add_ends(function& f) {
        std::vector<word> kinds;
        for (const auto& [of, name] : {std::pair{&m_.a, "a"}, std::pair{&m_.b, "b"}}) {
            const operand_codes codes(*of);
            const int width = element_width(*of);
            const std::string n = name;
            const word low = f.variable("lowest_" + n, truth(true)), high = f.variable("highest_" + n, truth(true)),
                       ends = f.variable("ends_" + n, truth(true));
            const word i = counted(f, k_), code = f.let("code", f.at(name, i));
            const word is_low = f.let("is_low", code == constant(codes.lowest(), width)),
                       is_high = f.let("is_high", code == constant(codes.highest(), width));
            f.assign(low, low & is_low), f.assign(high, high & is_high), f.assign(ends, ends & (is_low | is_high));
            f.end_loop();
            kinds.push_back(f.let("kind_" + n, choose(low, small(0), choose(high, small(1), choose(ends, small(2), small(3))))));
        }
        store(f, where((kinds[0] != 3) & (kinds[1] != 3), key(bin_kind::ends, kinds[0], kinds[1], small(0), truth(false))));
    }

    /// The whole sum of integers: its bits.
    void whole_sum(function& f) {
        const int width = a_.digits + b_.digits + width_of(k_) + 1;
        const word total = f.variable("total", constant(0, width));
        const word i = counted(f, k_), x = f.let("x", call(m_.name + "_read_a", a_.width(), {f.at("a", i)})),
                   y = f.let("y", call(m_.name + "_read_b", b_.width(), {f.at("b", i)}));
        const word product = f.let("product", extend(a_.digits_of(x), width) * extend(b_.digits_of(y), width));
        f.assign(total, choose(a_.negative_of(x) ^ b_.negative_of(y), total - product, total + product));
        f.end_loop();
        const word negative = f.let("negative", bits(total, width - 1, 1)), size = f.let("size", choose(negative, minus(total), total));
        word digits = size, exponent = constant(static_cast<std::uint64_t>(steps_of(width)), exponent_bits);
        normalize(f, digits, exponent);
        const word count =
            lessened(exponent + static_cast<std::uint64_t>(width), number(static_cast<std::uint64_t>(steps_of(width)), exponent));
        store(f, key(bin_kind::whole_sum, choose(size == number(0, size), number(0, count), count), negative));
        f.returns(at_);
    }

    /// NaN and Inf among the operands; returns whether there is any.
    word add_specials(function& f, const std::string& of_a, const std::string& of_b, const word& c) {
        struct side {
            word meets, nan, infinite;
        };
        const auto begin_side = [&](const std::string& n) {
            return side{f.variable("special_meets_" + n, no()), f.variable("has_nan_" + n, no()), f.variable("has_infinity_" + n, no())};
        };
        const side sides[] = {begin_side("a"), begin_side("b")};
        const word up = f.variable("up", no()), down = f.variable("down", no());
        const word i = counted(f, k_), x = f.let("x", read(f, "a", m_.a, a_, i)), y = f.let("y", read(f, "b", m_.b, b_, i));
        f.store(of_a, i, x), f.store(of_b, i, y);
        const auto zero = [&](const operand_word& o, const word& w, const char* as) {
            return f.let(as, (o.digits_of(w) == number(0, o.digits_of(w))) & (!o.nan_of(w)) & !o.infinite_of(w));
        };
        const word zero_a = zero(a_, x, "zero_a"), zero_b = zero(b_, y, "zero_b");
        const auto look = [&](const side& s, const operand_word& o, const word& w, const word& other_is_zero, std::uint64_t number_of) {
            const word nan = o.nan_of(w), infinite = o.infinite_of(w);
            f.assign(s.nan, s.nan | nan), f.assign(s.infinite, s.infinite | infinite);
            f.assign(s.meets, s.meets | ((nan | infinite) & !other_is_zero));
            store(f, i, where(nan | infinite, key(bin_kind::special_at, i, join(infinite, truth(number_of != 0)), small(0), truth(false))),
                  k_);
        };
        look(sides[0], a_, x, zero_b, 0), look(sides[1], b_, y, zero_a, 1);
        const word infinite =
            f.let("infinite", (!a_.nan_of(x)) & (!b_.nan_of(y)) & (!zero_a) & (!zero_b) & (a_.infinite_of(x) | b_.infinite_of(y)));
        const word differ = f.let("differ", a_.negative_of(x) ^ b_.negative_of(y));
        f.assign(up, up | (infinite & !differ)), f.assign(down, down | (infinite & differ));
        f.end_loop();
        word any = no();
        for (std::uint64_t n = 0; n < 2; ++n) {
            const side& s = sides[n];
            store(f, where(s.nan, either_of(s.meets, bin_kind::special, 3, 0, n + 1)));
            store(f, where(s.infinite, either_of(s.meets, bin_kind::special, 6, 1, n + 1)));
            any = any | s.nan | s.infinite;
        }
        const auto special = [&](std::uint64_t which) { return key(bin_kind::special, small(which), truth(false)); };
        store(f, where(up & down, special(2)));
        if (m_.has_c) {
            store(f, where(c_.nan_of(c), special(5)));
            store(f, where(c_.infinite_of(c) & choose(c_.negative_of(c), up, down), special(4)));
            store(f, where(c_.subnormal_of(c), key(bin_kind::subnormal, small(4), truth(false))));
            any = any | c_.nan_of(c) | c_.infinite_of(c);
        }
        return f.let("special", any, "what follows counts numbers alone");
    }
    word read(const function& f, const std::string& name, const qk::format& of, const operand_word& o, const word& i) const {
        std::vector<word> words{f.at(name, i)};
        if (is_block_format(of)) words.push_back(f.at("scale_" + name, block_at(i, block_of(of))));
        return call(m_.name + "_read_" + name, o.width(), words);
    }

    void sum(function& f) {
        const std::string of_a = f.array("of_a", a_.width(), k_), of_b = f.array("of_b", b_.width(), k_),
                          term = f.array("term", p_.width(), k_);
        const word c = m_.has_c ? f.let("of_c", call(m_.name + "_read_c", c_.width(), {c_code_})) : truth(false);
        const word special = add_specials(f, of_a, of_b, c);
        const word top = f.variable("top", constant(0, exponent_bits)), at_top = f.variable("at_top", place(0)),
                   terms = f.variable("terms", place(0));
        {
            const word i = counted(f, k_), x = f.let("x", f.at(of_a, i)), y = f.let("y", f.at(of_b, i));
            const word sub_a = a_.subnormal_of(x), sub_b = b_.subnormal_of(y);
            store(f, i, where((!special) & (sub_a | sub_b), key(bin_kind::subnormal, join(sub_b, sub_a), truth(false))), k_);
            const word t = f.let("t", call(m_.name + "_product", p_.width(), {x, y}));
            f.store(term, i, t);
            const word e = f.let("e", p_.exponent_of(t)), is_term = f.let("is_term", e != 0), above = f.let("above", e > top);
            f.assign(at_top, choose(above, place(1), at_top + extend(is_term & (e == top), 32)));
            f.assign(terms, terms + extend(is_term, 32));
            f.assign(top, choose(above, e, top));
            f.end_loop();
        }
        const word several = f.let("several", (!special) & (terms > 1));
        {
            const word i = counted(f, k_), t = f.let("t", f.at(term, i)), e = f.let("e", p_.exponent_of(t));
            const word below = f.let("below", lessened(bounded(top, p_.most), e));
            store(f, i,
                  where(several & (e != 0) & (!(below > reach_)) & ((below != 0) | (at_top > 1)),
                        key(bin_kind::distance, i, choose(below > reach_, number(0, below), below), truth(false), truth(false))),
                  k_);
            f.end_loop();
        }
        add_total(f, term, c, special, top, terms);
        f.returns(at_);
    }

    /// C beside the products, and the exact sum: exponents are counted from `unit_`, below the lowest bit of all.
    void add_total(function& f, const std::string& term, const word& c, const word& special, const word& top, const word& terms) {
        number_word n = {1, p_.unit, 0};
        word c_digits = truth(false), c_exponent = constant(0, exponent_bits);
        if (m_.has_c) {
            const word size = f.let("c_size", c_.digits_of(c));
            const int width = size.width(), steps = steps_of(width);
            c_digits = size,
            c_exponent = f.let("c_above", extend(c_.exponent_of(c), exponent_bits) + static_cast<std::uint64_t>(steps + 1));
            n = {width, c_.unit - steps - 1 + width - 1, c_exponent.largest()};
            if (width > 1) normalize(f, c_digits, c_exponent);
            c_exponent = choose(size == number(0, size), number(0, c_exponent), c_exponent);
        }
        const int unit = std::min(p_.unit + 1 - (p_.digits - 1), n.unit + 1 - (n.digits - 1)) - 1;
        const word has_c = f.let("has_c", c_exponent != 0), has_terms = f.let("has_terms", terms != 0);
        const word known_top = bounded(top, p_.most);
        const word x = f.let("top_place", choose(has_terms, moved(known_top, p_.unit - unit), number(0, top))),
                   y = f.let("c_place", choose(has_c, moved(c_exponent, n.unit - unit), number(0, top)));
        if (m_.has_c) {
            const word near = f.let("near", (!(x > y + reach_)) & !(y > x + reach_));
            const word a = (extend(y, 32) + static_cast<std::uint64_t>(-least_binade)) - extend(x, 32);
            store(f, where((!special) & has_c & has_terms & near, key(bin_kind::addend, choose(near, a, place(0)), truth(false))));
        }
        if (m_.a == qk::format(fp64) || m_.b == qk::format(fp64)) return;
        // The exact sum.
        const int reach = std::max(static_cast<int>(p_.most) + p_.unit, static_cast<int>(n.most) + n.unit) - unit;
        const int width = reach + width_of(k_ + 1) + 3;
        const word total = f.variable("total", constant(0, width));
        const auto add = [&](const word& negative, const word& digits, const word& exponent, int lowest) {
            const word at = f.let("by", moved(exponent, lowest - unit));
            const word placed =
                f.let("placed", extend(digits, width) << clamped(f, bounded(at, static_cast<std::uint64_t>(width - digits.width())),
                                                                 static_cast<std::uint64_t>(width)));
            f.assign(total, choose(negative, total - placed, total + placed));
        };
        const word i = counted(f, k_), t = f.let("t", f.at(term, i));
        add(p_.negative_of(t), p_.digits_of(t), f.let("e", p_.exponent_of(t)), p_.unit - (p_.digits - 1));
        f.end_loop();
        if (m_.has_c) add(c_.negative_of(c), c_digits, c_exponent, n.unit - (n.digits - 1));
        add_sum(f, total, unit, (!special) & (has_terms | has_c), f.let("most", choose(x > y, x, y)));
    }
    /// The exact sum, in units of 2^unit: how far it lies from its largest term, and where between the numbers of the result.
    void add_sum(function& f, const word& total, int unit, const word& counts, const word& most) {
        const int width = total.width(), steps = steps_of(width);
        const word negative = f.let("negative", bits(total, width - 1, 1)), size = f.let("size", choose(negative, minus(total), total));
        word digits = size, above = constant(static_cast<std::uint64_t>(steps), exponent_bits);
        normalize(f, digits, above);
        const word zero = f.let("sum_is_zero", size == number(0, size)), is_number = f.let("is_number", counts & !zero);
        const word e = f.let(
            "sum_place", choose(zero, number(0, above),
                                lessened(above + static_cast<std::uint64_t>(width - 1), number(static_cast<std::uint64_t>(steps), above))));
        const word less = f.let("cancelled", choose(most > e, lessened(most, e), number(0, e))),
                   more = f.let("carried", choose(e > most, lessened(e, most), number(0, e)));
        const word held = choose(less > reach_, number(reach_, less), less);
        store(f, choose(counts & zero, key(bin_kind::cancels, small(0), small(1), small(0), truth(false)),
                        where(is_number & (less != 0), key(bin_kind::cancels, held, truth(false)))));
        store(f, where(is_number & (more != 0), key(bin_kind::carries, more, truth(false))));

        const floating r = m_.how.result;
        const int m = r.mantissa_bits, low = min_exponent(r) - unit, high = max_exponent(r) - unit, leading = m + 3;
        const auto at = [&](int v) { return constant(static_cast<std::uint64_t>(v), exponent_bits); };
        const word is_low = low <= 0 ? no() : f.let("is_low", e < at(low)),
                   is_high = high < 0 ? truth(true) : f.let("is_high", e > at(high));
        store(f, choose(counts & zero, key(bin_kind::sum, small(0), truth(false)),
                        where(is_number, key(bin_kind::sum, choose(is_high, small(3), choose(is_low, small(1), small(2))), negative))));
        // The bits that the result keeps, the first one behind them, the next, and whether any is below.
        const word all = width > leading ? digits : f.let("padded", join(digits, constant(0, leading + 1 - width)));
        const word first = f.let("leading", bits(all, all.width() - leading, leading));
        const word by = low <= 0 ? truth(false)
                                 : f.let("shift", clamped(f, f.let("missing", choose(is_low, lessened(at(low), e), number(0, e))),
                                                          static_cast<std::uint64_t>(leading)));
        const word kept = f.let("kept", first >> by);
        word lower = bits(all, 0, all.width() - leading) != constant(0, all.width() - leading);
        if (!by.is_constant()) lower = lower | ((kept << by) != first);
        const word below = f.let("any_below", lower);
        const word next = bits(kept, 0, 1), half = bits(kept, 1, 1), odd = bits(kept, 2, 1);
        const word rest = f.let("rest", next | below);
        const word tie = f.let("tie", half & ((!rest) | (!next) | !below)), under = f.let("under", (!half) & next);
        const word which = choose(tie, choose(rest, small(2), small(1)), small(0));
        store(f, where(is_number & (!is_high) & (tie | under), key(bin_kind::sum_tie, which, odd, small(0), negative)));
    }

    const multiplier& m_;
    std::uint64_t k_, reach_;
    bool whole_;
    operand_word a_, b_, c_;
    number_word p_;
    word c_code_;
    std::string keys_;
    std::uint64_t at_ = 0;  ///< keys so far
    key_functions made_;
};

}  // namespace

key_functions keys_of(const multiplier& what) { return keys_of_sum(what, compare::kept_bits(what.how)).made(); }

}  // namespace qk::emit
