// SPDX-License-Identifier: Apache-2.0
// The emitted C equals the oracle on every word of 16 bits: every element format and rounding of the catalogue, and with QK_TEST_WHOLE
// every semantics and overflow rule, too, and six formats on every word of 32 bits. One file has all functions, and one compiler run makes
// them a library; clang reads the same file.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "circuit.hpp"
#include "elements.hpp"
#include "emitted_library.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference.hpp"
#include "qk/reference/codes.hpp"

namespace {

using namespace qk;
using test::library;
using one_word = std::uint32_t (*)(std::uint32_t);
using two_words = std::uint32_t (*)(std::uint32_t, std::uint32_t);

bool is_element(const format& f) { return !is_block_format(f); }

std::uint32_t expected_code(const emit::converter& c, std::uint32_t x, std::uint32_t random) {
    semantics how = c.how;
    const std::uint32_t random_word = is_stochastic(how.rounding) ? random << (32 - how.stochastic_bits) : 0;
    how.random_words = std::span(&random_word, 1);
    const float v = reference::value_of(c.input, x);
    std::uint32_t code = 0;
    const affine scale{std::ldexp(1.0f, c.scale_exponent), c.zero_point};
    reference::encode(c.format, std::span(&v, 1), {.elements = {&code, 1}, .blocks = {}, .shifts = {}}, {}, scale, how);
    return code;
}
std::uint32_t expected_word(const emit::converter& c, std::uint32_t code) {
    float v = 0;
    reference::decode(c.format, {.elements = {&code, 1}, .blocks = {}, .shifts = {}}, std::span(&v, 1), {},
                      {std::ldexp(1.0f, c.scale_exponent), c.zero_point});
    return v != v && !is_identity(c.format) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(v);
}

struct named_converter {
    emit::converter what;
    std::string words;  ///< for failures
};

/// Every choice that changes a converter to an element format.
std::vector<named_converter> converters(const named_format& f, const floating& input) {
    std::vector<named_converter> all;
    for (const auto& s : semantics_names) {
        for (const auto& r : rounding_names) {
            if (!test::whole() && s.name != "ocp") continue;
            for (const overflow_rule o : {s.value.overflow, overflow_rule::saturate, overflow_rule::ieee, overflow_rule::propagate}) {
                if (!test::whole() && o != s.value.overflow && r.value != rounding::half_even) continue;
                for (const int more : {0, 1, 2, 3}) {
                    emit::converter c{.format = f.format, .how = s.value, .name = std::string(f.name), .input = input};
                    c.how.rounding = r.value;
                    c.how.overflow = o;
                    c.how.flush_inputs = more == 1;
                    c.how.flush_outputs = more == 2;
                    if (is_stochastic(r.value)) c.how.stochastic_bits = more == 3 ? 5 : bits_per_value(f.format) > 31 ? 30 : 32;
                    const integer* g = std::get_if<integer>(&f.format);
                    if (g != nullptr && more == 3) {
                        c.scale_exponent = -3;
                        c.zero_point = (qmax(*g) + 1) / 2 - 1;
                    }
                    if (g == nullptr && more == 3 && !is_stochastic(r.value)) continue;
                    all.push_back({c, std::string(f.name) + " from " + std::to_string(bits(input)) + " bits, semantics " +
                                          std::string(s.name) + ", rounding " + std::string(r.name) + ", overflow " +
                                          std::to_string(static_cast<int>(o)) + ", variant " + std::to_string(more)});
                }
            }
        }
    }
    return all;
}

bool sayable(const named_converter& c) {
    const table* t = std::get_if<table>(&c.what.format);
    const floating* f = std::get_if<floating>(&c.what.format);
    if (t != nullptr && (is_stochastic(c.what.how.rounding) || (!has_nan(*t) && c.what.how.nan_without_code == nan_rule::nan)))
        return false;
    return f == nullptr || encodable(*f, c.what.how);
}

}  // namespace

TEST_CASE("the emitted C equals the oracle on every word of 16 bits") {
    struct made {
        named_converter c;
        std::string function;
    };
    std::vector<made> all;
    library c("converters");
    std::set<std::string> seen;
    for (const named_format& f : catalogue) {
        if (!is_element(f.format)) continue;
        for (const floating& input : {fp16, bf16}) {
            for (named_converter& n : converters(f, input)) {
                if (!sayable(n)) continue;
                n.what.name = "f";
                const std::vector<emit::function> functions = emit::functions_of(n.what);
                REQUIRE(functions.size() == 1);
                if (!seen.insert(std::string(f.name) + std::to_string(input.mantissa_bits) + emit::in_c(functions[0])).second) continue;
                n.what.name = "f" + std::to_string(all.size());
                c.add(emit::in_c(emit::functions_of(n.what)[0]));
                all.push_back({n, n.what.name + "_encode"});
            }
        }
    }
    c.make();
    MESSAGE(all.size() << " functions");
    for (const made& m : all) {
        const emit::converter& what = m.c.what;
        void* f = c.find(m.function);
        REQUIRE(f != nullptr);
        for (std::uint32_t x = 0; x < 0x10000; ++x) {
            const std::uint32_t random = mix_bits(x) >> (32 - what.how.stochastic_bits);
            const bool chance = is_stochastic(what.how.rounding) && !is_identity(what.format);
            const std::uint32_t code = chance ? reinterpret_cast<two_words>(f)(x, random) : reinterpret_cast<one_word>(f)(x);
            const std::uint32_t right = expected_code(what, x, random);
            if (code != right) {
                FAIL_CHECK(m.c.words << ": word " << std::hex << x << " gives " << code << ", right is " << right << ", random " << random
                                     << ", " << m.function);
                break;
            }
        }
    }
}

TEST_CASE("the emitted decoders equal the oracle on every code") {
    library c("decoders");
    std::vector<emit::converter> all;
    for (const named_format& f : catalogue) {
        if (!is_element(f.format)) continue;
        for (const int more : {0, 1}) {
            const integer* g = std::get_if<integer>(&f.format);
            if (g == nullptr && more == 1) continue;
            emit::converter d{.format = f.format, .how = {}, .name = "f" + std::to_string(all.size()), .decode = true};
            if (more == 1) d.scale_exponent = -7, d.zero_point = qmax(*g) / 3;
            c.add(emit::in_c(emit::functions_of(d)[0]));
            all.push_back(d);
        }
    }
    c.make();
    for (const emit::converter& d : all) {
        const auto f = reinterpret_cast<one_word>(c.find(d.name + "_decode"));
        const int width = static_cast<int>(bits_per_value(d.format));
        for (std::uint64_t k = 0; k < std::uint64_t{1} << std::min(width, 16); ++k) {
            const auto code = static_cast<std::uint32_t>(width <= 16 ? k : random_bits(1, k) >> (random_bits(2, k) % 32));
            INFO(std::string(to_text(d.format).view()), ", code ", code);
            REQUIRE(f(code) == expected_word(d, code));
        }
    }
}

namespace {

/// Returns values of many magnitudes around 2^middle, of which some are zero, tiny or of all bits.
std::vector<float> block_values(std::uint64_t seed, std::size_t n, int middle) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t r = random_bits(seed, i), more = random_bits(seed + 1, i);
        const float fraction = std::bit_cast<float>(0x3f800000u | (r & (more % 3 == 0 ? 0x700000u : 0x7fffffu)));
        x[i] = more % 11 == 0 ? 0.0f : std::ldexp((r >> 31) != 0 ? -fraction : fraction, middle - static_cast<int>(more >> 8 & 15));
    }
    if (seed % 13 == 0) x[seed % n] = std::bit_cast<float>(seed % 2 == 0 ? 0x7f800001u : 0xff800000u);
    return x;
}
std::uint32_t magnitude_of(std::span<const float> x) {
    std::uint32_t most = 0;
    for (const float v : x) most = std::max(most, std::bit_cast<std::uint32_t>(v) & 0x7fffffffu);
    return most;
}

}  // namespace

TEST_CASE("scales, elements and decoders of blocks equal the oracle") {
    struct made {
        std::string name;
        emit::converter what;
    };
    library c("blocks");
    std::vector<made> all;
    for (const named_format& f : catalogue) {
        if (!is_block_format(f.format) || has_floating_scales(f.format)) continue;
        for (const auto& r : rounding_names) {
            for (const auto& k : scale_rule_names) {
                if (is_searched(k.value) ||
                    (k.value != scale_rule::floor && (!has_scale_rule(f.format, k.value) || r.value != rounding::half_even)))
                    continue;
                emit::converter d;
                d.format = f.format;
                d.how.rounding = r.value;
                d.how.scale_rule = k.value;
                d.how.stochastic_bits = 24;
                d.name = "f" + std::to_string(all.size());
                for (const bool decode : {false, true}) {
                    d.decode = decode;
                    for (const emit::function& g : emit::functions_of(d)) c.add(emit::in_c(g));
                }
                all.push_back({std::string(f.name) + ", rounding " + std::string(r.name) + ", scale rule " + std::string(k.name), d});
            }
        }
    }
    c.make();
    REQUIRE(all.size() > 100);
    using three_words = std::uint32_t (*)(std::uint32_t, std::uint32_t, std::uint32_t);
    using four_words = std::uint32_t (*)(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t);
    for (const made& m : all) {
        const auto size = static_cast<std::size_t>(block_size(m.what.format));
        const auto* micro = std::get_if<microexponent>(&m.what.format);
        const std::size_t pair = micro == nullptr ? size : static_cast<std::size_t>(micro->sub_block_size);
        const bool chance = is_stochastic(m.what.how.rounding);
        void *scale = c.find(m.what.name + "_scale"), *shift = c.find(m.what.name + "_shift"), *element = c.find(m.what.name + "_element"),
             *decode = c.find(m.what.name + "_decode");
        std::size_t wrong = 0;
        for (std::uint64_t seed = 0; seed < 600 && wrong == 0; ++seed) {
            const std::vector<float> x = block_values(
                seed, size, static_cast<int>(seed) % 2 == 0 ? static_cast<int>(seed * 7 % 280) - 150 : static_cast<int>(seed % 9));
            std::vector<std::uint32_t> codes(size), shifts(size / pair), random(size), scales(1);
            for (std::size_t i = 0; i < size; ++i) random[i] = random_bits(seed + 2, i);
            semantics how = m.what.how;
            how.random_words = random;
            reference::encode(m.what.format, x, {codes, scales, shifts}, {}, {1, 0}, how);
            std::vector<float> y(size);
            reference::decode(m.what.format, {codes, scales, shifts}, y, {}, {1, 0});
            wrong += reinterpret_cast<one_word>(scale)(magnitude_of(x)) != scales[0];
            for (std::size_t i = 0; i < size; ++i) {
                const std::uint32_t v = std::bit_cast<std::uint32_t>(x[i]), s = shifts[i / pair], r = random[i] >> 8;
                if (micro != nullptr)
                    wrong += reinterpret_cast<two_words>(shift)(magnitude_of(std::span(x).subspan(i / pair * pair, pair)), scales[0]) != s;
                const std::uint32_t code = micro != nullptr ? (chance ? reinterpret_cast<four_words>(element)(v, scales[0], s, r)
                                                                      : reinterpret_cast<three_words>(element)(v, scales[0], s))
                                           : chance         ? reinterpret_cast<three_words>(element)(v, scales[0], r)
                                                            : reinterpret_cast<two_words>(element)(v, scales[0]);
                wrong += code != codes[i];
                const std::uint32_t word = micro != nullptr ? reinterpret_cast<three_words>(decode)(codes[i], scales[0], s)
                                                            : reinterpret_cast<two_words>(decode)(codes[i], scales[0]);
                wrong += word != (std::isnan(y[i]) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(y[i]));
            }
            if (wrong != 0)
                FAIL_CHECK(m.name << ": block " << seed << " has " << wrong << " wrong results; the scale is " << std::hex << scales[0]);
        }
    }
}

TEST_CASE("six formats on every float32") {
    library c("floats");
    std::vector<emit::converter> all;
    for (const char* name : {"fp16", "bf16", "fp8_e4m3fn", "fp8_e5m2", "fp4_e2m1", "int8"}) {
        emit::converter d{.format = find_format(name)->format, .how = {}, .name = name};
        c.add(emit::in_c(emit::functions_of(d)[0]));
        all.push_back(d);
    }
    c.make();
    for (const emit::converter& d : all) {
        const auto f = reinterpret_cast<one_word>(c.find(d.name + "_encode"));
        for (std::uint64_t k = 0; k < std::uint64_t{1} << 32; k += test::whole() ? 1 : 40009) {
            const auto x = static_cast<std::uint32_t>(k);
            const std::uint32_t code = f(x), right = expected_code(d, x, 0);
            if (code != right) {
                FAIL_CHECK(d.name << ": word " << std::hex << x << " gives " << code << ", right is " << right);
                break;
            }
        }
    }
}
