// SPDX-License-Identifier: Apache-2.0
// Which bins a word hits, as a circuit: what src/hardware/compare/converter_bins.cpp counts, over the words of float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "bin_keys.hpp"
#include "cases.hpp"
#include "convert.hpp"
#include "coverage.hpp"
#include "qk/formats/facts.hpp"

namespace qk::emit {
namespace {

constexpr std::uint64_t no_key = 0xffffffff;
constexpr int place_bits = fields_of(bin_kind::binade).a;
constexpr int largest_shift = 25;  ///< one that takes more leaves nothing to round up

}  // namespace

parts parts_of(function& f, const word& w, const std::string& of) {
    parts p;
    p.all = w;
    p.negative = f.let(of + "_negative", bits(w, 31, 1));
    p.exponent = f.let(of + "_exponent", bits(w, 23, 8));
    p.mantissa = f.let(of + "_mantissa", bits(w, 0, 23));
    p.magnitude = f.let(of + "_magnitude", bits(w, 0, 31));
    p.is_zero = p.magnitude == 0;
    p.is_finite = p.exponent != 255;
    p.is_nan = p.magnitude > 0x7f800000;
    return p;
}

word as_float32(function& f, const floating& input, const word& x) {
    if (input == fp32) return x;
    if (input == bf16) return f.let("wide", join(x, constant(0, 16)));
    const unpacked n = unpack(f, input, x, true, false);
    const word number = f.let("number", pack(f, n, fp32, exact_to_float32(), constant(0, 1)));
    const word nan = join(join(n.negative, constant(0xff, 8)), join(bits(x, 0, 10), constant(0, 13)));
    return f.let("wide", choose(n.is_nan, nan, number));
}

word input_key(function& f, const converter& what, const parts& x) {
    const floating* number = number_float(what.format);
    const int cut = 23 - (number != nullptr ? number->mantissa_bits : 7);  // the lowest bit of a payload that is kept
    const int drop = what.input == fp16 ? 13 : what.input == bf16 ? 16 : 0;
    const std::uint64_t all = ones(23), payload = all >> drop << drop, low = ones(cut), high = all - low;
    const auto has = [&](std::uint64_t of) { return of == 0 ? truth(false) : (x.mantissa & constant(of, 23)) != 0; };
    word kind = f.let("payload_stands", choose(!has(low), small(0), choose(!has(high), small(1), small(5))));
    kind = choose(x.mantissa == 0x400000, small(4), kind);
    kind = choose(x.mantissa == (payload & (~payload + 1)), small(3), kind);
    kind = f.let("payload", choose(x.mantissa == payload, small(2), kind), "which kind of NaN this would be");
    const word most = (x.exponent == 254) & (x.mantissa == all);
    word number_kind = choose(x.exponent == 0, small(1), choose(most, small(3), small(2)));
    number_kind = f.let("input_kind", choose(x.is_zero, small(0), choose(x.is_finite, number_kind, small(4))));
    return choose(x.is_nan, key(bin_kind::nan_payload, kind, x.negative), key(bin_kind::input, number_kind, x.negative));
}

std::uint64_t grid::order_of(double v) const {
    if (fixed || v == 0) return static_cast<std::uint64_t>(v);
    const int least = base - 127, e = std::max(std::ilogb(v), least);
    return (static_cast<std::uint64_t>(e - least) << mantissa) + static_cast<std::uint64_t>(std::ldexp(v, mantissa - e));
}

namespace {

std::optional<grid> grid_of(const converter& what) {
    if (const integer* g = std::get_if<integer>(&what.format)) {
        const auto zero = static_cast<double>(what.zero_point);
        return grid{.fixed = true,
                    .scale = what.scale_exponent,
                    .largest = static_cast<double>(qmax(*g)) - zero,
                    .lowest = zero - static_cast<double>(qmin(*g))};
    }
    const floating* f = std::get_if<floating>(&what.format);
    if (f == nullptr || *f == fp32 || exceeds_float32(*f)) return std::nullopt;
    if (min_exponent(*f) < -127) refuse("normal numbers below 2^-127 are counted by the command alone: qk cover FORMAT LINES");
    return grid{
        .mantissa = f->mantissa_bits, .base = min_exponent(*f) + 127, .largest = max_value(*f), .lowest = f->is_signed ? max_value(*f) : 0};
}

/// Returns the smallest float32 word of a magnitude that is not below v.
std::uint64_t word_at_least(double v) {
    auto w = static_cast<float>(v);
    if (static_cast<double>(w) < v) w = std::nextafter(w, std::numeric_limits<float>::infinity());
    return std::bit_cast<std::uint32_t>(w);
}

/// Appends the keys of a result: its class, whether it is the largest number, its binade.
void add_result_keys(function& f, const converter& what, const std::optional<grid>& g, const parts& x, const parts& y,
                     std::vector<word>& keys) {
    const word is_number = f.let("is_number", y.is_finite & !y.is_zero, "of a result: finite, and not 0");
    word kind = small(7);  // none
    if (g && !g->fixed) {
        const std::uint64_t normal = g->base == 0 ? 0x400000 : static_cast<std::uint64_t>(g->base) << 23;
        kind = choose(y.magnitude < normal, small(2), kind);
    }
    kind = f.let("number_kind", choose(y.is_zero, choose(x.is_zero, small(0), small(1)), kind));
    kind = f.let("result_kind", choose(y.is_nan, small(5), choose(y.is_finite, kind, small(4))));
    keys.push_back(choose(kind == 7, none(), key(bin_kind::result, kind, y.negative & !y.is_nan)));
    word largest = none();
    if (g) {
        const auto at = [&](double v) { return constant(word_at_least(std::ldexp(v, g->scale)), 31); };
        const word end = choose(y.negative, at(g->lowest), at(g->largest));
        largest = choose(is_number & (y.magnitude >= end), key(bin_kind::result, small(3), y.negative), none());
    }
    keys.push_back(largest);

    const int scale = g ? g->scale : 0;
    word place;  // of the binade
    if (std::ldexp(facts(what.format).smallest, scale) < 0x1p-126) {
        const unpacked n = unpack(f, fp32, y.all, true, false);  // value: digits, whose highest bit is 1, times 2^(exponent - offset)
        place = extend(n.exponent, place_bits) + static_cast<std::uint64_t>(23 - n.offset - scale - least_binade);
    } else {
        place = extend(y.exponent, place_bits) + static_cast<std::uint64_t>(-127 - scale - least_binade);
    }
    keys.push_back(choose(is_number, key(bin_kind::binade, place, y.negative), none()));
}

cut_number cut_of(function& f, const grid& g, const parts& x) {
    cut_number c;
    const word field = f.let("field", choose(x.exponent == 0, constant(1, 8), x.exponent));
    const auto word9 = [](const word& w) { return extend(w, 9); };
    if (g.fixed) {
        const int whole = 150 + g.scale;  // an exponent from which on a number is a whole one
        const word from = constant(static_cast<std::uint64_t>(std::clamp(whole, 0, 256)), 9);
        c.shift = f.let("shift", choose(word9(field) < from, lessened(from, word9(field)), constant(0, 9)), "how many bits are cut off");
        c.subnormal = truth(false);
    } else if (g.base == 0) {  // 2^-127 is normal, and a subnormal float32
        c.shift = f.let("shift",
                        choose(x.exponent == 0, constant(static_cast<std::uint64_t>(22 - g.mantissa), 9),
                               constant(static_cast<std::uint64_t>(23 - g.mantissa), 9)),
                        "how many bits are cut off");
        c.subnormal = f.let("subnormal", x.magnitude < 0x400000);
    } else {
        const word base = constant(static_cast<std::uint64_t>(g.base), 8);
        const word more = choose(field < base, lessened(base, field), constant(0, 8));
        c.shift = f.let("shift", word9(more) + static_cast<std::uint64_t>(23 - g.mantissa), "how many bits are cut off");
        c.subnormal = f.let("subnormal", x.exponent < base, "below the normal numbers");
    }
    if (!g.fixed)
        c.binades = choose(c.subnormal, constant(0, 32), extend(x.exponent, 32) - constant(static_cast<std::uint64_t>(g.base), 32));
    cut_digits(f, x, c);
    return c;
}

/// Is exactly one bit of a word 1?
word is_single(const word& v) { return (v != 0) & ((v & (v - constant(1, 32))) == 0); }
/// Returns the place of that bit.
word place_of(const word& v) {
    word place = (v & constant(0xffff0000, 32)) != 0;
    for (const std::uint64_t half : {0xff00ff00u, 0xf0f0f0f0u, 0xccccccccu, 0xaaaaaaaau})
        place = join(place, (v & constant(half, 32)) != 0);
    return place;
}

}  // namespace

void cut_digits(function& f, const parts& x, cut_number& c) {
    c.is_cut = f.let("is_cut", x.is_finite & !x.is_zero & (c.shift >= 1) & !(c.shift > static_cast<std::uint64_t>(largest_shift)));
    const word by = f.let("by", bounded(choose(c.is_cut, c.shift, number(1, c.shift)), largest_shift));
    const word digits = f.let("digits", extend(join(x.exponent != 0, x.mantissa), 32));
    c.kept = f.let("kept", digits >> by);
    c.half = f.let("half", bounded(constant(1, 32) << lessened(by, number(1, by)), 1u << (largest_shift - 1)),
                   "the highest bit that is cut off");
    c.rest = f.let("rest", digits & lessened(c.half + c.half, constant(1, 32)));
    c.sticky = f.let("sticky", c.rest & lessened(c.half, constant(1, 32)));
    c.guard = f.let("guard", (c.rest & c.half) != 0);
    c.odd = bits(c.kept, 0, 1);
}

void add_rounding_keys(function& f, const grid& g, const word& negative, const cut_number& c, std::vector<word>& keys) {
    const word& is_cut = c.is_cut;
    const word number = f.let("class_of_number", join(c.subnormal, c.odd));
    const auto pattern = [&](std::uint64_t which, const word& bit) {
        return key(bin_kind::rounding, c.shift, join(constant(which, 2), number), bit, negative);
    };
    const word single = f.let("one_sticky_bit", is_single(c.sticky)), place = f.let("sticky_place", place_of(c.sticky)),
               less = f.let("less", lessened(c.half, c.sticky)), less_place = f.let("less_place", place_of(less)),
               is_tie = f.let("is_tie", c.rest == c.half);
    keys.push_back(choose(is_cut & is_tie, pattern(0, small(0)), choose(is_cut & c.guard & single, pattern(1, place), none())));
    keys.push_back(choose(is_cut & (!c.guard) & (c.sticky != 0) & is_single(less), pattern(2, less_place), none()));
    keys.push_back(choose(is_cut & (!c.guard) & single, pattern(3, place), none()));

    const word inexact = f.let("inexact", is_cut & (c.rest != 0));
    const word beside = f.let("beside", choose(is_tie, constant(1, 2), choose(c.rest > c.half, constant(2, 2), constant(0, 2))));
    const auto carry = [&](const word& is, std::uint64_t into) {
        keys.push_back(choose(inexact & is, key(bin_kind::carry, small(into), beside, small(0), negative), none()));
    };
    const word up = f.let("up", c.kept + 1);
    if (!g.fixed) {
        carry((!c.subnormal) & (up == std::uint64_t{2} << g.mantissa), 0);
        carry(c.subnormal & (up == std::uint64_t{1} << g.mantissa), 1);
    }
    word order = c.kept;  // of the number below, among the magnitudes of the format
    if (!g.fixed) order = f.let("order", c.kept + (c.binades << constant(static_cast<std::uint64_t>(g.mantissa), 5)));
    const word end = f.let("most", choose(negative, constant(g.order_of(g.lowest), 32), constant(g.order_of(g.largest), 32)));
    carry(order + 1 == end, 2);
    carry(order == end, 3);
}

namespace {

/// Appends the key of the middle of a table's numbers that a number lies beside.
void add_middle_key(function& f, const converter& what, const table& t, const parts& x, std::vector<word>& keys) {
    std::vector<float> numbers;
    for (const float v : std::span(t.values->number).first(static_cast<std::size_t>(t.size())))
        if (v == v) numbers.push_back(v);
    std::sort(numbers.begin(), numbers.end());
    const auto order = [](float v) -> std::uint64_t {  // -0 is 0
        const std::uint32_t w = std::bit_cast<std::uint32_t>(v == 0 ? 0.0f : v);
        return w >> 31 != 0 ? static_cast<std::uint32_t>(~w) : w | 0x80000000u;
    };
    int index_bits = 1;
    while ((std::size_t{1} << index_bits) <= numbers.size()) ++index_bits;
    const std::size_t size = std::size_t{1} << index_bits;
    table_of_words begins{what.name + "_ascending", 32, std::vector<std::uint64_t>(size, no_key)};
    table_of_words below{what.name + "_last_below", 32, std::vector<std::uint64_t>(size, 0)}, above = below;
    above.name = what.name + "_first_above";
    for (std::size_t k = 0; k < numbers.size(); ++k) {
        begins.words[k] = order(numbers[k]);
        if (k + 1 == numbers.size()) break;
        const double middle = (static_cast<double>(numbers[k]) + static_cast<double>(numbers[k + 1])) / 2;
        float last = static_cast<float>(middle), first = last;
        if (static_cast<double>(last) >= middle) last = std::nextafter(last, -std::numeric_limits<float>::infinity());
        if (static_cast<double>(first) <= middle) first = std::nextafter(first, std::numeric_limits<float>::infinity());
        below.words[k] = order(last), above.words[k] = order(first);
    }
    f.tables = {begins, below, above};
    const word negative = f.let("below_zero", x.negative & !x.is_zero);
    const word place = f.let("place", join(!negative, choose(negative, !x.magnitude, x.magnitude)), "in the order of the numbers");
    word at = constant(0, index_bits);  // how many numbers are not above this one
    for (std::size_t step = size / 2; step >= 1; step /= 2) {
        const std::string n = std::to_string(step);
        const word begin = f.let("begin_" + n, f.lookup(begins.name, at + static_cast<std::uint64_t>(step - 1)));
        at = f.let("at_" + n, choose(place >= begin, at + static_cast<std::uint64_t>(step), at));
    }
    const word inside = f.let("is_between", x.is_finite & (at != 0) & (at < static_cast<std::uint64_t>(numbers.size())));
    const word number = f.let("below", choose(inside, at - constant(1, index_bits), constant(0, index_bits)));
    const auto found = [&](const char* as, const table_of_words& of) { return f.let(as, f.lookup(of.name, number)); };
    const word last = found("last_below", below), first = found("first_above", above), own = found("own", begins);
    const word side = choose(!(place > last), constant(0, 2), choose(place >= first, constant(2, 2), constant(1, 2)));
    keys.push_back(choose(inside & (place != own), key(bin_kind::between, number, side, small(0), truth(false)), none()));
}

function named_key(const converter& what) { return named(what, "key", "Returns a bin that a word hits, as a key; ffffffff is none."); }

void finish(function& f, const word& which, const std::vector<word>& keys) {
    f.result = none();
    for (std::size_t k = keys.size(); k-- > 0;) f.result = choose(which == k, keys[k], f.result);
    drop_unused(f);
}

/// The codes of a block: each element's by itself, by its lane, and with the scale; the scale; the shifts.
key_functions keys_of_block_decoder(const converter& what) {
    key_functions made;
    function f = named(what, "keys", "Gives the bins that a line hits, as keys; ffffffff is none.");
    const case_shape s = shape_of(unit(what));
    const int width = s.in[0].width;
    const auto size = static_cast<std::uint64_t>(s.in[0].count);
    f.input_array("elements", width, size);
    const word_group shifts = s.in.size() > 2 ? s.in[2] : word_group{.name = {}, .width = 0, .count = 0};
    if (shifts.count > 0) f.input_array("shifts", shifts.width, static_cast<std::uint64_t>(shifts.count));
    const word scale = f.input("scale", s.in[1].width);
    const floating* element = element_float(what.format);
    const std::uint64_t largest = element != nullptr ? largest_magnitude(*element) : ones(width - 1);
    const std::string keys = f.returned_array("keys", 32);
    const auto place = [](std::uint64_t v) { return constant(v, 32); };
    word i = bounded(f.loop("i", place(0), place(size)), size);
    const word code = f.let("code", f.at("elements", i)), magnitude = f.let("magnitude", bits(code, 0, width - 1));
    const word extreme = choose(magnitude == 0, small(1), choose(magnitude == largest, small(2), small(0)));
    const word of_lane[] = {
        key(bin_kind::code, code, truth(false)), key(bin_kind::code_at, i, code, truth(false), truth(false)),
        key(bin_kind::scale_code, scale, truth(false)),
        choose(extreme == 0, none(), key(bin_kind::scale_code, scale, f.let("extreme", extreme), small(0), truth(false)))};
    std::uint64_t at = 0;
    for (const word& k : of_lane) f.store(keys, i + at, k), at += size;
    f.end_loop();
    if (shifts.count > 0) {
        i = bounded(f.loop("i", place(0), place(static_cast<std::uint64_t>(shifts.count))), static_cast<std::uint64_t>(shifts.count));
        f.store(keys, i + at, key(bin_kind::shift_code, i, f.at("shifts", i), truth(false), truth(false)));
        f.end_loop();
        at += static_cast<std::uint64_t>(shifts.count);
    }
    f.returns(at);
    drop_unused(f);
    made.all = {f}, made.asks = at, made.of_lines = true;
    return made;
}

key_functions keys_of_decoder(const converter& what) {
    if (is_block_format(what.format)) return keys_of_block_decoder(what);
    key_functions made;
    function f = named_key(what);
    const floating* g = std::get_if<floating>(&what.format);
    const int width = shape_of(unit(what)).in[0].width;
    const word code = f.input("code", width);
    if (width <= 16) {
        f.result = key(bin_kind::code, code, truth(false));
    } else {
        const int m = g != nullptr ? g->mantissa_bits : 0, high = std::min(16, width - m);
        word b = constant(1, 2);  // of a format without a mantissa, it is 0
        if (m > 0) {
            const word mantissa = f.let("mantissa", bits(code, 0, m));
            b = choose(mantissa == 0, constant(1, 2), choose(mantissa == ones(m), constant(2, 2), constant(0, 2)));
        }
        f.result = key(bin_kind::code, bits(code, m, high), b, small(0), truth(false));
    }
    drop_unused(f);
    made.all = {f};
    made.asks = 1;
    return made;
}

key_functions keys_of(converter what) {
    if (what.decode) return keys_of_decoder(what);
    if (is_stochastic(what.how.rounding)) what.how.rounding = rounding::half_even;  // which results come must not depend on random words
    if (is_block_format(what.format)) return keys_of_block(what);
    key_functions made;
    made.all = functions_of(unit(what));
    what.decode = true;
    for (const function& f : functions_of(unit(what))) made.all.push_back(f);
    what.decode = false;
    function f = named_key(what);
    const word x = f.input("x", bits(what.input)), y = f.input("y", 32), which = f.input("which", 4);
    const parts in = parts_of(f, as_float32(f, what.input, x), "x"), out = parts_of(f, y, "y");
    const std::optional<grid> g = grid_of(what);
    std::vector<word> keys{input_key(f, what, in)};
    add_result_keys(f, what, g, in, out, keys);
    if (const table* t = std::get_if<table>(&what.format)) add_middle_key(f, what, *t, in, keys);
    if (g) add_rounding_keys(f, *g, in.negative, cut_of(f, *g, in), keys);
    finish(f, which, keys);
    made.all.push_back(f);
    made.asks = keys.size();
    return made;
}

}  // namespace

std::uint32_t key_of(const compare::bin& b) {
    const key_fields bits = fields_of(b.kind);
    const bool from_least =
        b.kind == bin_kind::binade || b.kind == bin_kind::addend || (b.kind == bin_kind::scale && b.b == compare::scale_as_exponent);
    std::uint32_t k = static_cast<std::uint32_t>(b.kind);
    const auto add = [&](int value, int width) {
        if (value < 0 || value >> width != 0)
            refuse("some bins are beyond what the key of a counter holds; count them by the command: qk cover");
        k = k << width | static_cast<std::uint32_t>(value);
    };
    add(from_least ? b.a - least_binade : b.a, bits.a), add(b.b, bits.b), add(b.c, bits.c), add(b.d, 1);
    return k;
}

key_functions key_functions_of(const unit& u) {
    return std::visit([](const auto& what) { return keys_of(what); }, u);
}

}  // namespace qk::emit
