// SPDX-License-Identifier: Apache-2.0
// The emitted C equals the oracle on every word of 16 bits: every element format and rounding of the catalogue, and with QK_TEST_WHOLE
// every semantics and overflow rule, too, and six formats on every word of 32 bits. One file has all functions, and one compiler run makes
// them a library; clang reads the same file.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "circuit.hpp"
#include "elements.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference.hpp"
#include "qk/reference/codes.hpp"

namespace {

using namespace qk;
using one_word = std::uint32_t (*)(std::uint32_t);
using two_words = std::uint32_t (*)(std::uint32_t, std::uint32_t);

bool is_element(const format& f) { return !is_block_format(f); }
bool whole() { return std::getenv("QK_TEST_WHOLE") != nullptr; }

std::uint32_t expected_code(const emit::converter& c, std::uint32_t x, std::uint32_t random) {
    semantics how = c.how;
    const std::uint32_t random_word = is_stochastic(how.rounding) ? random << (32 - how.stochastic_bits) : 0;
    how.random_words = &random_word;
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

/// Functions as one library.
class library {
  public:
    explicit library(std::string name) : name_(std::move(name)) {}
    void add(const std::string& text) { text_ += text; }
    void make() {
        const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("qk_emit_" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        const std::string c = (folder / (name_ + ".c")).string(), so = (folder / (name_ + ".so")).string();
        std::ofstream(c) << "#include <stdint.h>\n" << text_;
        for (const char* compiler : {"cc -O1 -shared -fPIC -o ", "clang -fsyntax-only -o "}) {
            const std::string command = std::string(compiler) + so + " -std=c99 -Wall -Wextra -Wpedantic -Werror -Wconversion " + c;
            if (std::string(compiler).starts_with("clang") && std::system("command -v clang > /dev/null") != 0) continue;
            REQUIRE_MESSAGE(std::system(command.c_str()) == 0, command);
        }
        handle_ = dlopen(so.c_str(), RTLD_NOW);
        REQUIRE_MESSAGE(handle_ != nullptr, dlerror());
        std::filesystem::remove_all(folder);
    }
    void* find(const std::string& function) const { return dlsym(handle_, function.c_str()); }

  private:
    std::string name_, text_;
    void* handle_ = nullptr;
};

struct named_converter {
    emit::converter what;
    std::string words;  ///< for failures
};

/// Every choice that changes a converter to an element format.
std::vector<named_converter> converters(const named_format& f, const floating& input) {
    std::vector<named_converter> all;
    for (const auto& s : semantics_names) {
        for (const auto& r : rounding_names) {
            if (!whole() && s.name != "ocp") continue;
            for (const overflow_rule o : {s.value.overflow, overflow_rule::saturate, overflow_rule::ieee, overflow_rule::propagate}) {
                if (!whole() && o != s.value.overflow && r.value != rounding::half_even) continue;
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
        for (std::uint64_t k = 0; k < std::uint64_t{1} << 32; k += whole() ? 1 : 40009) {
            const auto x = static_cast<std::uint32_t>(k);
            const std::uint32_t code = f(x), right = expected_code(d, x, 0);
            if (code != right) {
                FAIL_CHECK(d.name << ": word " << std::hex << x << " gives " << code << ", right is " << right);
                break;
            }
        }
    }
}
