// SPDX-License-Identifier: Apache-2.0
// The known mistakes of converters, one line each: a sentence, when it applies, and what it changes. compare's search composes them.
#include <cmath>

#include "mistaken_lanes.hpp"
#include "mistaken_results.hpp"
#include "mistaken_scales.hpp"
#include "mistaken_words.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

namespace qk::compare {
namespace {

// ---- when a mistake applies

bool to_blocks(const problem& p) { return is_block_format(p.asked.format); }
bool to_integers(const problem& p) { return is_integer_format(p.asked.format); }
bool to_scaled_blocks(const problem& p) { return std::holds_alternative<microscaling>(p.asked.format); }
bool to_other_blocks(const problem& p) { return to_blocks(p) && !to_scaled_blocks(p); }
bool to_block_floats(const problem& p) { return std::holds_alternative<block_float>(p.asked.format); }
bool to_shared_exponents(const problem& p) { return to_scaled_blocks(p) || to_block_floats(p); }
bool to_nvfloats(const problem& p) { return has_floating_scales(p.asked.format); }
bool to_grids(const problem& p) { return element_grid::of(p.asked).has_value(); }
bool to_floats(const problem& p) {
    const auto g = element_grid::of(p.asked);
    return g && !g->fixed;
}
bool to_elements(const problem& p) { return !to_blocks(p) && p.asked.format != qk::format(fp32); }
/// Does rounding change the elements alone, and no scale?
bool rounds_elements(const problem& p) {
    const auto* b = std::get_if<block_float>(&p.asked.format);
    return to_grids(p) && !to_nvfloats(p) && !std::holds_alternative<microexponent>(p.asked.format) && (b == nullptr || !b->bump);
}
template <rounding R>
bool unless_rounding(const problem& p) {
    return p.asked.how.rounding != R && rounds_elements(p);
}
template <rounding R>
bool unless_rounding_scales(const problem& p) {
    return p.asked.how.rounding != R && !rounds_elements(p) && p.asked.format != qk::format(fp32);
}
template <scale_rule R>
bool unless_rule(const problem& p) {
    return to_scaled_blocks(p) && p.asked.how.scale_rule != R;
}
template <overflow_rule R>
bool unless_overflow(const problem& p) {
    return to_elements(p) && !to_integers(p) && p.asked.how.overflow != R;
}
bool unless_reciprocal(const problem& p) { return to_integers(p) && p.asked.how.integer_mode != integer_mode::reciprocal; }
bool unless_division(const problem& p) { return to_integers(p) && p.asked.how.integer_mode != integer_mode::division; }
bool unless_flushing_inputs(const problem& p) { return !p.asked.how.flush_inputs; }
bool unless_flushing_outputs(const problem& p) { return !p.asked.how.flush_outputs; }
bool with_zero_points(const problem& p) { return to_integers(p) && !p.asked.zero_point.empty(); }
bool with_scales_of_channels(const problem& p) { return to_integers(p) && p.asked.given == conversion::granularity::channel; }
bool with_zero_point_of_channels(const problem& p) { return with_zero_points(p) && with_scales_of_channels(p); }
bool unless_bumped(const problem& p) { return to_block_floats(p) && !std::get<block_float>(p.asked.format).bump; }
bool if_bumped(const problem& p) { return to_block_floats(p) && std::get<block_float>(p.asked.format).bump; }
bool with_lost_sticky_bit(const problem& p) { return to_grids(p) && lost_sticky_bit_of(p) > 1; }
template <int Axis>
bool unless_axis(const problem& p) {
    return to_blocks(p) && Axis < static_cast<int>(p.shape.size()) && p.asked.axis != Axis;
}
bool has_divided_scales(const problem& p) {
    const auto odd = [](float s) { return s > 0 && std::ldexp(1.0f, std::ilogb(s)) != s; };
    return to_nvfloats(p) || std::any_of(p.asked.scale.begin(), p.asked.scale.end(), odd);
}
/// Does a block begin in one row and end in the next, if rows have no ends?
bool with_cut_rows(const problem& p) {
    const along_axis a = p.asked.blocks;
    return to_blocks(p) && a.inner == 1 && a.outer > 1 && a.length % static_cast<std::size_t>(block_size(p.asked.format)) != 0;
}
template <int Size>
bool unless_size(const problem& p) {
    return to_blocks(p) && block_size(p.asked.format) != Size;
}

// ---- changed settings

template <rounding R>
void with_rounding(conversion& c, const problem&) {
    c.how.rounding = R;
}
template <scale_rule R>
void with_rule(conversion& c, const problem&) {
    c.how.scale_rule = R;
}
template <overflow_rule R>
void with_overflow(conversion& c, const problem&) {
    c.how.overflow = R;
}
template <block_specials R>
void with_specials(conversion& c, const problem&) {
    c.how.mx_specials = c.how.bfp_specials = R;
}
template <integer_mode M>
void with_mode(conversion& c, const problem&) {
    c.how.integer_mode = M;
}
template <integer_special S>
void with_nan(conversion& c, const problem&) {
    c.how.integer_nan = S;
}
/// Another system's answers; rounding stays as it was asked for.
template <int K>
void with_semantics(conversion& c, const problem&) {
    const qk::semantics asked = c.how;
    c.how = semantics_names[K].value;
    c.how.rounding = asked.rounding;
    c.how.stochastic_bits = asked.stochastic_bits;
    c.how.seed = asked.seed;
    c.how.first_index = asked.first_index;
    c.how.random_words = asked.random_words;
}
template <int K>
bool unless_semantics(const problem& p) {
    conversion c = p.asked;
    with_semantics<K>(c, p);
    return c.how != p.asked.how;
}
template <int Axis>
void with_axis(conversion& c, const problem& p) {
    c.blocks = seen_along(p.shape, Axis);
}
template <int Size>
void with_size(conversion& c, const problem&) {
    std::visit(
        [](auto& f) {
            if constexpr (requires { f.block_size; }) f.block_size = Size;
        },
        c.format);
}
void with_rows_joined(conversion& c, const problem& p) { c.blocks = {1, p.x.size(), 1}; }
void with_bump(conversion& c, const problem&) { std::get<block_float>(c.format).bump = !std::get<block_float>(c.format).bump; }
void with_unit_tensor_scale(conversion& c, const problem&) {
    c.given = conversion::granularity::tensor;
    c.scale = {1.0f};
}

// ---- values before and after

float as_float16(float x) { return widen(narrow<float16>(x)); }
template <int Bits>
float with_mantissa(float x) {
    if (!std::isfinite(x)) return x;
    constexpr std::uint32_t drop = 23 - Bits, half = (1u << (drop - 1)) - 1;
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    return std::bit_cast<float>((u + half + (u >> drop & 1u)) >> drop << drop);
}
float truncated_bfloat16(float x) { return std::isnan(x) ? x : std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u); }

float without_zero_sign(float y, const element_facts&) { return y == 0 ? 0.0f : y; }
float positive_underflow(float y, const element_facts& e) { return y == 0 && e.x != 0 ? 0.0f : y; }
float unsigned_zero_becomes_negative(float y, const element_facts& e) { return y == 0 && e.x == 0 ? std::copysign(0.0f, e.x) : y; }
template <int Power>
float subnormal_times(float y, const element_facts& e) {
    return e.subnormal(y) ? std::ldexp(y, Power) : y;
}
float subnormal_shifted_out(float y, const element_facts& e) {
    if (!e.subnormal(y)) return y;
    const double step = e.grid->step_at(0) * static_cast<double>(e.unit);
    return static_cast<float>(std::trunc(static_cast<double>(y) / step / 2) * step);
}
float flushed(float y, const element_facts& e) { return e.subnormal(y) ? std::copysign(0.0f, y) : y; }
float flushed_to_positive(float y, const element_facts& e) { return e.subnormal(y) || (y == 0 && e.x != 0) ? 0.0f : y; }
template <int Power>
float times(float y, const element_facts&) {
    return std::ldexp(y, Power);
}
float nan_to_zero(float y, const element_facts&) { return y != y ? 0.0f : y; }
float infinity_to_nan(float y, const element_facts&) { return std::isinf(y) ? std::numeric_limits<float>::quiet_NaN() : y; }
float nan_to_infinity(float y, const element_facts& e) { return y != y ? std::copysign(std::numeric_limits<float>::infinity(), e.x) : y; }
float nan_to_largest(float y, const element_facts& e) {
    return y != y && e.grid != nullptr && e.unit == e.unit
               ? std::copysign(static_cast<float>(e.grid->largest * static_cast<double>(e.unit)), e.x)
               : y;
}
float infinity_to_largest(float y, const element_facts& e) {
    return std::isinf(y) && e.grid != nullptr ? std::copysign(static_cast<float>(e.grid->largest * static_cast<double>(e.unit)), y) : y;
}
float unconverted(float, const element_facts& e) { return e.x; }
float zero(float, const element_facts&) { return 0.0f; }
float negated(float y, const element_facts&) { return -y; }
float signless(float y, const element_facts&) { return std::abs(y); }

float largest_for_specials(float x) {
    if (std::isfinite(x)) return x;
    return std::copysign(std::numeric_limits<float>::max(), x);
}

/// Returns the bits of an element's code.
int code_bits(const conversion& c) { return element_width(c.format); }
std::uint32_t with_bit(std::uint32_t code, int bit, bool one) { return one ? code | 1u << bit : code & ~(1u << bit); }

/// A bit of the element's code is always 0 or always 1.
template <int Bit, bool One>
float stuck_bit(float y, const element_facts& e) {
    if (e.grid == nullptr || !std::isfinite(y) || !(e.unit > 0)) return y;
    const double unit = static_cast<double>(e.unit), q = static_cast<double>(y) / unit;
    const auto of_float = [&](floating f) {
        const auto element = static_cast<float>(q);
        const std::uint32_t code = code_of(f, element);
        if (value_of(f, code) != element) return y;
        return static_cast<float>(static_cast<double>(value_of(f, with_bit(code, Bit, One))) * unit);
    };
    const auto* m = std::get_if<microscaling>(&e.c->format);
    if (const auto* f = std::get_if<floating>(&e.c->format)) return of_float(*f);
    if (const auto* f = element_float(e.c->format)) return of_float(*f);
    const double steps = std::nearbyint(q / e.grid->step);
    if (!(std::abs(steps) < 0x1p30)) return y;
    if (m == nullptr && !is_integer_format(e.c->format)) {  // a sign and a magnitude
        const auto code = with_bit(static_cast<std::uint32_t>(std::abs(steps)), Bit, One);
        return std::copysign(static_cast<float>(code * e.grid->step * unit), y);
    }
    const int width = code_bits(*e.c);
    const auto zero = is_integer_format(e.c->format) ? zero_point_of(*e.c, e.at) : 0;
    const std::uint32_t code =
        with_bit(static_cast<std::uint32_t>(static_cast<std::int64_t>(steps) + zero), Bit, One) & ((1u << width) - 1);
    std::int64_t n = code;
    if (e.grid->lowest < 0 && (code >> (width - 1) & 1u) != 0) n -= std::int64_t{1} << width;
    return static_cast<float>(static_cast<double>(n - zero) * e.grid->step * unit);
}
template <int Bit>
bool with_code_bit(const problem& p) {
    return to_grids(p) && code_bits(p.asked) <= 16 && Bit < code_bits(p.asked) - (to_integers(p) ? 0 : 1);
}
template <int Bit>
bool with_scale_bit(const problem& p) {
    const auto* b = std::get_if<block_float>(&p.asked.format);
    return to_scaled_blocks(p) || (b != nullptr && Bit < b->exponent_bits);
}

// ---- what was asked for, in words

std::string rounding_asked(const problem& p) { return std::string(to_text(p.asked.how.rounding)); }
std::string lost_sticky_bit(const problem& p) { return std::to_string(lost_sticky_bit_of(p)); }
std::string axis_asked(const problem& p) { return std::to_string(p.asked.axis); }
template <int N>
std::string number(const problem&) {
    return std::to_string(N);
}
std::string size_asked(const problem& p) { return std::to_string(block_size(p.asked.format)); }

using rules = element_rules;
using enum topic;

constexpr mistake table[] = {
    {.about = topic::rounding, .sentence = "truncation: it drops the low bits instead of rounding", .applies = unless_rounding<qk::rounding::toward_zero>, .element = [](rules& r) { r.rounding = qk::rounding::toward_zero; }},
    {.about = topic::rounding, .sentence = "truncation: it drops the low bits instead of rounding", .applies = unless_rounding_scales<qk::rounding::toward_zero>, .settings = with_rounding<qk::rounding::toward_zero>},
    {.about = topic::rounding, .sentence = "it rounds half-away where # was asked for", .applies = unless_rounding<qk::rounding::half_away>, .element = [](rules& r) { r.rounding = qk::rounding::half_away; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds half-away where # was asked for", .applies = unless_rounding_scales<qk::rounding::half_away>, .settings = with_rounding<qk::rounding::half_away>, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds half-up where # was asked for", .applies = unless_rounding<qk::rounding::half_up>, .element = [](rules& r) { r.rounding = qk::rounding::half_up; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds half-up where # was asked for", .applies = unless_rounding_scales<qk::rounding::half_up>, .settings = with_rounding<qk::rounding::half_up>, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds half-even where # was asked for", .applies = unless_rounding<qk::rounding::half_even>, .element = [](rules& r) { r.rounding = qk::rounding::half_even; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds half-even where # was asked for", .applies = unless_rounding_scales<qk::rounding::half_even>, .settings = with_rounding<qk::rounding::half_even>, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "ties go toward zero: a tie above an odd mantissa is truncated instead of rounded up", .applies = to_grids, .element = [](rules& r) { r.ties = rules::toward_zero; }},
    {.about = topic::rounding, .sentence = "it rounds down where # was asked for", .applies = unless_rounding<qk::rounding::down>, .element = [](rules& r) { r.rounding = qk::rounding::down; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds down where # was asked for", .applies = unless_rounding_scales<qk::rounding::down>, .settings = with_rounding<qk::rounding::down>, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds up where # was asked for", .applies = unless_rounding<qk::rounding::up>, .element = [](rules& r) { r.rounding = qk::rounding::up; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "it rounds up where # was asked for", .applies = unless_rounding_scales<qk::rounding::up>, .settings = with_rounding<qk::rounding::up>, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "ties go to the odd mantissa", .applies = to_grids, .element = [](rules& r) { r.ties = rules::to_odd; }},
    {.about = topic::rounding, .sentence = "it rounds away from zero where # was asked for: whatever lies behind the mantissa rounds up", .applies = to_grids, .element = [](rules& r) { r.away_from_zero = true; }, .asked = rounding_asked},
    {.about = topic::rounding, .sentence = "odd mantissas truncated: it rounds only where the mantissa that is kept is even", .applies = to_grids, .element = [](rules& r) { r.odd_truncated = true; }},
    {.about = topic::rounding, .sentence = "its random words are those of seed #", .applies = has_other_seed, .settings = with_other_seed, .asked = other_seed},
    {.about = topic::rounding, .sentence = "its random words come one value late", .applies = rounds_stochastically, .settings = with_late_words},
    {.about = topic::rounding, .sentence = "its random words come one value early", .applies = rounds_stochastically, .settings = with_early_words},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<2>, .asked = number<2>},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<4>, .asked = number<4>},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<8>, .asked = number<8>},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<16>, .asked = number<16>},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<32>, .asked = number<32>},
    {.about = topic::rounding, .sentence = "# neighbouring values share a random word", .applies = rounds_stochastically, .settings = with_shared_words<64>, .asked = number<64>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<1>, .asked = number<1>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<2>, .asked = number<2>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<3>, .asked = number<3>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<4>, .asked = number<4>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<5>, .asked = number<5>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<6>, .asked = number<6>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<7>, .asked = number<7>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<8>, .asked = number<8>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<9>, .asked = number<9>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<10>, .asked = number<10>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<11>, .asked = number<11>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<12>, .asked = number<12>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<13>, .asked = number<13>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<14>, .asked = number<14>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<15>, .asked = number<15>},
    {.about = topic::rounding, .sentence = "only the upper # bits of the random words are used: the others are 0", .applies = rounds_stochastically, .settings = with_upper_bits<16>, .asked = number<16>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<15>, .asked = number<15>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<16>, .asked = number<16>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<31>, .asked = number<31>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<32>, .asked = number<32>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<63>, .asked = number<63>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<64>, .asked = number<64>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<127>, .asked = number<127>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<128>, .asked = number<128>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<255>, .asked = number<255>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<256>, .asked = number<256>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<511>, .asked = number<511>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<512>, .asked = number<512>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<1023>, .asked = number<1023>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<1024>, .asked = number<1024>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<2047>, .asked = number<2047>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<2048>, .asked = number<2048>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<4095>, .asked = number<4095>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<4096>, .asked = number<4096>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<8191>, .asked = number<8191>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<8192>, .asked = number<8192>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<16383>, .asked = number<16383>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<16384>, .asked = number<16384>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<32767>, .asked = number<32767>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<32768>, .asked = number<32768>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<65535>, .asked = number<65535>},
    {.about = topic::rounding, .sentence = "its random words repeat after #", .applies = rounds_stochastically, .settings = with_repeated_words<65536>, .asked = number<65536>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 0", .applies = rounds_stochastically, .settings = with_stuck_word_bit<31, false>, .asked = number<31>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 1", .applies = rounds_stochastically, .settings = with_stuck_word_bit<31, true>, .asked = number<31>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 0", .applies = rounds_stochastically, .settings = with_stuck_word_bit<30, false>, .asked = number<30>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 1", .applies = rounds_stochastically, .settings = with_stuck_word_bit<30, true>, .asked = number<30>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 0", .applies = rounds_stochastically, .settings = with_stuck_word_bit<29, false>, .asked = number<29>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 1", .applies = rounds_stochastically, .settings = with_stuck_word_bit<29, true>, .asked = number<29>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 0", .applies = rounds_stochastically, .settings = with_stuck_word_bit<28, false>, .asked = number<28>},
    {.about = topic::rounding, .sentence = "bit # of its random words is stuck at 1", .applies = rounds_stochastically, .settings = with_stuck_word_bit<28, true>, .asked = number<28>},
    {.about = topic::rounding, .sentence = "its random words are inverted", .applies = rounds_stochastically, .settings = with_inverted_words},
    {.about = topic::rounding, .sentence = "its random words are used with their bits in reversed order", .applies = rounds_stochastically, .settings = with_swapped_words},
    {.about = sticky, .sentence = "sticky bits dropped: it rounds from 1 bit behind the mantissa, and takes what lies just above a tie for a tie", .applies = to_grids, .element = [](rules& r) { r.guard_bits = 1; }},
    {.about = sticky, .sentence = "sticky bits dropped: it rounds from 2 bits behind the mantissa, and takes what lies just above a tie for a tie", .applies = to_grids, .element = [](rules& r) { r.guard_bits = 2; }},
    {.about = sticky, .sentence = "sticky bits dropped: it rounds from 3 bits behind the mantissa, and takes what lies just above a tie for a tie", .applies = to_grids, .element = [](rules& r) { r.guard_bits = 3; }},
    {.about = sticky, .sentence = "sticky bits dropped: it rounds from 4 bits behind the mantissa, and takes what lies just above a tie for a tie", .applies = to_grids, .element = [](rules& r) { r.guard_bits = 4; }},
    {.about = sticky, .sentence = "the bits that the first shift cuts off are dropped: # bit behind the mantissa is kept before a subnormal is shifted and rounded", .applies = to_floats, .element = [](rules& r) { r.significand_bits = 1; }, .asked = number<1>},
    {.about = sticky, .sentence = "the bits that the first shift cuts off are dropped: # bits behind the mantissa are kept before a subnormal is shifted and rounded", .applies = to_floats, .element = [](rules& r) { r.significand_bits = 2; }, .asked = number<2>},
    {.about = sticky, .sentence = "the bits that the first shift cuts off are dropped: # bits behind the mantissa are kept before a subnormal is shifted and rounded", .applies = to_floats, .element = [](rules& r) { r.significand_bits = 3; }, .asked = number<3>},
    {.about = sticky, .sentence = "low bits of the float32 mantissa are dropped: # bit behind the element's mantissa is kept", .applies = to_floats, .element = [](rules& r) { r.field_bits = 1; }, .asked = number<1>},
    {.about = sticky, .sentence = "low bits of the float32 mantissa are dropped: # bits behind the element's mantissa are kept", .applies = to_floats, .element = [](rules& r) { r.field_bits = 2; }, .asked = number<2>},
    {.about = sticky, .sentence = "low bits of the float32 mantissa are dropped: # bits behind the element's mantissa are kept", .applies = to_floats, .element = [](rules& r) { r.field_bits = 3; }, .asked = number<3>},
    {.about = sticky, .sentence = "sticky bits dropped on the way to a subnormal: what the shift takes out of a 24-bit significand does not count", .applies = to_floats, .element = [](rules& r) { r.denormalizing_loses = true; }},
    {.about = sticky, .sentence = "sticky bits dropped where the result is subnormal: it is rounded from 1 bit behind the mantissa", .applies = to_floats, .element = [](rules& r) { r.subnormal_guard_bits = 1; }},
    {.about = sticky, .sentence = "one sticky bit is not looked at: number # behind the mantissa", .applies = with_lost_sticky_bit, .element = [](rules& r) { r.lost_sticky_bit = -1; }, .asked = lost_sticky_bit},
    {.about = carry, .sentence = "the carry is lost: a round-up past the mantissa leaves the exponent as it was, with the mantissa 0", .applies = to_floats, .element = [](rules& r) { r.carry = rules::lost; }},
    {.about = carry, .sentence = "the carry is lost: a round-up past the mantissa leaves the mantissa at all ones", .applies = to_floats, .element = [](rules& r) { r.carry = rules::held; }},
    {.about = low_bit, .sentence = "the lowest mantissa bit is lost: odd mantissas are truncated to even ones", .applies = to_grids, .element = [](rules& r) { r.lowest_bit_lost = true; }},
    {.about = double_rounding, .sentence = "double rounding: values are rounded to bfloat16 first", .input = as_bfloat16},
    {.about = double_rounding, .sentence = "double rounding: values are rounded to float16 first", .input = as_float16},
    {.about = double_rounding, .sentence = "values are truncated to bfloat16 first", .input = truncated_bfloat16},
    {.about = double_rounding, .sentence = "double rounding of the elements alone: they are rounded to bfloat16 first, the scale is not", .applies = to_blocks, .path = as_bfloat16},
    {.about = double_rounding, .sentence = "double rounding of the elements alone: they are rounded to float16 first, the scale is not", .applies = to_blocks, .path = as_float16},
    {.about = double_rounding, .sentence = "elements are truncated to bfloat16 first, the scale is not", .applies = to_blocks, .path = truncated_bfloat16},

    {.about = subnormal, .sentence = "a subnormal is encoded a binade too small", .applies = to_floats, .result = subnormal_times<-1>},
    {.about = subnormal, .sentence = "a subnormal is a binade too small, before it is rounded: the shift that makes it is one place too far", .applies = to_floats, .element = [](rules& r) { r.subnormal_factor = 0.5; }},
    {.about = subnormal, .sentence = "a subnormal is encoded a binade too small, and its last bit is lost", .applies = to_floats, .result = subnormal_shifted_out},
    {.about = subnormal, .sentence = "a subnormal is encoded a binade too large", .applies = to_floats, .result = subnormal_times<1>},
    {.about = subnormal, .sentence = "a subnormal is a binade too large, before it is rounded: the shift that makes it is one place too short", .applies = to_floats, .element = [](rules& r) { r.subnormal_factor = 2; }},
    {.about = subnormal, .sentence = "the format's subnormals are flushed to zero", .applies = to_floats, .result = flushed},
    {.about = subnormal, .sentence = "the format's subnormals are flushed to +0", .applies = to_floats, .result = flushed_to_positive},
    {.about = subnormal, .sentence = "subnormal results are truncated instead of rounded", .applies = to_floats, .element = [](rules& r) { r.subnormals_truncated = true; }},
    {.about = subnormal, .sentence = "subnormal results are truncated, and a binade too small: the shift that makes them is one place too far and rounds nothing", .applies = to_floats, .element = [](rules& r) { r.subnormals_truncated = true, r.subnormal_factor = 0.5; }},
    {.about = subnormal, .sentence = "what is below the normal numbers before it is rounded is flushed to zero, also where it would round up to the least normal one", .applies = to_floats, .element = [](rules& r) { r.flushes_before = true; }},
    {.about = double_rounding, .sentence = "subnormal results are rounded twice: to the length of a normal mantissa first, then to the steps of subnormals", .applies = to_floats, .element = [](rules& r) { r.own_mantissa_first = true; }},
    {.about = subnormal, .sentence = "the shift that makes a subnormal wraps at # places", .applies = to_floats, .element = [](rules& r) { r.shift_wraps = 16; }, .asked = number<16>},
    {.about = subnormal, .sentence = "the shift that makes a subnormal wraps at # places", .applies = to_floats, .element = [](rules& r) { r.shift_wraps = 32; }, .asked = number<32>},
    {.about = subnormal, .sentence = "the shift of a small element wraps at # places", .applies = to_block_floats, .element = [](rules& r) { r.shift_wraps = 16; }, .asked = number<16>},
    {.about = subnormal, .sentence = "the shift of a small element wraps at # places", .applies = to_block_floats, .element = [](rules& r) { r.shift_wraps = 32; }, .asked = number<32>},
    {.about = subnormal, .sentence = "the shift that rounds, counted from the float32 mantissa's end, wraps at # places", .applies = to_grids, .element = [](rules& r) { r.shift_wraps = 32, r.whole_shift = true; }, .asked = number<32>},
    {.about = input, .sentence = "subnormal float32 inputs are flushed to zero", .applies = unless_flushing_inputs, .settings = [](conversion& c, const problem&) { c.how.flush_inputs = true; }},
    {.about = subnormal, .sentence = "results that are subnormal are flushed to zero", .applies = unless_flushing_outputs, .settings = [](conversion& c, const problem&) { c.how.flush_outputs = true; }},

    {.about = zero_sign, .sentence = "the sign of zero is lost", .result = without_zero_sign},
    {.about = zero_sign, .sentence = "what underflows becomes +0, whatever its sign", .result = positive_underflow},
    {.about = zero_sign, .sentence = "a zero keeps its sign where +0 was asked for", .result = unsigned_zero_becomes_negative},
    {.about = overflow, .sentence = "overflow is treated as by --overflow ieee", .applies = unless_overflow<overflow_rule::ieee>, .settings = with_overflow<overflow_rule::ieee>},
    {.about = overflow, .sentence = "overflow is treated as by --overflow saturate", .applies = unless_overflow<overflow_rule::saturate>, .settings = with_overflow<overflow_rule::saturate>},
    {.about = overflow, .sentence = "integers wrap around beyond the range instead of saturating", .applies = to_integers, .element = [](rules& r) { r.wraps = true; }},
    {.about = overflow, .sentence = "what lies beyond the largest number becomes Inf", .applies = to_grids, .element = [](rules& r) { r.beyond = rules::infinite; }},
    {.about = overflow, .sentence = "what lies beyond the largest number becomes NaN", .applies = to_grids, .element = [](rules& r) { r.beyond = rules::nan; }},
    {.about = overflow, .sentence = "what lies beyond the largest number becomes zero", .applies = to_grids, .element = [](rules& r) { r.beyond = rules::nought; }},
    {.about = overflow, .sentence = "what lies beyond the largest number becomes the one below the largest", .applies = to_grids, .element = [](rules& r) { r.beyond = rules::next; }},
    {.about = overflow, .sentence = "it saturates at the number below the largest, which it never gives", .applies = to_grids, .element = [](rules& r) { r.largest_unused = true; }},
    {.about = overflow, .sentence = "negative values beyond the range become -2^m: one step below the lowest number", .applies = to_block_floats, .element = [](rules& r) { r.beyond = rules::below; }},
    {.about = overflow, .sentence = "the top binade is taken for overflow: from its power of two on everything becomes the largest number", .applies = to_floats, .result = top_binade_largest},
    {.about = overflow, .sentence = "the top binade is taken for overflow: from its power of two on everything becomes Inf, or NaN where there is none", .applies = to_elements, .result = top_binade_special},
    {.about = overflow, .sentence = "an exponent beyond the largest number's gives Inf, or NaN where there is none; below it values are held back", .applies = to_elements, .result = next_binade_special},
    {.about = overflow, .sentence = "overflow is seen before rounding: what would round to the largest number becomes Inf, or NaN where there is none", .applies = to_elements, .result = overflow_before_rounding},
    {.about = zero_sign, .sentence = "a negative zero becomes NaN: this format has no -0, and its code is NaN's", .applies = without_negative_zero, .result = negative_zero_is_nan},
    {.about = specials, .sentence = "an Inf or NaN makes its whole block NaN", .applies = to_blocks, .settings = with_specials<block_specials::block_nan>},
    {.about = specials, .sentence = "Inf and NaN pass through their block", .applies = to_blocks, .settings = with_specials<block_specials::pass_through>},
    {.about = specials, .sentence = "an Inf is kept and zeroes its block", .applies = to_blocks, .settings = with_specials<block_specials::nan_only>},
    {.about = specials, .sentence = "NaN becomes zero", .result = nan_to_zero},
    {.about = specials, .sentence = "NaN becomes Inf", .result = nan_to_infinity},
    {.about = specials, .sentence = "a NaN whose payload is cut off becomes Inf", .applies = has_infinities, .result = cut_nan_is_infinity},
    {.about = specials, .sentence = "NaN is rounded like a number: a payload that is cut off becomes Inf, and one of all ones carries into the sign", .applies = has_infinities, .result = nan_rounded},
    {.about = specials, .sentence = "NaN becomes the largest number", .applies = to_grids, .result = nan_to_largest},
    {.about = specials, .sentence = "Inf and NaN are converted as the largest float32", .input = largest_for_specials},
    {.about = specials, .sentence = "Inf becomes NaN", .result = infinity_to_nan},
    {.about = specials, .sentence = "Inf becomes the largest number", .applies = to_grids, .result = infinity_to_largest},
    {.about = specials, .sentence = "NaN becomes the lowest code", .applies = to_integers, .settings = with_nan<integer_special::lowest>},
    {.about = specials, .sentence = "NaN becomes the highest code", .applies = to_integers, .settings = with_nan<integer_special::highest>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics ocp", .applies = unless_semantics<0>, .settings = with_semantics<0>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics nvidia", .applies = unless_semantics<1>, .settings = with_semantics<1>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics quark", .applies = unless_semantics<2>, .settings = with_semantics<2>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics microxcaling", .applies = unless_semantics<3>, .settings = with_semantics<3>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics torchao", .applies = unless_semantics<4>, .settings = with_semantics<4>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics ml_dtypes", .applies = unless_semantics<5>, .settings = with_semantics<5>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics torch", .applies = unless_semantics<6>, .settings = with_semantics<6>},
    {.about = topic::semantics, .sentence = "it behaves as --semantics onnx", .applies = unless_semantics<7>, .settings = with_semantics<7>},

    {.about = integers, .sentence = "integer mode reciprocal: the quotient is taken the other way", .applies = unless_reciprocal, .settings = with_mode<integer_mode::reciprocal>},
    {.about = integers, .sentence = "integer mode division: the quotient is taken the other way", .applies = unless_division, .settings = with_mode<integer_mode::division>},
    {.about = integers, .sentence = "codes are held within the range before the zero point is added, and wrap behind it", .applies = with_zero_points, .element = [](rules& r) { r.range = rules::before_then_wrapped; }},
    {.about = integers, .sentence = "codes are held within the range before the zero point is added, too", .applies = with_zero_points, .element = [](rules& r) { r.range = rules::before_then_clamped; }},
    {.about = integers, .sentence = "the zero point is added on the other side of the rounding", .applies = with_zero_points, .settings = [](conversion& c, const problem&) { c.how.zero_point_before = !c.how.zero_point_before; }},
    {.about = integers, .sentence = "the zero point is ignored", .applies = with_zero_points, .settings = [](conversion& c, const problem&) { c.zero_point.clear(); }},
    {.about = integers, .sentence = "the zero point is left out when a value is converted", .applies = with_zero_points, .element = [](rules& r) { r.zero_point = rules::left_out; }},
    {.about = integers, .sentence = "the zero point is subtracted when a value is converted", .applies = with_zero_points, .element = [](rules& r) { r.zero_point = rules::negated; }},
    {.about = integers, .sentence = "the zero point is one too high: codes are off by one", .applies = to_integers, .element = [](rules& r) { r.zero_point = rules::one_more; }},
    {.about = integers, .sentence = "the zero point is one too low: codes are off by one", .applies = to_integers, .element = [](rules& r) { r.zero_point = rules::one_less; }},
    {.about = integers, .sentence = "each channel has the zero point of the channel before it", .applies = with_zero_point_of_channels, .element = [](rules& r) { r.zero_point_of = -1; }},
    {.about = integers, .sentence = "each channel has the zero point of the channel behind it", .applies = with_zero_point_of_channels, .element = [](rules& r) { r.zero_point_of = 1; }},
    {.about = scale, .sentence = "each channel is converted with the scale of the channel before it", .applies = with_scales_of_channels, .element = [](rules& r) { r.scale_of = -1; }},
    {.about = scale, .sentence = "each channel is converted with the scale of the channel behind it", .applies = with_scales_of_channels, .element = [](rules& r) { r.scale_of = 1; }},
    {.about = low_bit, .sentence = "the lowest code is not used", .applies = to_integers, .settings = [](conversion& c, const problem&) { std::get<integer>(c.format).narrow = true; }},

    {.about = scale, .sentence = "its scales follow the rule 'ceil'", .applies = unless_rule<scale_rule::ceil>, .settings = with_rule<scale_rule::ceil>},
    {.about = scale, .sentence = "its scales follow the rule 'floor'", .applies = unless_rule<scale_rule::floor>, .settings = with_rule<scale_rule::floor>},
    {.about = scale, .sentence = "its scales follow the rule 'rceil'", .applies = unless_rule<scale_rule::rceil>, .settings = with_rule<scale_rule::rceil>},
    {.about = scale, .sentence = "its scales follow the rule 'even'", .applies = unless_rule<scale_rule::even>, .settings = with_rule<scale_rule::even>},
    {.about = scale, .sentence = "bumped exponent: it is raised when an element rounds past the range", .applies = unless_bumped, .settings = with_bump},
    {.about = scale, .sentence = "the exponent is not bumped", .applies = if_bumped, .settings = with_bump},
    {.about = scale, .sentence = "the scale comes from a float32 logarithm, which is a power of two off beside powers of two: take the exponent bits", .applies = to_blocks, .scales = scales_by_logarithm},
    {.about = scale, .sentence = "every block's scale is a power of two too high", .applies = to_blocks, .scales = scales_off<1>},
    {.about = scale, .sentence = "every block's scale is a power of two too low", .applies = to_blocks, .scales = scales_off<-1>},
    {.about = scale, .sentence = "every block's scale is a power of two too high, before it is held within its range", .applies = to_shared_exponents, .scales = scales_off_before_range<1>},
    {.about = scale, .sentence = "every block's scale is a power of two too low, before it is held within its range", .applies = to_shared_exponents, .scales = scales_off_before_range<-1>},
    {.about = scale, .sentence = "the exponents of a block are ORed where the largest was asked for", .applies = to_blocks, .scales = scales_of_ored_exponents},
    {.about = scale, .sentence = "the block's scale is the power of two nearest, by its logarithm, to the largest value over the largest element", .applies = to_scaled_blocks, .scales = scales_nearest},
    {.about = scale, .sentence = "the least scale is read as NaN", .applies = to_shared_exponents, .scales = scales_read_as_nan<true>},
    {.about = scale, .sentence = "the largest scale is read as NaN", .applies = to_shared_exponents, .scales = scales_read_as_nan<false>},
    {.about = scale, .sentence = "the least scale is read as 0", .applies = to_shared_exponents, .scales = scales_read_as_zero},
    {.about = scale, .sentence = "the largest value is not cleared between blocks: that of all blocks so far counts", .applies = to_blocks, .scales = scales_not_cleared<false>},
    {.about = scale, .sentence = "the largest value is not cleared between the blocks of a row: that of all of them so far counts", .applies = to_blocks, .scales = scales_not_cleared<true>},
    {.about = scale, .sentence = "the largest value is cleared a block late: that of the block before counts, too", .applies = to_blocks, .scales = scales_cleared_late},
    {.about = scale, .sentence = "the block's scale is rounded up: a largest value that is no power of two takes the next one", .applies = to_other_blocks, .scales = scales_rounded_up},
    {.about = scale, .sentence = "the block's largest value is looked for among the positive ones alone", .applies = to_blocks, .scales = scales_of_positive},
    {.about = scale, .sentence = "the block's last value is left out when its largest is looked for", .applies = to_blocks, .scales = scales_without_last},
    {.about = scale, .sentence = "the block's first value is left out when its largest is looked for", .applies = to_blocks, .scales = scales_without_first},
    {.about = scale, .sentence = "the block's largest value is looked for one value too late: the first is left out, and the first of the next block counts", .applies = to_blocks, .scales = scales_of_window<true>},
    {.about = scale, .sentence = "the block's largest value is looked for one value too early: the last is left out, and the last of the block before counts", .applies = to_blocks, .scales = scales_of_window<false>},
    {.about = scale, .sentence = "the block's largest value is looked for in its first half alone", .applies = to_blocks, .scales = scales_of_first_half},
    {.about = scale, .sentence = "the block's largest value is looked for in its second half alone", .applies = to_blocks, .scales = scales_of_second_half},
    {.about = scale, .sentence = "the block's largest value is looked for at even positions alone", .applies = to_blocks, .scales = scales_of_every_other<0>},
    {.about = scale, .sentence = "the block's largest value is looked for at odd positions alone", .applies = to_blocks, .scales = scales_of_every_other<1>},
    {.about = scale, .sentence = "the block's scale is taken from values that were rounded to bfloat16", .applies = to_blocks, .scales = scales_from_bfloat16},
    {.about = scale, .sentence = "one value of every block is left out when its largest is looked for: the one at position #", .applies = to_blocks, .scales = scales_without_one, .asked = position_left_out},
    {.about = scale, .sentence = "the block's scale is rounded up to a number of its format", .applies = to_nvfloats, .scales = nvfloat_scales_rounded<qk::rounding::up>},
    {.about = scale, .sentence = "the block's scale is truncated to a number of its format", .applies = to_nvfloats, .scales = nvfloat_scales_rounded<qk::rounding::toward_zero>},
    {.about = scale, .sentence = "the block's scale is rounded half-away to a number of its format", .applies = to_nvfloats, .scales = nvfloat_scales_rounded<qk::rounding::half_away>},
    {.about = scale, .sentence = "the subnormal scales of blocks are flushed to 0", .applies = to_nvfloats, .scales = nvfloat_scales_twice<0>},
    {.about = scale, .sentence = "each block has the scale of the block before it", .applies = to_blocks, .scales = scales_of_neighbour<false>},
    {.about = scale, .sentence = "each block has the scale of the block behind it", .applies = to_blocks, .scales = scales_of_neighbour<true>},
    {.about = scale, .sentence = "the tensor scale is left out", .applies = to_nvfloats, .settings = with_unit_tensor_scale},
    {.about = bias, .sentence = "every value is off by a factor of 2: the bias of the scale is wrong", .result = times<1>},
    {.about = bias, .sentence = "every value is off by a factor of 0.5: the bias of the scale is wrong", .result = times<-1>},
    {.about = bias, .sentence = "every value is off by a factor of 4: the bias of the scale is wrong", .result = times<2>},
    {.about = bias, .sentence = "every value is off by a factor of 0.25: the bias of the scale is wrong", .result = times<-2>},
    {.about = blocks, .sentence = "its blocks run over the ends of rows: values follow one another as if all rows were one", .applies = with_cut_rows, .settings = with_rows_joined},
    {.about = blocks, .sentence = "its blocks run along axis 0, not #", .applies = unless_axis<0>, .settings = with_axis<0>, .asked = axis_asked},
    {.about = blocks, .sentence = "its blocks run along axis 1, not #", .applies = unless_axis<1>, .settings = with_axis<1>, .asked = axis_asked},
    {.about = blocks, .sentence = "its blocks run along axis 2, not #", .applies = unless_axis<2>, .settings = with_axis<2>, .asked = axis_asked},
    {.about = blocks, .sentence = "its blocks run along axis 3, not #", .applies = unless_axis<3>, .settings = with_axis<3>, .asked = axis_asked},
    {.about = blocks, .sentence = "its blocks have 8 values, not #", .applies = unless_size<8>, .settings = with_size<8>, .asked = size_asked},
    {.about = blocks, .sentence = "its blocks have 16 values, not #", .applies = unless_size<16>, .settings = with_size<16>, .asked = size_asked},
    {.about = blocks, .sentence = "its blocks have 32 values, not #", .applies = unless_size<32>, .settings = with_size<32>, .asked = size_asked},
    {.about = blocks, .sentence = "its blocks have 64 values, not #", .applies = unless_size<64>, .settings = with_size<64>, .asked = size_asked},
    {.about = blocks, .sentence = "its blocks have 128 values, not #", .applies = unless_size<128>, .settings = with_size<128>, .asked = size_asked},
    {.about = lanes, .sentence = "two values of every block are swapped: those at positions #", .applies = with_swapped_lanes, .arrange = two_lanes_swapped, .asked = swapped_lanes},
    {.about = lanes, .sentence = "a value of every block comes out twice: position #", .applies = with_doubled_lane, .arrange = one_lane_doubled, .asked = doubled_lane},
    {.about = lanes, .sentence = "the values of every block are rotated: each position has the value of the one # places on", .applies = with_turned_lanes, .arrange = lanes_rotated, .asked = turned_lanes},
    {.about = lanes, .sentence = "neighbouring values are swapped, in every pair of every block", .applies = with_lanes, .arrange = neighbours_swapped},
    {.about = lanes, .sentence = "the values of every block are in reversed order", .applies = with_lanes, .arrange = lanes_reversed},
    {.about = lanes, .sentence = "the values of every block are shifted by one place: each comes out one later, and the first is zero", .applies = with_lanes, .arrange = lanes_shifted<true>},
    {.about = lanes, .sentence = "the values of every block are shifted by one place: each comes out one earlier, and the last is zero", .applies = with_lanes, .arrange = lanes_shifted<false>},
    {.about = lanes, .sentence = "values come out one place late", .arrange = values_shifted<true>},
    {.about = lanes, .sentence = "values come out one place early", .arrange = values_shifted<false>},
    {.about = result, .sentence = "values pass through unconverted", .result = unconverted},
    {.about = result, .sentence = "every output is #, whatever the input", .applies = is_constant, .result = constant, .asked = constant_text},
    {.about = result, .sentence = "the result is zero", .result = zero},
    {.about = result, .sentence = "the sign is lost", .result = signless},
    {.about = result, .sentence = "the sign is inverted", .result = negated},
};

/// Rows that differ in a number alone.
template <int Bits>
constexpr mistake rounds_from = {.about = sticky, .sentence = "sticky bits dropped: it rounds from # bits behind the mantissa, and takes what lies just above a tie for a tie", .applies = to_grids, .element = [](rules& r) { r.guard_bits = Bits; }, .asked = number<Bits>};
template <int Bits>
constexpr mistake rounds_twice = {.about = double_rounding, .sentence = "double rounding: elements are rounded to # more mantissa bits first", .applies = to_grids, .element = [](rules& r) { r.first_bits = Bits; }, .asked = number<Bits>};
template <int Bits>
constexpr mistake values_first = {.about = double_rounding, .sentence = "double rounding: values are rounded to # mantissa bits first", .input = with_mantissa<Bits>, .asked = number<Bits>};
template <int Bit>
constexpr mistake stuck_at_0 = {.about = stuck, .sentence = "bit # of the code is stuck at 0", .applies = with_code_bit<Bit>, .result = stuck_bit<Bit, false>, .asked = number<Bit>};
template <int Bit>
constexpr mistake stuck_at_1 = {.about = stuck, .sentence = "bit # of the code is stuck at 1", .applies = with_code_bit<Bit>, .result = stuck_bit<Bit, true>, .asked = number<Bit>};
template <int Bit>
constexpr mistake scale_stuck_at_0 = {.about = scale, .sentence = "bit # of the scale's code is stuck at 0", .applies = with_scale_bit<Bit>, .scales = scales_with_stuck_bit<Bit, false>, .asked = number<Bit>};
template <int Bit>
constexpr mistake scale_stuck_at_1 = {.about = scale, .sentence = "bit # of the scale's code is stuck at 1", .applies = with_scale_bit<Bit>, .scales = scales_with_stuck_bit<Bit, true>, .asked = number<Bit>};

template <int Bits>
constexpr mistake by_reciprocal = {.about = scale, .sentence = "the quotient is a product with a reciprocal of # significant bits", .applies = has_divided_scales, .element = [](rules& r) { r.reciprocal_bits = Bits; }, .asked = number<Bits>};
template <int Bits>
constexpr mistake by_short_scale = {.about = scale, .sentence = "values are divided by a scale of # significant bits", .applies = has_divided_scales, .element = [](rules& r) { r.divisor_bits = Bits; }, .asked = number<Bits>};
template <int Bits>
constexpr mistake scale_rounded_twice = {.about = scale, .sentence = "the block's scale is rounded twice: to # mantissa bits first", .applies = to_nvfloats, .scales = nvfloat_scales_twice<Bits>, .asked = number<Bits>};
template <int Bits, bool Wraps>
constexpr mistake short_exponent = {.about = scale, .sentence = Wraps ? "the shared exponent has # bits: it wraps" : "the shared exponent has # bits: it is held within them", .applies = to_shared_exponents, .scales = scales_of_few_bits<Bits, Wraps>, .asked = number<Bits>};

template <int... N>
void add_numbered(std::vector<mistake>& all, std::integer_sequence<int, N...>) {
    (all.insert(all.end(), {rounds_from<N + 5>, stuck_at_0<N>, stuck_at_1<N>, scale_stuck_at_0<N>, scale_stuck_at_1<N>}), ...);
}
std::vector<mistake> every_mistake() {
    std::vector<mistake> all(std::begin(table), std::end(table));
    add_numbered(all, std::make_integer_sequence<int, 8>());
    all.insert(all.end(), {rounds_twice<1>, rounds_twice<2>, rounds_twice<3>, rounds_twice<4>, rounds_twice<5>, rounds_twice<6>, rounds_twice<7>, rounds_twice<8>, rounds_twice<9>, values_first<10>, values_first<13>});
    all.insert(all.end(), {by_reciprocal<8>, by_reciprocal<9>, by_reciprocal<10>, by_reciprocal<11>, by_reciprocal<12>, by_reciprocal<13>, by_reciprocal<14>, by_reciprocal<15>, by_reciprocal<16>, by_reciprocal<17>, by_reciprocal<18>, by_reciprocal<20>});
    all.insert(all.end(), {by_short_scale<8>, by_short_scale<10>, by_short_scale<11>, by_short_scale<12>, by_short_scale<16>});
    all.insert(all.end(), {scale_rounded_twice<4>, scale_rounded_twice<5>, scale_rounded_twice<6>, scale_rounded_twice<7>, scale_rounded_twice<8>, scale_rounded_twice<10>});
    all.insert(all.end(), {short_exponent<7, false>, short_exponent<6, false>, short_exponent<5, false>, short_exponent<7, true>, short_exponent<6, true>, short_exponent<5, true>});
    all.push_back({.about = topic::rounding, .sentence = "the bytes of its random words come in reverse order", .applies = rounds_stochastically, .settings = with_turned_bytes});
    return all;
}

}  // namespace

std::span<const mistake> known_mistakes() {
    static const std::vector<mistake> all = every_mistake();
    return all;
}

}  // namespace qk::compare
