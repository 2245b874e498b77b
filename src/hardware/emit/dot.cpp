// SPDX-License-Identifier: Apache-2.0
// Units that multiply and add, long because the ways to add share operands, registers and roundings.
#include "dot.hpp"

#include <algorithm>

#include "convert.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/dot/check_operands.hpp"
#include "qk/dot/numbers.hpp"
#include "qk/formats/parse.hpp"

namespace qk::emit {
namespace {

using device_sums::element_kind;

word no() { return constant(0, 1); }
word yes() { return constant(1, 1); }
int bits_for(std::uint64_t most) { return width_of(most); }
int addends_bits(std::uint64_t terms) { return width_of(terms); }
bool keeps_zero_positive(const accumulator& a) { return a.zero == zero_rule::exact_positive || a.zero == zero_rule::positive; }

/// Returns value + k of a word without a sign; where k is below 0 no value is below -k.
word moved(const word& value, int k) {
    const auto most = value.largest() + static_cast<std::uint64_t>(std::max(k, 0));
    const word wide = extend(value, std::max(value.width(), width_of(most)));
    const auto size = static_cast<std::uint64_t>(std::abs(k));
    return k >= 0 ? wide + size : lessened(wide, number(size, wide));
}
word widened(const word& a, int width) { return a.width() < width ? extend(a, width) : a; }
word any(const word& a) { return a != number(0, a); }
/// Returns a sum in two's complement as a sign and a magnitude.
struct signed_word {
    word negative, magnitude;
};
signed_word parted(function& f, const word& sum) {
    const word negative = f.let("minus", bits(sum, sum.width() - 1, 1));
    return {negative, f.let("size", choose(negative, minus(sum), sum))};
}
word with_sign(const word& negative, const word& magnitude) { return choose(negative, minus(magnitude), magnitude); }

/// A number as one word: NaN, Inf, sign, exponent, digits, from the top down.
struct layout {
    int digits = 0, exponent = 0;
    std::uint64_t most = 0;  ///< exponent
    int offset = 0;          ///< what lies above the exponent's own value
    int width() const { return 3 + exponent + digits; }
    word exponent_of(const word& w) const { return bounded(bits(w, digits, exponent), most); }
    word digits_of(const word& w) const { return bits(w, 0, digits); }
    word negative_of(const word& w) const { return bits(w, digits + exponent, 1); }
    word infinite_of(const word& w) const { return bits(w, digits + exponent + 1, 1); }
    word nan_of(const word& w) const { return bits(w, digits + exponent + 2, 1); }
    word joined(const word& nan, const word& infinite, const word& negative, const word& e, const word& d) const {
        const word low = widened(e, exponent).width() == exponent ? widened(e, exponent) : e;
        return join(nan, join(infinite, join(negative, join(low, d))));
    }
};

/// An operand's element taken apart. The exponent is above its own value by `offset`; digits have `fraction` fraction bits.
struct taken {
    word nan, infinite, negative, zero, exponent, digits;
    int offset = 0, fraction = 0;
};

const floating* float_of(const format& f) {
    if (const floating* g = std::get_if<floating>(&f)) return g;
    return element_float(f);
}
/// Returns the bits of a code of a scale.
int scale_bits(const format& f) { return is_block_format(f) ? layout_of(f, along_axis{1, 1, 1}).scales.bits : 0; }
int element_bits_of(const format& f) { return layout_of(f, along_axis{1, 1, 1}).elements.bits; }

int code_bits(const accumulator& a, floating of) {
    if (a.sum == summation::integer) return a.width > 32 ? 64 : 32;
    return of == fp64 ? 64 : bits(of) <= 8 ? 8 : bits(of) <= 16 ? 16 : 32;
}
std::uint64_t infinity_of(floating f) { return ((std::uint64_t{1} << f.exponent_bits) - 1) << f.mantissa_bits; }
bool is_ieee(floating f) { return f.specials == specials::ieee; }

class sum_of_products {
  public:
    explicit sum_of_products(const multiplier& m) : m_(m), how_(m.how), block_a_(block(m.a)), block_b_(block(m.b)) {
        for (const format* f : {&m.a, &m.b}) {
            if (std::holds_alternative<microexponent>(*f)) refuse("microexponents have shifts, which no line of products holds");
            if (std::holds_alternative<table>(*f))
                refuse("a table's numbers are float32 words; look them up before, and give fp32 as the format");
        }
        if (m.k % how_.bundle != 0) refuse("--k must be a multiple of " + std::to_string(how_.bundle) + ", the bundle");
        terms_ = m.k / how_.bundle;
        group_ = how_.groups == 0 ? terms_ : std::min(terms_, how_.groups / how_.bundle);
        for (const int block : {block_a_, block_b_}) {
            if (block != 0 && block % how_.bundle != 0) refuse("a bundle must lie in one block; blocks here have " + std::to_string(block));
        }
        if (bits(how_.addend) > 16 && how_.addend != fp32 && how_.addend != fp64)
            refuse("c is a float32 that is rounded first; give c=fp32, fp16, bf16 or a format of up to 16 bits");
        const floating r = how_.result;
        if (bits(r) > 16 && r.exponent_bits != 8 && r != fp64)
            refuse("a result of more than 16 bits must have the exponent of float32; give result=fp32");
    }

    std::vector<function> functions() {
        if (how_.sum == summation::integer) return {integer_sum()};
        const bool stepwise = how_.sum == summation::sequential || how_.sum == summation::pairwise;
        function dot = named("dot", "Returns the sum of k products and c.");
        begin(dot);
        stepwise ? step_by_step(dot) : fused(dot);
        all_.push_back(dot);
        return all_;
    }

  private:
    static int block(const format& f) { return is_block_format(f) ? block_size(f) : 0; }
    function named(const std::string& verb, const std::string& comment) const {
        function f;
        f.name = m_.name + "_" + verb;
        f.comment = comment;
        return f;
    }
    word place(std::uint64_t v) const { return constant(v, 32); }

    /// Adds the operands.
    void begin(function& f) {
        const auto blocks = [&](int size) { return static_cast<std::uint64_t>((m_.k + size - 1) / size); };
        const auto k = static_cast<std::uint64_t>(m_.k);
        f.input_array("a", element_bits_of(m_.a), k);
        if (block_a_ != 0) f.input_array("scale_a", scale_bits(m_.a), blocks(block_a_));
        f.input_array("b", element_bits_of(m_.b), k);
        if (block_b_ != 0) f.input_array("scale_b", scale_bits(m_.b), blocks(block_b_));
        const int stored = code_bits(how_, how_.addend);
        if (m_.has_c) c_ = f.input("c", stored);
        else c_ = constant(how_.sum == summation::integer ? 0 : std::uint64_t{1} << (bits_(how_.addend) - 1), stored);  // -0
    }

    // ---- operands

    /// Takes a floating code apart as the device reads it. A zero has the exponent `zero_exponent`; with `normal` digits begin with a 1.
    taken take(function& f, const floating& g, word code, bool normal, int zero_exponent) const {
        const int m = g.mantissa_bits, drop = how_.operand_bits == 0 ? 0 : std::max(0, m - how_.operand_bits);
        if (drop > 0) code = f.let("cut_code", join(bits(code, drop, bits_(g) - drop), constant(0, drop)));
        unpacked x = unpack(f, g, code, false, false);
        word negative = x.negative, digits = x.digits;
        const input_flush flush = flush_of_operands(how_);
        const bool flushes = flush != input_flush::none && g.subnormals;
        word zero = x.is_zero;
        if (flushes) {
            const word small = f.let("below_normal", bits(code, m, g.exponent_bits) == 0);
            if (flush == input_flush::positive && g.is_signed) negative = f.let("sign", negative & ((!small) | zero));
            digits = f.let("kept_digits", choose(small, constant(0, m + 1), digits));
            zero = small;
        }
        word exponent = x.exponent;  // above its own value by the bias
        int offset = g.bias;
        if (normal && g.subnormals && !flushes && m > 0) {
            const int steps = steps_of(m + 1);
            exponent = f.let("exponent_above", moved(exponent, steps));
            offset += steps;
            normalize(f, digits, exponent);
        }
        if (normal) return {x.is_nan, x.is_infinite, negative, zero, exponent, digits, offset, m};
        const int above = std::max(-zero_exponent, -min_exponent(g));
        const word own = moved(exponent, above - offset), at_zero = constant(static_cast<std::uint64_t>(above + zero_exponent), 12);
        const auto most = static_cast<std::uint64_t>(std::max(max_exponent(g) + above, above + zero_exponent) + 1);
        const word both = f.let("exponent_or_least", choose(zero, at_zero, extend_to(own, 12)));
        return {x.is_nan, x.is_infinite, negative, zero, bounded(fit(f, both, width_of(most)), most), digits, above, m};
    }
    static word extend_to(const word& w, int width) { return w.width() < width ? extend(w, width) : w; }
    static int bits_(const floating& g) { return bits(g); }

    /// Takes an element apart, without its scale.
    taken take_element(function& f, const format& of, const word& code, bool normal, int zero_exponent) const {
        if (const floating* g = float_of(of)) return take(f, *g, code, normal, zero_exponent);
        const element_kind kind = device_sums::kind_of(of);
        const int width = code.width();
        const block_float* b = std::get_if<block_float>(&of);
        const integer* n = std::get_if<integer>(&of);
        word negative = no(), digits = code;
        if (b != nullptr && !b->bump) {
            negative = f.let("negative", bits(code, width - 1, 1));
            digits = bits(code, 0, width - 1);
        } else if (n == nullptr || n->is_signed) {
            negative = f.let("negative", bits(code, width - 1, 1));
            digits = f.let("digits", choose(negative, minus(code), code));
        }
        taken t{no(),   no(), negative,     digits == number(0, digits), constant(static_cast<std::uint64_t>(kind.highest), 6),
                digits, 0,    kind.fraction};
        if (normal && digits.width() > 1) {
            const int steps = steps_of(digits.width());
            t.exponent = constant(static_cast<std::uint64_t>(kind.highest + steps), 8);
            t.offset = steps;
            normalize(f, t.digits, t.exponent);
        }
        return t;
    }
    /// Takes the scale of a block apart: its exponent, and its digits where it is no power of two.
    taken take_scale(function& f, const format& of, const word& code) const {
        if (const block_float* b = std::get_if<block_float>(&of)) {
            const std::uint64_t ones_of = ones(b->exponent_bits);
            return {code == ones_of, no(), no(), no(), code, yes(), (1 << (b->exponent_bits - 1)) - 1, 0};
        }
        if (std::holds_alternative<microscaling>(of)) return {code == 255, no(), no(), no(), code, yes(), 127, 0};
        const floating g = std::get<nvfloat>(of).scale;
        const accumulator plain{};
        sum_of_products as_it_is(*this, plain);
        taken t = as_it_is.take(f, g, code, false, -126);
        t.nan = t.nan | t.infinite, t.infinite = no(), t.negative = no();
        return t;
    }
    sum_of_products(const sum_of_products& other, const accumulator& how)
        : m_(other.m_), how_(how), block_a_(other.block_a_), block_b_(other.block_b_) {}

    /// Makes NAME_product: a product of two elements, without scales. `zero_exponent`: that of an operand that is zero; of `normal` ones
    /// the exponent is that of the lowest digit, and 0 of a zero.
    void make_product(bool normal, bool lowest) {
        function f = named("product", "Returns a product of elements: NaN, Inf, sign, exponent, digits.");
        const word a = f.input("a", element_bits_of(m_.a)), b = f.input("b", element_bits_of(m_.b));
        const auto zero_exponent = [&](const format& of) { return lowest ? device_sums::kind_of(of).lowest : -126; };
        const taken x = take_element(f, m_.a, a, normal, zero_exponent(m_.a)), y = take_element(f, m_.b, b, normal, zero_exponent(m_.b));
        const int width = x.digits.width() + y.digits.width();
        word e = widened(x.exponent, bits_for(x.exponent.largest() + y.exponent.largest())) +
                 widened(y.exponent, bits_for(x.exponent.largest() + y.exponent.largest()));
        const int e_width = bits_for(x.exponent.largest() + y.exponent.largest());
        if (e.width() > e_width) e = bits(f.let("exponent_sum", e), 0, e_width);
        const word zero = f.let("zero", x.zero | y.zero);
        int offset = x.offset + y.offset;
        if (normal) {
            offset += x.fraction + y.fraction;  // of the lowest digit
            e = choose(zero, constant(0, e.width()), e);
        }
        const word digits = extend(x.digits, width) * extend(y.digits, width);
        word negative = x.negative ^ y.negative;
        const word nan = x.nan | y.nan | (x.infinite & y.zero) | (y.infinite & x.zero);
        const word infinite = x.infinite | y.infinite;
        if (how_.zero == zero_rule::positive_products || how_.zero == zero_rule::positive) negative = negative & ((!zero) | infinite);
        product_ = {width, e.width(), e.largest(), offset};
        fraction_ = x.fraction + y.fraction;
        f.result = product_.joined(nan, infinite, negative, e, digits);
        all_.push_back(f);
    }
    word product_at(function& f, const word& i) const {
        return f.let("product", call(m_.name + "_product", product_.width(), {f.at("a", i), f.at("b", i)}));
    }

    /// Fills the array `term` with what is added: products, or bundles of them, times their scales. Returns its name.
    std::string make_terms(function& f) {
        const int bundle = how_.bundle;
        const auto terms = static_cast<std::uint64_t>(terms_);
        if (bundle == 1 && block_a_ == 0 && block_b_ == 0) {
            term_ = product_;
            const std::string name = f.array("term", term_.width(), terms);
            const word i = f.loop("i", place(0), place(terms));
            f.store(name, i, in_range(f, call(m_.name + "_product", product_.width(), {f.at("a", i), f.at("b", i)})));
            f.end_loop();
            return name;
        }
        const std::size_t begin = f.lines.size();  // the array comes before what fills it
        const word first = f.loop("i", place(0), place(static_cast<std::uint64_t>(m_.k)), static_cast<std::uint64_t>(bundle));
        taken t = bundle == 1 ? product_of(f, first) : bundle_of(f, first);
        const auto scale = [&](const format& of, int block, const std::string& name) {
            if (block == 0) return;
            const word code = f.let(name + "_code", f.at(name, block_at(first, static_cast<std::uint64_t>(block))));
            const taken s = take_scale(f, of, code);
            t.nan = t.nan | s.nan;
            const int width = bits_for(t.exponent.largest() + s.exponent.largest());
            t.exponent = f.let("exponent", widened(fit(f, t.exponent, width), width) + widened(fit(f, s.exponent, width), width));
            t.offset += s.offset;
            if (s.digits.width() == 1) return;
            const int both = t.digits.width() + s.digits.width();
            t.digits = f.let("scaled_digits", extend(t.digits, both) * extend(s.digits, both));
            t.fraction += s.fraction;
        };
        scale(m_.a, block_a_, "scale_a"), scale(m_.b, block_b_, "scale_b");
        term_ = {t.digits.width(), t.exponent.width(), t.exponent.largest(), t.offset};
        fraction_ = t.fraction;
        const word joined = in_range(f, term_.joined(t.nan, t.infinite, t.negative, t.exponent, t.digits));
        const std::string name = f.array("term", term_.width(), terms);
        std::rotate(f.lines.begin() + static_cast<std::ptrdiff_t>(begin), f.lines.end() - 1, f.lines.end());
        f.store(name, bundle == 1 ? first : block_at(first, static_cast<std::uint64_t>(bundle)), joined);
        f.end_loop();
        return name;
    }
    /// Returns a term, or, if how_ asks, zero where its exponent is too small; a zero has the lowest exponent.
    word in_range(function& f, const word& term) const {
        if (!how_.product_range) return term;
        const word t = f.let("whole_term", term), d = term_.digits_of(t), e = term_.exponent_of(t);
        word counts = any(d);
        if (const int lost = term_.offset - 128; lost >= 0) counts = counts & (e > static_cast<std::uint64_t>(lost));
        counts = f.let("counts", counts);
        return term_.joined(term_.nan_of(t), term_.infinite_of(t), term_.negative_of(t), choose(counts, e, number(0, e)),
                            f.let("kept_digits", choose(counts, d, number(0, d))));
    }
    taken product_of(function& f, const word& i) const {
        const word p = product_at(f, i);
        return {product_.nan_of(p),      product_.infinite_of(p), product_.negative_of(p), no(),
                product_.exponent_of(p), product_.digits_of(p),   product_.offset,         fraction_};
    }
    /// Returns the exact sum of the products of a bundle, in units of the lowest one; its exponent is that of the scales to come.
    taken bundle_of(function& f, const word& first) const {
        if (!is_based()) refuse("bundles without scales have exponents of their own; give bundle=1");
        const int lowest = lowest_element(m_.a) + lowest_element(m_.b), base = lowest + product_.offset;
        const int room = std::max(0, static_cast<int>(product_.most) - base);
        const int width = product_.digits + room + addends_bits(static_cast<std::uint64_t>(how_.bundle)) + 1;
        const word sum = f.variable("sum", constant(0, width)), nan = f.variable("is_nan", no()), up = f.variable("plus_infinity", no()),
                   down = f.variable("minus_infinity", no()), all = f.variable("all_minus_zero", yes());
        const word p = product_at(f, f.loop("j", first, first + static_cast<std::uint64_t>(how_.bundle)));
        const word d = f.let("d", product_.digits_of(p)), s = f.let("s", product_.negative_of(p)), e = f.let("e", product_.exponent_of(p));
        const word zero = f.let("nothing", d == number(0, d)), infinite = product_.infinite_of(p);
        const word above = e.is_constant() || base == 0
                               ? moved(e, -base)
                               : choose(zero, number(0, e), lessened(e, number(static_cast<std::uint64_t>(base), e)));
        const word placed = f.let("placed", extend(d, width) << clamped(f, f.let("by", above), static_cast<std::uint64_t>(room)));
        f.assign(sum, choose(s, sum - placed, sum + placed));
        f.assign(nan, nan | product_.nan_of(p));
        f.assign(up, up | (infinite & !s));
        f.assign(down, down | (infinite & s));
        f.assign(all, all & zero & s);
        f.end_loop();
        const signed_word parts = parted(f, sum);
        const word negative = choose(parts.magnitude == number(0, parts.magnitude), all, parts.negative);
        return {
            nan | (up & down), up | down, choose(up | down, down, negative), no(), constant(0, 1), bits(parts.magnitude, 0, width - 1), 0,
            fraction_ - lowest};
    }
    static word fit(function& f, const word& w, int width) { return w.width() <= width ? w : bits(f.let("part", w), 0, width); }
    /// Returns the exponent of the lowest element that is not zero, where digits count from.
    static int lowest_element(const format& of) { return device_sums::kind_of(of).lowest; }

    // ---- registers

    /// Makes NAME_read_c or NAME_read, which take a register apart: nominal exponents, -126 of a zero, and `fraction` fraction bits.
    void make_reader(const std::string& verb, floating g, int stored, bool flush, const layout& to, int fraction, bool normal) {
        function f = named(verb, "Takes a register apart: NaN, Inf, sign, exponent, digits.");
        word code = f.input("code", stored);
        if (stored > bits_(g)) code = f.let("own", bits(code, 0, bits_(g)));
        accumulator reading{};
        if (flush) reading.flush_inputs = flush_of_c(how_);
        sum_of_products reader(*this, reading);
        const taken t = reader.take(f, g, code, normal, -126);
        word exponent = t.exponent;
        const int room = to.digits - t.digits.width();
        const int own = normal ? t.offset + t.fraction + room : t.offset;  // of the lowest digit, or of the leading one
        exponent = moved(exponent, to.offset - own);
        if (normal) exponent = choose(t.zero, number(0, exponent), exponent);
        exponent = fit(f, exponent, to.exponent);
        const int left = normal ? room : fraction - t.fraction;
        word digits = left > 0 ? join(t.digits, constant(0, left)) : t.digits;
        digits = widened(digits, to.digits);
        f.result = to.joined(t.nan, t.infinite, t.negative, extend_to(exponent, to.exponent), digits);
        all_.push_back(f);
    }

    /// Returns whether a number that begins with a 1 is below the smallest normal one, and stays so if it is rounded without an end of
    /// exponents: it does not where a 1 is to be rounded up behind ones alone.
    word is_tiny(const unpacked& x, const floating& out, rounding r) const {
        if (r != rounding::half_even) refuse("flush-tiny is emitted with half-even alone; give flush-partials");
        const int width = x.digits.width(), ones_wanted = out.mantissa_bits + 2;
        const int normal = x.offset + min_exponent(out) - (width - 1);  // the exponent of the smallest normal number's lowest digit
        if (normal <= 0) return no();
        const word below = x.exponent < static_cast<std::uint64_t>(normal);
        if (width < ones_wanted) return below;
        const word top = bits(x.digits, width - ones_wanted, ones_wanted);
        return below & !((x.exponent == static_cast<std::uint64_t>(normal - 1)) & (top == constant(ones(ones_wanted), ones_wanted)));
    }

    /// Makes a function that rounds (-1)^negative * magnitude * 2^(exponent - offset) into a register, or gives what NaN and Inf become.
    void make_rounding(const std::string& verb, floating out, rounding r, int width, int e_width, std::uint64_t most, int offset,
                       int stored) {
        function f = named(verb, "Rounds a number into a register; up and down: Inf of either sign is among its terms.");
        const word nan = f.input("nan", 1), up = f.input("up", 1), down = f.input("down", 1), negative = f.input("negative", 1);
        const word e_in = bounded(f.input("exponent", e_width), most), magnitude = f.input("magnitude", width);
        const int steps = steps_of(width), keep = out.mantissa_bits + 4;
        word exponent = f.let("exponent_above", moved(e_in, steps)), digits = magnitude;
        if (width > 1) normalize(f, digits, exponent);
        const word zero = f.let("zero", magnitude == number(0, magnitude));
        exponent = f.let("exponent_or_least", choose(zero, number(0, exponent), exponent));  // a zero's may be beyond all numbers
        int lowest = offset + steps;
        if (width > keep) {
            const word rest = any(bits(digits, 0, width - keep));
            digits = f.let("leading", join(bits(digits, width - keep, keep), rest), "the last bit stands for all below");
            lowest -= width - keep - 1;
        }
        unpacked x{negative, no(), no(), zero, exponent, digits, lowest, 0, true};
        semantics how;
        how.rounding = r;
        how.overflow = overflow_rule::ieee;
        how.flush_outputs = how_.flush_partials;
        const bool narrow_without_nan = out.specials == specials::none;
        const at_the_end end = how_.overflow == too_large::infinity          ? (narrow_without_nan ? at_the_end::stays : at_the_end::passes)
                               : how_.overflow == too_large::saturate        ? at_the_end::stays
                               : r == rounding::to_odd || narrow_without_nan ? at_the_end::stays
                                                                             : at_the_end::by_rule;
        word finite = f.let("finite", pack(f, x, out, how, constant(0, 1), end));
        const int magnitude_bits = out.exponent_bits + out.mantissa_bits;
        if (how_.flush_tiny) {
            const word tiny = f.let("tiny", is_tiny(x, out, r));
            finite = f.let("flushed", choose(tiny, join(x.negative, constant(0, magnitude_bits)), finite));
        }
        if (how_.zero == zero_rule::positive)
            finite = f.let("number", choose(bits(finite, 0, magnitude_bits) == number(0, bits(finite, 0, magnitude_bits)),
                                            constant(0, bits_(out)), finite));
        const std::uint64_t nan_code = device_sums::nan_of(out, how_.nan);
        word infinite = constant(nan_code, bits_(out));
        if (is_ieee(out)) infinite = join(down, constant(infinity_of(out), magnitude_bits));
        else if (narrow_without_nan || how_.overflow == too_large::saturate)
            infinite = join(down, constant(largest_magnitude(out), magnitude_bits));
        word code = choose(f.let("is_nan", nan | (up & down)), constant(nan_code, bits_(out)), choose(up | down, infinite, finite));
        if (stored == 32 && bits_(out) < 32) code = bits_(out) > 16 ? join(f.let("code", code), constant(0, 32 - bits_(out))) : code;
        if (stored > code.width()) code = extend(code, stored);
        f.result = code;
        all_.push_back(f);
    }

    // ---- sums without intermediate rounding

    /// Returns digits * 2^-by of a number whose lowest digit may lie above or below the unit by a fixed number of places. `lost_is_zero`:
    /// where nothing of it is kept it is zero, however `how` cuts.
    word cut(function& f, const word& negative, const word& digits, const word& distance, int up, rounding how,
             bool lost_is_zero = false) const {
        int width = digits.width() + std::max(up, 0);
        if (width == 32 || width == 64) ++width;
        word x = up > 0 ? join(digits, constant(0, up)) : digits;
        x = widened(x, width);
        const word far = moved(distance, std::max(-up, 0));
        const word by = clamped(f, f.let("by", far), static_cast<std::uint64_t>(width));
        const word kept = f.let("kept", x >> by);
        if (how == rounding::toward_zero) return kept;
        word lost = f.let("lost", (kept << by) != x);
        if (lost_is_zero) lost = f.let("counted", lost & any(kept));
        if (how == rounding::to_odd) return f.let("odd", kept | extend(lost, width));
        return f.let("floor", extend(kept, width + 1) + extend(lost & negative, width + 1));
    }
    word cut_term(function& f, const word& t, const word& below, int up) const {
        return cut(f, term_.negative_of(t), term_.digits_of(t), below, up, how_.cut, how_.lost_is_zero);
    }

    void fused(function& f) {
        const bool exact = how_.sum == summation::exact, inside = how_.place == place::inside;
        make_product(false, exact || how_.bundle > 1);
        const std::string term = make_terms(f);
        // Of a term: value = digits * 2^(exponent - term_.offset - fraction_).
        const int m = std::max(how_.addend.mantissa_bits, how_.partial.mantissa_bits), offset = std::max(term_.offset, 126);
        const int e_width = bits_for(std::max(term_.most + static_cast<std::uint64_t>(offset - term_.offset), std::uint64_t(offset) + 128));
        carried_ = {m + 1, e_width, ones(e_width), offset};
        const int groups = (terms_ + group_ - 1) / group_;
        all_in_one_ = how_.partial == how_.result && how_.partial_round == how_.round;
        make_reader("read_c", how_.addend, code_bits(how_, how_.addend), true, carried_, m, false);
        if (groups > 1)
            make_reader("read", how_.partial, all_in_one_ ? code_bits(how_, how_.result) : bits_(how_.partial), false, carried_, m, false);
        const word acc = f.variable("held", call(m_.name + "_read_c", carried_.width(), {c_}));
        const word code = f.variable("code", constant(0, code_bits(how_, how_.result)));
        word first = place(0);
        if (groups > 1) first = f.loop("group", place(0), place(static_cast<std::uint64_t>(terms_)), static_cast<std::uint64_t>(group_));
        word last = first + static_cast<std::uint64_t>(group_);
        if (terms_ % group_ != 0)
            last = f.let("end", choose(last > static_cast<std::uint64_t>(terms_), place(static_cast<std::uint64_t>(terms_)), last));
        exact ? exact_group(f, term, acc, first, last, inside) : aligned_group(f, term, acc, first, last, inside);
        // The group's sum is rounded into `code`, and read again for the next one.
        f.assign(code, call(m_.name + "_round", code.width(), sum_));
        if (groups > 1) {
            word next = code;
            if (!all_in_one_) next = f.let("partial", call(m_.name + "_round_partial", bits_(how_.partial), sum_));
            else if (code_bits(how_, how_.result) == 32 && bits_(how_.partial) < 32 && bits_(how_.partial) > 16)
                next = f.let("own_code",
                             join(constant(0, 32 - bits_(how_.partial)), bits(code, 32 - bits_(how_.partial), bits_(how_.partial))));
            f.assign(acc, call(m_.name + "_read", carried_.width(), {next}));
            f.end_loop();
        }
        f.result = code;
    }
    bool is_based() const {
        const element_kind x = device_sums::kind_of(m_.a), y = device_sums::kind_of(m_.b);
        return block_a_ != 0 || block_b_ != 0 || (x.whole && y.whole);
    }
    /// Makes the functions that round the sum of a group.
    void make_roundings(int width, int e_width, std::uint64_t most, int offset) {
        make_rounding("round", how_.result, how_.round, width, e_width, most, offset, code_bits(how_, how_.result));
        if (!all_in_one_ && (terms_ > group_ || how_.place == place::after))
            make_rounding("round_partial", how_.partial, how_.partial_round, width, e_width, most, offset, bits_(how_.partial));
    }

    bool limits_products() const { return how_.product_overflow || how_.product_range; }

    /// Special terms of a group, and what the signs of zeros say.
    struct survey {
        word nan, up, down, all_negative, all_positive;
        word large_up, large_down;  ///< products of 2^128 and more, which count where there is no Inf and no NaN
    };
    survey begin_survey(function& f, const word& acc, bool inside) {
        const word inf = carried_.infinite_of(acc), negative = carried_.negative_of(acc);
        survey s{
            f.variable("nan", carried_.nan_of(acc)), f.variable("up", inf & !negative), f.variable("down", inf & negative), {}, {}, {}, {}};
        if (limits_products()) s.large_up = f.variable("large_up", no()), s.large_down = f.variable("large_down", no());
        if (how_.zero == zero_rule::ieee) {
            const word zero = f.let("c_is_zero", carried_.digits_of(acc) == number(0, carried_.digits_of(acc)));
            s.all_negative = f.variable("all_negative", inside ? zero & negative : yes());
            s.all_positive = f.variable("all_positive", inside ? zero & !negative : yes());
        }
        return s;
    }
    void look(function& f, const survey& s, const word& t) {
        const word negative = f.let("negative", term_.negative_of(t)), inf = term_.infinite_of(t), d = term_.digits_of(t);
        f.assign(s.nan, s.nan | term_.nan_of(t));
        f.assign(s.up, s.up | (inf & !negative));
        f.assign(s.down, s.down | (inf & negative));
        if (how_.zero == zero_rule::ieee) {
            const word zero = f.let("is_zero", d == number(0, d));
            f.assign(s.all_negative, s.all_negative & zero & negative);
            f.assign(s.all_positive, s.all_positive & zero & !negative);
        }
    }
    word zero_sign(const survey& s, rounding r) const {
        if (how_.zero != zero_rule::ieee) return no();
        return r == rounding::down ? s.all_negative | !s.all_positive : s.all_negative;
    }
    /// Notes the group's sum, in two's complement, as the arguments of the roundings.
    void note_sum(function& f, const survey& s, const word& total, const word& exponent) {
        const signed_word parts = parted(f, total);
        const word zero = f.let("sum_is_zero", parts.magnitude == number(0, parts.magnitude));
        if (how_.zero == zero_rule::ieee && how_.round != how_.partial_round &&
            (how_.round == rounding::down || how_.partial_round == rounding::down))
            refuse("round and partial-round give zeros different signs here; give the same rounding, or zero=positive");
        word up = s.up, down = s.down;
        if (limits_products()) {
            const word special = f.let("special", s.nan | s.up | s.down);
            up = f.let("all_up", up | (s.large_up & !special)), down = f.let("all_down", down | (s.large_down & !special));
        }
        sum_ = {s.nan,    up,
                down,     f.let("sign", choose(zero, zero_sign(s, how_.round), parts.negative)),
                exponent, bits(parts.magnitude, 0, parts.magnitude.width() - 1)};
    }

    void aligned_group(function& f, const std::string& term, const word& acc, const word& first, const word& last, bool inside) {
        const int shared = carried_.offset, up = how_.align - fraction_, up_c = how_.align - (carried_.digits - 1);
        const int raised = shared - term_.offset;  // of a term's exponent, to that of the register
        const survey s = begin_survey(f, acc, inside);
        const word acc_e = f.let("c_exponent", carried_.exponent_of(acc));
        const int e_width = carried_.exponent;
        const auto exponent_at = [&](const word& t) { return f.let("exponent", widened(moved(term_.exponent_of(t), raised), e_width)); };
        const auto products_too_large = [&](const word& t) {
            const auto note = [&](const word& large) {
                const word negative = f.let("minus_sign", term_.negative_of(t));
                f.assign(s.large_up, s.large_up | (large & !negative));
                f.assign(s.large_down, s.large_down | (large & negative));
            };
            if (how_.product_range) {
                const auto limit = static_cast<std::uint64_t>(128 + term_.offset);
                if (limit <= term_.most) note(f.let("out_of_range", any(term_.digits_of(t)) & (term_.exponent_of(t) >= limit)));
            }
            if (!how_.product_overflow) return;
            // digits * 2^(exponent - offset - fraction) is at least 2^128
            const int limit = 128 + fraction_ + term_.offset;  // of the exponent, for one digit
            const word e = term_.exponent_of(t), d = term_.digits_of(t);
            const word wide_e = widened(e, bits_for(std::max<std::uint64_t>(e.largest(), static_cast<std::uint64_t>(limit))));
            const word missing = f.let("missing", choose(wide_e >= static_cast<std::uint64_t>(limit), number(0, wide_e),
                                                         lessened(number(static_cast<std::uint64_t>(limit), wide_e), wide_e)));
            const int width = d.width() == 32 || d.width() == 64 ? d.width() + 1 : d.width();
            const word by = clamped(f, bounded(missing, static_cast<std::uint64_t>(limit)), static_cast<std::uint64_t>(width));
            note(f.let("too_large", any(widened(d, width) >> by)));
        };
        if (inside) {
            const word top = f.variable("top", acc_e);
            word i = f.loop("i", first, last);
            word t = f.let("t", f.at(term, i));
            look(f, s, t);
            products_too_large(t);
            const word e = exponent_at(t);
            f.assign(top, choose(e > top, e, top));
            f.end_loop();
            const int widest = std::max(term_.digits + std::max(up, 0), carried_.digits + std::max(up_c, 0)) + 2;
            const int width = widest + addends_bits(static_cast<std::uint64_t>(group_) + 1);
            const word known_top = bounded(top, carried_.most);
            const word c_kept = cut(f, carried_.negative_of(acc), carried_.digits_of(acc), f.let("c_below", lessened(known_top, acc_e)),
                                    up_c, how_.cut, how_.lost_is_zero);
            const word total = f.variable("total", with_sign(carried_.negative_of(acc), widened(c_kept, width)));
            i = f.loop("i", first, last);
            t = f.let("t", f.at(term, i));
            const word below = f.let("below", lessened(known_top, exponent_at(t)));
            const word kept = f.let("part", widened(cut_term(f, t, below, up), width));
            f.assign(total, choose(term_.negative_of(t), total - kept, total + kept));
            f.end_loop();
            note_sum(f, s, total, top);
            make_roundings(width - 1, e_width, carried_.most, shared + how_.align);
            return;
        }
        aligned_lanes(f, term, acc, first, last, s, exponent_at, products_too_large);
    }
    /// Lanes: each aligned by itself, then to the largest exponent of all.
    template <class ExponentAt, class TooLarge>
    void aligned_lanes(function& f, const std::string& term, const word& acc, const word& first, const word& last, const survey& s,
                       ExponentAt exponent_at, TooLarge products_too_large) {
        const int shared = carried_.offset, up = how_.align - fraction_, e_width = carried_.exponent;
        const word acc_e = carried_.exponent_of(acc);
        const int lanes = std::min(how_.lanes, group_);
        if (lanes > 1 && terms_ % group_ != 0) refuse("--k must be a multiple of " + std::to_string(group_ * how_.bundle) + ", the group");
        const word top = f.variable("top", constant(0, e_width));
        std::vector<word> tops;
        for (int l = 0; l < lanes; ++l) {
            const word lane_top = lanes == 1 ? top : f.variable("top_of_lane", constant(0, e_width));
            const word i = f.loop("i", first + static_cast<std::uint64_t>(l), last, static_cast<std::uint64_t>(lanes));
            const word t = f.let("t", f.at(term, i));
            look(f, s, t);
            products_too_large(t);
            const word e = exponent_at(t);
            f.assign(lane_top, choose(e > lane_top, e, lane_top));
            f.end_loop();
            if (lanes > 1) f.assign(top, choose(lane_top > top, lane_top, top));
            tops.push_back(bounded(lane_top, carried_.most));
        }
        const word known_top = bounded(top, carried_.most);
        const int width = term_.digits + std::max(up, 0) + 2 + addends_bits(static_cast<std::uint64_t>(group_)) + 1;
        const word sum = f.variable("sum", constant(0, width));
        for (int l = 0; l < lanes; ++l) {
            const word lane = lanes == 1 ? sum : f.variable("lane", constant(0, width));
            const word i = f.loop("i", first + static_cast<std::uint64_t>(l), last, static_cast<std::uint64_t>(lanes));
            const word t = f.let("t", f.at(term, i));
            const word below = f.let("below", lessened(tops[static_cast<std::size_t>(l)], exponent_at(t)));
            const word kept = f.let("part", widened(cut_term(f, t, below, up), width));
            f.assign(lane, choose(term_.negative_of(t), lane - kept, lane + kept));
            f.end_loop();
            if (lanes == 1) break;
            const signed_word parts = parted(f, lane);
            const word d = bits(parts.magnitude, 0, width - 1);
            const word kept_lane =
                cut(f, parts.negative, d, f.let("below", lessened(known_top, tops[static_cast<std::size_t>(l)])), 0, how_.join_cut);
            const word fitted = fit(f, kept_lane, width);
            f.assign(sum, choose(parts.negative, sum - widened(fitted, width), sum + widened(fitted, width)));
        }
        if (how_.join == 0 && limits_products()) refuse("product-overflow and product-range without join are not emitted; give join");
        if (how_.join == 0) return join_rounded(f, s, sum, top, carried_.most, shared + how_.align, acc);
        const signed_word parts = parted(f, sum);
        const int both = std::max(how_.join, how_.join_addend);
        const word joint = f.let("joint", choose(acc_e > top, acc_e, top));
        const word known = bounded(joint, carried_.most);
        const word group_kept = cut(f, parts.negative, bits(parts.magnitude, 0, width - 1), f.let("below", lessened(known, known_top)),
                                    how_.join - how_.align, how_.join_cut);
        const word c_below = f.let("c_below", lessened(known, acc_e));
        word c_kept =
            cut(f, carried_.negative_of(acc), carried_.digits_of(acc), c_below, how_.join_addend - (carried_.digits - 1), how_.join_cut);
        if (how_.join_drop != 0) c_kept = choose(c_below > static_cast<std::uint64_t>(how_.join_drop), number(0, c_kept), c_kept);
        c_kept = f.let("c_kept", c_kept);
        const auto raised_to = [&](const word& v, int by) { return by > 0 ? join(v, constant(0, by)) : v; };
        const word x = raised_to(group_kept, both - how_.join), y = raised_to(c_kept, both - how_.join_addend);
        const int all = std::max(x.width(), y.width()) + 2;
        const word total =
            f.let("total", with_sign(parts.negative, widened(x, all)) + with_sign(carried_.negative_of(acc), widened(y, all)));
        note_sum(f, s, total, joint);
        make_roundings(all - 1, e_width, carried_.most, shared + both);
    }

    void exact_group(function& f, const std::string& term, const word& acc, const word& first, const word& last, bool inside) {
        // The unit is the lowest digit that a term or C may have.
        const int term_low = lowest_of_terms(), term_unit = term_low - fraction_, own = how_.addend.mantissa_bits;
        const int c_low = std::min(min_exponent(how_.addend), min_exponent(how_.partial)), c_unit = c_low - (carried_.digits - 1);
        (void)own;
        const int unit = inside ? std::min(term_unit, c_unit) : term_unit;
        const int term_reach = static_cast<int>(term_.most) - term_.offset - fraction_ - unit + term_.digits;
        const int c_reach = inside ? 128 - unit + 1 : 0;
        const int width = std::max(term_reach, c_reach) + 2 + addends_bits(static_cast<std::uint64_t>(group_) + 1);
        const survey s = begin_survey(f, acc, inside);
        word begins = constant(0, width);
        if (inside) {
            const word d = carried_.digits_of(acc), zero = d == number(0, d);
            const int low = c_unit + (carried_.digits - 1) + carried_.offset, gap = c_unit - unit;  // the exponent of the lowest digit
            const word e = f.let("c_exponent", carried_.exponent_of(acc));
            const word by = f.let("c_by", moved(choose(zero | (e < static_cast<std::uint64_t>(low)), number(0, e),
                                                       lessened(e, number(static_cast<std::uint64_t>(low), e))),
                                                gap));
            const word held = clamped(f, by, static_cast<std::uint64_t>(width));
            begins = with_sign(carried_.negative_of(acc), f.let("c_placed", extend(d, width) << held));
        }
        const word total = f.variable("total", begins);
        const word i = f.loop("i", first, last);
        const word t = f.let("t", f.at(term, i));
        look(f, s, t);
        const word d = f.let("digits", term_.digits_of(t)), e = f.let("exponent", term_.exponent_of(t));
        const int low = term_low + term_.offset;
        const word from = choose((d == number(0, d)) | (e < static_cast<std::uint64_t>(std::max(low, 0))), number(0, e),
                                 lessened(e, number(static_cast<std::uint64_t>(std::max(low, 0)), e)));
        const word by = clamped(f, f.let("by", moved(from, term_unit - unit)), static_cast<std::uint64_t>(width));
        const word placed = f.let("placed", extend(d, width) << by);
        f.assign(total, choose(f.let("negative", term_.negative_of(t)), total - placed, total + placed));
        f.end_loop();
        if (!inside) return join_rounded(f, s, total, constant(0, 1), 0, -unit, acc);
        note_sum(f, s, total, constant(0, 1));
        make_roundings(width - 1, 1, 0, -unit);
    }
    /// Returns the lowest exponent of a term that is not zero.
    int lowest_of_terms() const {
        int low = how_.bundle > 1 ? 0 : lowest_element(m_.a) + lowest_element(m_.b);
        for (const format* f : {&m_.a, &m_.b}) {
            if (const block_float* b = std::get_if<block_float>(f)) low -= (1 << (b->exponent_bits - 1)) - 1;
            else if (std::holds_alternative<microscaling>(*f)) low -= 127;
            else if (const nvfloat* n = std::get_if<nvfloat>(f)) low += min_exponent(n->scale);
        }
        return low;
    }

    /// The group's sum is rounded to `partial` and then added to the register.
    void join_rounded(function& f, const survey& s, const word& sum, const word& exponent, std::uint64_t most, int offset,
                      const word& acc) {
        const signed_word parts = parted(f, sum);
        const word zero = f.let("sum_is_zero", parts.magnitude == number(0, parts.magnitude));
        const int width = parts.magnitude.width() - 1;
        make_rounding("round_group", how_.partial, how_.partial_round, width, exponent.width(), most, offset, bits_(how_.partial));
        const word group = f.let("group_code", call(m_.name + "_round_group", bits_(how_.partial),
                                                    {f.let("group_nan", s.nan), s.up, s.down,
                                                     f.let("sign", choose(zero, zero_sign(s, how_.partial_round), parts.negative)),
                                                     exponent, bits(parts.magnitude, 0, width)}));
        const int digits = std::max(how_.partial.mantissa_bits, how_.addend.mantissa_bits) + 1;
        number_layout(digits);
        make_reader("number", how_.partial, bits_(how_.partial), false, number_, 0, true);
        const word g = f.let("group_number", call(m_.name + "_number", number_.width(), {group}));
        // The register, as a number whose digits begin with a 1: `acc` has them as they stand.
        function& h = f;
        word d = carried_.digits_of(acc), e = moved(carried_.exponent_of(acc), steps_of(carried_.digits));
        d = h.let("c_digits", d), e = h.let("c_above", e);
        const word c_zero = h.let("c_zero", d == number(0, d));
        if (d.width() > 1) normalize(h, d, e);
        const int own = carried_.offset + steps_of(carried_.digits) + (carried_.digits - 1) + (number_.digits - carried_.digits);
        word e_number = choose(c_zero, constant(0, std::max(number_.exponent, e.width())),
                               widened(moved(e, number_.offset - own), std::max(number_.exponent, e.width())));
        e_number = fit(h, e_number, number_.exponent);
        const word digits_c = number_.digits > carried_.digits ? join(d, constant(0, number_.digits - carried_.digits)) : d;
        const word c = h.let("c_number", number_.joined(carried_.nan_of(acc), carried_.infinite_of(acc), carried_.negative_of(acc),
                                                        extend_to(e_number, number_.exponent), digits_c));
        const std::vector<word> both = add_parts(f, c, g, how_.round);
        sum_ = both;
        make_roundings(pair_width_, number_.exponent, ones(number_.exponent), number_.offset + pair_guard_);
    }

    // ---- sums that are rounded at every step

    /// Numbers that begin with a 1, or are zero: NaN, Inf, sign, exponent of the lowest digit, digits.
    void number_layout(int digits) {
        // The exponent of the lowest digit: of products, and of the registers' subnormal numbers.
        int low = 0, high = 0;
        for (const floating& g : {how_.partial, how_.addend}) {
            const int steps = steps_of(g.mantissa_bits + 1);
            low = std::min(low, min_exponent(g) - g.mantissa_bits - steps - digits);
            high = std::max(high, max_exponent(g) + 2);
        }
        number_ = {digits, 0, 0, -low};
        if (product_.digits != 0 && fused_products_) {
            low = std::min(low, -product_.offset - (digits - product_.digits));
            high = std::max(high, static_cast<int>(product_.most) - product_.offset + product_.digits);
        }
        number_.offset = 1 - low;
        number_.most = static_cast<std::uint64_t>(high - low + 1);
        number_.exponent = bits_for(number_.most);
        number_.most = ones(number_.exponent);
    }
    /// Returns the arguments of a rounding for x + y.
    std::vector<word> add_parts(function& f, const word& x, const word& y, rounding r) {
        const layout& n = number_;
        constexpr int guard = 4;
        int width = n.digits + guard;
        if (width == 32 || width == 64) ++width;
        const int low = width - n.digits;
        const word ex = f.let("x_exponent", n.exponent_of(x)), ey = f.let("y_exponent", n.exponent_of(y)), swap = f.let("swap", ex < ey);
        const word big = f.let("greater", choose(swap, n.digits_of(y), n.digits_of(x))),
                   small = f.let("lesser", choose(swap, n.digits_of(x), n.digits_of(y)));
        const word top = f.let("top", choose(swap, ey, ex)), distance = f.let("distance", choose(swap, lessened(ey, ex), lessened(ex, ey)));
        const word negative = f.let("greater_sign", choose(swap, n.negative_of(y), n.negative_of(x)));
        const word differ = f.let("differ", n.negative_of(x) ^ n.negative_of(y));
        const word by = clamped(f, distance, static_cast<std::uint64_t>(width));
        const word wide = f.let("wide_lesser", join(small, constant(0, low)));
        const word kept = f.let("kept", wide >> by);
        const word jammed = f.let("jammed", kept | extend(f.let("lost", (kept << by) != wide), width), "the last bit stands for all below");
        const word a = f.let("wide_greater", extend(join(big, constant(0, low)), width + 1)), b = f.let("other", extend(jammed, width + 1));
        const word turned = f.let("turned", differ & (a < b));
        const word magnitude = f.let("magnitude", choose(differ, choose(turned, b - a, a - b), a + b));
        const word zero = f.let("is_zero", magnitude == number(0, magnitude));
        word zero_negative = n.negative_of(x) & n.negative_of(y);
        if (r == rounding::down) zero_negative = n.negative_of(x) | n.negative_of(y);
        if (keeps_zero_positive(how_)) zero_negative = no();
        const word sign = f.let("sign", choose(zero, zero_negative, negative ^ turned));
        const auto infinite = [&](bool down) {
            const auto of = [&](const word& v) { return n.infinite_of(v) & (down ? n.negative_of(v) : !n.negative_of(v)); };
            return f.let(down ? "down" : "up", of(x) | of(y));
        };
        pair_width_ = width + 1;
        pair_guard_ = low;
        return {f.let("nan", n.nan_of(x) | n.nan_of(y)), infinite(false), infinite(true), sign, top, magnitude};
    }

    void step_by_step(function& f) {
        if (how_.bundle > 1) refuse("sums that are rounded at every step are emitted for bundle=1");
        if (block_a_ != 0 || block_b_ != 0) refuse("sums that are rounded at every step are emitted for operands without scales of blocks");
        fused_products_ = true;
        make_product(true, false);
        const int m = std::max({how_.partial.mantissa_bits, how_.addend.mantissa_bits, how_.result.mantissa_bits}) + 1;
        const int digits = std::max(product_.digits, m);
        number_layout(digits);
        const layout& n = number_;
        make_reader("read_c", how_.addend, code_bits(how_, how_.addend), true, n, 0, true);
        const bool same =
            how_.partial == how_.result && how_.partial_round == how_.round && bits_(how_.partial) == code_bits(how_, how_.result);
        make_reader("read", how_.partial, bits_(how_.partial), false, n, 0, true);
        // NAME_add, and the roundings that it and the result take
        function add = named("add", "Returns x + y, rounded to the register's format.");
        const word ax = add.input("x", n.width()), ay = add.input("y", n.width());
        const std::vector<word> parts = add_parts(add, ax, ay, how_.partial_round);
        const std::string round = m_.name + (same ? "_round" : "_round_partial");
        make_rounding(same ? "round" : "round_partial", how_.partial, how_.partial_round, pair_width_, n.exponent, n.most,
                      n.offset + pair_guard_, bits_(how_.partial));
        add.result = call(m_.name + "_read", n.width(), {call(round, bits_(how_.partial), parts)});
        all_.push_back(add);
        if (!same)
            make_rounding("round", how_.result, how_.round, pair_width_, n.exponent, n.most, n.offset + pair_guard_,
                          code_bits(how_, how_.result));
        const auto arguments = [&](function& g, const word& x) -> std::vector<word> {
            const word inf = n.infinite_of(x), s = g.let("sign", n.negative_of(x));
            return {n.nan_of(x), g.let("up", inf & !s), g.let("down", inf & s),
                    s,           n.exponent_of(x),      join(extend(n.digits_of(x), pair_width_ - pair_guard_), constant(0, pair_guard_))};
        };
        const bool pairs = how_.sum == summation::pairwise, inside = how_.place == place::inside;
        if (!how_.fused || pairs || !inside) {  // products by themselves are rounded
            function g = named("rounded", "Returns a number, rounded to the register's format.");
            const word x = g.input("x", n.width());
            const std::vector<word> words = arguments(g, x);
            g.result = call(m_.name + "_read", n.width(), {call(round, bits_(how_.partial), words)});
            all_.push_back(g);
        }
        // A product as a number
        const auto number_at = [&](const word& i) {
            const word p = product_at(f, i);
            const int room = n.digits - product_.digits;
            const word e = product_.exponent_of(p), d = product_.digits_of(p);
            word exponent = moved(e, n.offset - product_.offset - room);
            exponent = choose(e == number(0, e), number(0, exponent), exponent);
            const word zero = f.let("nothing", d == number(0, d));
            exponent = choose(zero, constant(0, n.exponent), extend_to(fit(f, exponent, n.exponent), n.exponent));
            return f.let("number", n.joined(product_.nan_of(p), product_.infinite_of(p), product_.negative_of(p),
                                            f.let("exponent", exponent), room > 0 ? join(d, constant(0, room)) : d));
        };
        const auto rounded = [&](const word& x) { return call(m_.name + "_rounded", n.width(), {x}); };
        const auto added = [&](const word& x, const word& y) { return call(m_.name + "_add", n.width(), {x, y}); };
        const word acc = f.variable("held", call(m_.name + "_read_c", n.width(), {c_}));
        const int groups = (terms_ + group_ - 1) / group_, lanes = std::min(how_.lanes, group_);
        const bool plain = !pairs && inside && lanes == 1;
        if (!plain && terms_ % group_ != 0) refuse("--k must be a multiple of " + std::to_string(group_) + ", the group");
        const bool grouped = groups > 1 && !(plain && !how_.reverse);
        const auto n_terms = static_cast<std::uint64_t>(terms_), step = static_cast<std::uint64_t>(group_);
        word first = place(0);
        if (grouped) first = f.loop("group", place(0), place(n_terms), step);
        if (plain) {
            word last = grouped ? first + step : place(n_terms);
            if (grouped && terms_ % group_ != 0) last = f.let("end", choose(last > n_terms, place(n_terms), last));
            const word i = f.loop("i", first, last);
            const word at = how_.reverse ? f.let("at", last - place(1) - (i - first)) : i;
            word t = number_at(at);
            if (!how_.fused) t = rounded(t);
            f.assign(acc, added(acc, t));
            f.end_loop();
        } else {
            add_lanes(f, first, acc, number_at, rounded, added);
        }
        if (grouped) f.end_loop();
        f.result = call(m_.name + "_round", code_bits(how_, how_.result), arguments(f, acc));
    }
    /// Sums the lanes of a group, or its terms in pairs, and then the lanes' sums.
    template <class NumberAt, class Rounded, class Add>
    void add_lanes(function& f, const word& first, const word& acc, NumberAt number_at, Rounded rounded, Add added) {
        const layout& n = number_;
        const bool pairs = how_.sum == summation::pairwise, inside = how_.place == place::inside;
        const int lanes = std::min(how_.lanes, group_);
        if (how_.reverse) refuse("reverse with lanes is not emitted; leave reverse out");
        const int chunk = (group_ + how_.lanes - 1) / how_.lanes;
        const std::string lane = lanes > 1 ? f.array("lane", n.width(), static_cast<std::uint64_t>(lanes)) : "";
        int used = 0;
        word sum;
        for (int l = 0; l < lanes; ++l) {
            const int from = how_.chunked ? l * chunk : l, to = how_.chunked ? std::min(group_, from + chunk) : group_,
                      stride = how_.chunked ? 1 : lanes;
            if (from >= group_) break;
            const int count = (to - from + stride - 1) / stride;
            ++used;
            const auto begin = first + static_cast<std::uint64_t>(from), end = first + static_cast<std::uint64_t>(to);
            if (pairs) {
                const std::string v = f.array("v", n.width(), static_cast<std::uint64_t>(count + (inside ? 1 : 0)));
                if (inside) f.store(v, place(0), acc);
                const word i = f.loop("i", begin, end, static_cast<std::uint64_t>(stride));
                const word number = number_at(i);
                f.store(v, block_at(i - begin, static_cast<std::uint64_t>(stride)) + static_cast<std::uint64_t>(inside ? 1 : 0),
                        rounded(how_.fused ? number : number));
                f.end_loop();
                in_pairs(f, v, count + (inside ? 1 : 0), added);
                sum = f.at(v, place(0));
            } else {
                const word s = f.variable("sum", rounded(number_at(begin)));
                const word i = f.loop("i", begin + static_cast<std::uint64_t>(stride), end, static_cast<std::uint64_t>(stride));
                word t = number_at(i);
                if (!how_.fused) t = rounded(t);
                f.assign(s, added(s, t));
                f.end_loop();
                sum = s;
            }
            if (lanes > 1) f.store(lane, place(static_cast<std::uint64_t>(l)), sum);
        }
        if (lanes > 1 && pairs) {
            in_pairs(f, lane, used, added);
            sum = f.at(lane, place(0));
        } else if (lanes > 1) {
            const word s = f.variable("all", f.at(lane, place(0)));
            const word i = f.loop("i", place(1), place(static_cast<std::uint64_t>(used)));
            f.assign(s, added(s, f.at(lane, i)));
            f.end_loop();
            sum = s;
        }
        f.assign(acc, inside ? sum : added(acc, sum));
    }
    template <class Add>
    void in_pairs(function& f, const std::string& v, int count, Add added) {
        for (int step = 1; step < count; step *= 2) {
            const word i = f.loop("i", place(0), place(static_cast<std::uint64_t>(count - step)), static_cast<std::uint64_t>(2 * step));
            f.store(v, i, added(f.at(v, i), f.at(v, i + static_cast<std::uint64_t>(step))));
            f.end_loop();
        }
    }

    // ---- whole numbers

    function integer_sum() {
        const auto x = std::get<integer>(m_.a), y = std::get<integer>(m_.b);
        if (how_.requantize.by != requantize_by::nothing)
            refuse("a requantized sum is not emitted; leave requantize out, and requantize what the function returns");
        function f = named("dot", "Returns the sum of k products and c, in two's complement.");
        begin(f);
        const int held = how_.width, stored = code_bits(how_, how_.result);
        const int group_bits = x.bits + y.bits + addends_bits(static_cast<std::uint64_t>(group_)) + 1;
        const int width = how_.saturate ? std::max(std::max(held, stored), group_bits) + 2 : std::max(held, stored);
        const auto signed_value = [&](const word& code, bool is_signed, int to) {  // to <= code: the low bits
            if (code.width() >= to) return code.width() == to ? code : bits(code, 0, to);
            if (!is_signed) return extend(code, to);
            const word top = constant(std::uint64_t{1} << (code.width() - 1), to);
            return (extend(code, to) ^ top) - top;
        };
        const auto keep = [&](const word& v) {  // a register saturates
            if (!how_.saturate) return v;
            const word high = constant(ones(held - 1), width), low = constant(0, width) - high - constant(1, width),
                       negative = bits(f.let("v", v), width - 1, 1);
            const word name = f.let("v", v);
            (void)negative;
            const word sign = bits(name, width - 1, 1);
            return choose(
                sign,
                choose((name ^ constant(std::uint64_t{1} << (width - 1), width)) < (low ^ constant(std::uint64_t{1} << (width - 1), width)),
                       low, name),
                choose(name > high, high, name));
        };
        if (width > 64) refuse("this register needs words of more than 64 bits; give a width of at most " + std::to_string(60));
        const word sum = f.variable("sum", keep(signed_value(c_, true, width)));
        word first = place(0);
        const bool grouped = how_.saturate && terms_ > group_;
        const auto n = static_cast<std::uint64_t>(terms_), step = static_cast<std::uint64_t>(group_);
        if (grouped) first = f.loop("group", place(0), place(n), step);
        word last = grouped ? first + step : place(n);
        if (grouped && terms_ % group_ != 0) last = f.let("end", choose(last > n, place(n), last));
        const word group = how_.saturate ? f.variable("group_sum", constant(0, width)) : sum;
        const word i = f.loop("i", first, last);
        const word a = f.let("x", f.at("a", i)), b = f.let("y", f.at("b", i));
        f.assign(group, group + signed_value(a, x.is_signed, width) * signed_value(b, y.is_signed, width));
        f.end_loop();
        if (how_.saturate) f.assign(sum, keep(sum + (how_.place == place::after ? f.let("kept", keep(group)) : group)));
        if (grouped) f.end_loop();
        word result = held < width ? signed_value(bits(sum, 0, held), true, std::max(stored, held)) : word(sum);
        f.result = result.width() == stored ? result : bits(f.let("result", result), 0, stored);
        return f;
    }

    const multiplier& m_;
    accumulator how_;
    int block_a_ = 0, block_b_ = 0, terms_ = 0, group_ = 0;
    word c_;
    std::vector<function> all_;
    layout product_, term_, carried_, number_;
    int fraction_ = 0, pair_width_ = 0, pair_guard_ = 0;
    bool all_in_one_ = true, fused_products_ = false;
    std::vector<word> sum_;
};

}  // namespace

int result_width(const accumulator& a) { return code_bits(a, a.result); }
int addend_width(const accumulator& a) { return code_bits(a, a.addend); }

std::vector<function> functions_of(const multiplier& what) {
    if (const message m = check_operands(what.a, what.b, what.how); !m.empty()) refuse(std::string(m.view()));
    std::vector<function> all = sum_of_products(what).functions();
    for (function& f : all) drop_unused(f);
    return all;
}

function is_nan_of(const multiplier& what) {
    function t;
    t.name = what.name + "_is_nan";
    t.comment = "Is a result NaN?";
    const accumulator& a = what.how;
    const int width = code_bits(a, a.result);
    const word y = t.input("y", width);
    if (a.sum == summation::integer) {
        t.result = constant(0, 1);
    } else {
        const floating f = width == 32 ? fp32 : a.result;
        t.result = unpack(t, f, bits(f) == width ? y : t.let("own", bits(y, 0, bits(f))), false, false).is_nan;
    }
    drop_unused(t);
    return t;
}

}  // namespace qk::emit
