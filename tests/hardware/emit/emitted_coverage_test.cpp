// SPDX-License-Identifier: Apache-2.0
// Emitted coverage counts what `qk cover` counts: for converters and decoders of elements every bin has the same hits, over the whole
// stream of level 1 and over each seventh word of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "coverage.hpp"
#include "emitted_library.hpp"
#include "qk/compare/bins.hpp"
#include "qk/compare/cases.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/parse.hpp"

namespace {

using namespace qk;
using test::library;

compare::conversion conversion_of(const emit::converter& c) {
    compare::conversion one;
    one.format = c.format, one.how = c.how, one.blocks = {1, 1, 1};
    if (is_integer_format(c.format)) {
        one.given = compare::conversion::granularity::tensor;
        one.scale = {std::ldexp(1.0f, c.scale_exponent)};
        one.zero_point = {c.zero_point};
    }
    return one;
}

/// Every element format of 8 bits and fewer, and some choices that change what is counted.
std::vector<emit::converter> converters() {
    std::vector<emit::converter> all;
    const auto add = [&](emit::converter c) {
        c.name = "f" + std::to_string(all.size());
        all.push_back(c);
    };
    for (const named_format& f : catalogue) {
        if (is_block_format(f.format) || (bits_per_value(f.format) > 8 && f.name != "fp16" && f.name != "bf16" && f.name != "fp32"))
            continue;
        add({.format = f.format, .how = {}, .name = {}});
        if (bits_per_value(f.format) > 8) continue;
        add({.format = f.format, .how = {}, .name = {}, .input = fp16});
        add({.format = f.format, .how = {}, .name = {}, .input = bf16});
    }
    for (const auto& [name, rounding] : {std::pair{"fp8_e5m2", rounding::stochastic}, std::pair{"fp8_e4m3fn", rounding::up}}) {
        emit::converter c{.format = find_format(name)->format, .how = {}, .name = {}};
        c.how.rounding = rounding, c.how.overflow = overflow_rule::propagate, c.how.flush_outputs = true;
        add(c);
    }
    emit::converter scaled{.format = int8, .how = {}, .name = {}};
    scaled.scale_exponent = -4, scaled.zero_point = 3;
    add(scaled);
    scaled.format = uint8, scaled.scale_exponent = -20, scaled.zero_point = 0;
    add(scaled);
    return all;
}

/// Compares the counters of a library with the bins that a stream hit.
void check_hits(const library& c, const emit::converter& what, const std::vector<compare::bin>& bins, const char* stream) {
    auto* hits = static_cast<std::uint64_t*>(c.find(what.name + "_hits"));
    REQUIRE(hits != nullptr);
    std::vector<compare::bin> sorted(bins.begin(), bins.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return emit::key_of(a) < emit::key_of(b); });
    for (std::size_t k = 0; k < sorted.size(); ++k) {
        if (hits[k] != sorted[k].hits)
            FAIL_CHECK(std::string(to_text(what.format).view())
                       << (what.decode ? " decoder" : "") << " from " << bits(what.input) << " bits, " << stream << ": "
                       << name_of(sorted[k]) << " is hit " << hits[k] << " times, right is " << sorted[k].hits);
        hits[k] = 0;
    }
}

std::string text_of(const emit::converter& what, const std::vector<compare::bin>& bins) {
    emit::file_request r{.what = what, .form = emit::form::coverage};
    for (const compare::bin& b : bins) r.bins.push_back({b, name_of(b), compare::name_of(b.kind)});
    return "#define " + what.name + "_WITHOUT_MAIN\n" + emit::coverage_in_c(r);
}

}  // namespace

TEST_CASE("emitted coverage of converters has the hits of qk cover") {
    library c("coverage");
    const std::vector<emit::converter> all = converters();
    for (const emit::converter& what : all) c.add(text_of(what, compare::converter_bins(conversion_of(what), what.input).bins()));
    c.make();
    std::size_t counted = 0;
    for (const emit::converter& what : all) {
        const auto sample = reinterpret_cast<void (*)(std::uint32_t)>(c.find(what.name + "_sample"));
        REQUIRE(c.find(what.name + "_sample") != nullptr);
        const compare::conversion one = conversion_of(what);
        const std::vector<float> values = compare::converter_cases(one, 0);
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
            compare::converter_bins bins(one, what.input);
            std::vector<float> asked;
            for (std::size_t k = 0; k < values.size(); k += step) asked.push_back(compare::as_input(what.input, values[k]));
            bins.add(asked);
            for (const float x : asked) sample(compare::input_word(what.input, x));
            const auto hit = std::count_if(bins.bins().begin(), bins.bins().end(), [](const auto& b) { return b.hits != 0; });
            REQUIRE(hit > 0);
            if (step == 1) CHECK(static_cast<std::size_t>(hit) == bins.bins().size());
            check_hits(c, what, bins.bins(), step == 1 ? "the whole stream" : "each seventh word");
            counted += bins.bins().size();
        }
    }
    MESSAGE(counted << " counters of " << all.size() << " converters");
}

TEST_CASE("emitted coverage of decoders has the hits of qk cover") {
    library c("decoder_coverage");
    std::vector<emit::converter> all;
    for (const named_format& f : catalogue) {
        if (is_block_format(f.format)) continue;
        emit::converter d{.format = f.format, .how = {}, .name = "d" + std::to_string(all.size()), .decode = true};
        all.push_back(d);
        c.add(text_of(d, compare::decoder_bins(conversion_of(d)).bins()));
    }
    c.make();
    for (const emit::converter& what : all) {
        const auto sample = reinterpret_cast<void (*)(std::uint32_t)>(c.find(what.name + "_sample"));
        const compare::coded_values codes = compare::decoder_corners(conversion_of(what));
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
            compare::decoder_bins bins(conversion_of(what));
            compare::coded_values asked;
            for (std::size_t k = 0; k < codes.elements.size(); k += step) asked.elements.push_back(codes.elements[k]);
            bins.add(asked);
            for (const std::uint32_t code : asked.elements) sample(code);
            check_hits(c, what, bins.bins(), step == 1 ? "the whole stream" : "each seventh code");
        }
    }
}
