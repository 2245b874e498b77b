// SPDX-License-Identifier: Apache-2.0
// Emitted coverage counts what `qk cover` counts: for converters, decoders, and units that add every bin has the same hits, over the whole
// stream of level 1 and over each seventh line of it; with QK_TEST_WHOLE every device of the catalogue.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cases.hpp"
#include "coverage.hpp"
#include "dot.hpp"
#include "emitted_library.hpp"
#include "qk/compare/bins.hpp"
#include "qk/compare/cases.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/parse.hpp"

namespace {

using namespace qk;
using test::library;

compare::conversion conversion_of(const emit::converter& c) {
    compare::conversion one;
    one.format = c.format, one.how = c.how;
    one.blocks = {1, static_cast<std::size_t>(std::max(1, block_size(c.format))), 1};
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
void check_hits(const library& c, const std::string& name, const std::string& what, const std::vector<compare::bin>& bins,
                std::size_t step) {
    auto* hits = static_cast<std::uint64_t*>(c.find(name + "_hits"));
    REQUIRE(hits != nullptr);
    std::vector<compare::bin> sorted(bins.begin(), bins.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return emit::key_of(a) < emit::key_of(b); });
    for (std::size_t k = 0; k < sorted.size(); ++k) {
        if (hits[k] != sorted[k].hits)
            FAIL_CHECK(what << (step == 1 ? ", the whole stream: " : ", each seventh line: ") << name_of(sorted[k]) << " is hit " << hits[k]
                            << " times, right is " << sorted[k].hits);
        hits[k] = 0;
    }
}

std::string text_of(const emit::unit& what, const std::vector<compare::bin>& bins) {
    emit::file_request r;
    r.what = what, r.form = emit::form::coverage;
    for (const compare::bin& b : bins) r.bins.push_back({b, name_of(b), compare::name_of(b.kind)});
    return "#define " + emit::name_of(what) + "_WITHOUT_MAIN\n" + emit::coverage_in_c(r);
}
std::string described(const emit::converter& what) {
    return std::string(to_text(what.format).view()) + (what.decode ? " decoder" : " from " + std::to_string(bits(what.input)) + " bits");
}

using sampled_line = void (*)(const std::uint64_t*);

std::uint64_t low_bits(int width) { return width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1; }

/// Holds the counters of a unit that adds against those of dot_bins, over its corners and questions of random codes.
void hold(const emit::multiplier& m) {
    const std::string what = std::string(to_text(m.how).view()) + " of " + std::string(to_text(m.a).view());
    const int c_width = emit::addend_width(m.how), d_width = emit::result_width(m.how);
    const bool wholes = m.how.sum == summation::integer;
    const compare::dot_task task{.a = m.a,
                                 .b = m.b,
                                 .k = static_cast<std::size_t>(m.k),
                                 .c = m.how.addend,
                                 .has_c = m.has_c,
                                 .float_sum = !wholes,
                                 .d_bits = d_width};
    std::vector<compare::dot_case> lines;
    for (const compare::dot_case& c : compare::dot_corners(task, compare::kept_bits(m.how)))
        for (std::size_t q = 0; q < c.c.size(); ++q) lines.push_back(compare::question_of(c, q));
    std::mt19937_64 random(m.k);
    for (int n = 0; n < 300; ++n) {
        compare::dot_case q = lines[random() % lines.size()];
        for (auto* part : {&q.a, &q.b})
            for (std::uint64_t& code : *part) code = random() & low_bits(element_width(part == &q.a ? m.a : m.b));
        lines.push_back(q);
    }
    compare::dot_bins bins(task, m.how);
    library c(m.name + "_coverage");
    c.add(text_of(m, bins.bins()));
    c.make();
    REQUIRE(c.find(m.name + "_sample") != nullptr);
    const auto sample = reinterpret_cast<sampled_line>(c.find(m.name + "_sample"));
    for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
        bins = compare::dot_bins(task, m.how);
        for (std::size_t k = 0; k < lines.size(); k += step) {
            const compare::dot_case& q = lines[k];
            bins.add(q);
            std::vector<std::uint64_t> words;
            for (const auto* part : {&q.a, &q.scale_a, &q.b, &q.scale_b}) words.insert(words.end(), part->begin(), part->end());
            if (m.has_c) words.push_back(q.c.front() & (wholes || c_width < 64 ? low_bits(c_width) : ~std::uint64_t{0}));
            sample(words.data());
        }
        if (step == 1) CHECK(std::all_of(bins.bins().begin(), bins.bins().end(), [](const auto& b) { return b.hits != 0; }));
        check_hits(c, m.name, what, bins.bins(), step);
    }
    c.close();
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
            check_hits(c, what.name, described(what), bins.bins(), step);
            counted += bins.bins().size();
        }
    }
    MESSAGE(counted << " counters of " << all.size() << " converters");
}

TEST_CASE("emitted coverage of blocks has the hits of qk cover") {
    std::vector<emit::converter> all;
    const auto add = [&](emit::converter c) {
        c.name = "b" + std::to_string(all.size());
        all.push_back(c);
    };
    for (const named_format& f : catalogue) {
        if (!is_block_format(f.format)) continue;
        emit::converter c{.format = f.format, .how = {}, .name = "b"};
        try {
            emit::functions_of(emit::unit(c));
        } catch (const std::invalid_argument&) {  // a quotient that needs a division
            continue;
        }
        add(c);
        if (f.name == "mxfp8_e5m2" || f.name == "mx6") c.input = bf16, add(c);
        if (f.name == "mxfp4") c.how.scale_rule = scale_rule::rceil, c.how.rounding = rounding::stochastic, c.input = fp16, add(c);
        if (f.name == "mxint8") c.how.mxint_uses_lowest = true, add(c);
    }
    CHECK(all.size() > 12);
    library c("block_coverage");
    for (const emit::converter& what : all) c.add(text_of(what, compare::converter_bins(conversion_of(what), what.input).bins()));
    c.make();
    for (const emit::converter& what : all) {
        REQUIRE(c.find(what.name + "_sample") != nullptr);
        const auto sample = reinterpret_cast<sampled_line>(c.find(what.name + "_sample"));
        const compare::conversion one = conversion_of(what);
        const std::size_t size = one.blocks.length;
        std::vector<float> values = compare::converter_cases(one, 0);
        values.resize((values.size() + size - 1) / size * size, 0.0f);
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
            compare::converter_bins bins(one, what.input);
            for (std::size_t n = 0; n < values.size(); n += step * size) {
                std::vector<float> asked;
                std::vector<std::uint64_t> words;
                for (std::size_t k = n; k < n + size; ++k) {
                    asked.push_back(compare::as_input(what.input, values[k]));
                    words.push_back(compare::input_word(what.input, asked.back()));
                }
                bins.add(asked);
                sample(words.data());
            }
            if (step == 1) CHECK(std::all_of(bins.bins().begin(), bins.bins().end(), [](const auto& b) { return b.hits != 0; }));
            check_hits(c, what.name, described(what), bins.bins(), step);
        }
    }
}

TEST_CASE("emitted coverage of decoders has the hits of qk cover") {
    library c("decoder_coverage");
    std::vector<emit::converter> all;
    for (const named_format& f : catalogue) {
        emit::converter d{.format = f.format, .how = {}, .name = "d" + std::to_string(all.size()), .decode = true};
        all.push_back(d);
        c.add(text_of(d, compare::decoder_bins(conversion_of(d)).bins()));
    }
    c.make();
    for (const emit::converter& what : all) {
        void* sample = c.find(what.name + "_sample");
        REQUIRE(sample != nullptr);
        const compare::coded_values codes = compare::decoder_corners(conversion_of(what));
        const bool is_block = is_block_format(what.format);
        const std::size_t size = is_block ? static_cast<std::size_t>(block_size(what.format)) : 1, cases = codes.elements.size() / size;
        for (const std::size_t step : {std::size_t{1}, std::size_t{7}}) {
            compare::decoder_bins bins(conversion_of(what));
            for (std::size_t n = 0; n < cases; n += step) {
                compare::coded_values asked;
                std::vector<std::uint64_t> words;
                for (const auto part : {&compare::coded_values::elements, &compare::coded_values::scales, &compare::coded_values::shifts}) {
                    const std::size_t each = (codes.*part).size() / cases;
                    const auto first = (codes.*part).begin() + static_cast<std::ptrdiff_t>(n * each);
                    (asked.*part).assign(first, first + static_cast<std::ptrdiff_t>(each));
                    words.insert(words.end(), (asked.*part).begin(), (asked.*part).end());
                }
                bins.add(asked);
                if (is_block) reinterpret_cast<sampled_line>(sample)(words.data());
                else reinterpret_cast<void (*)(std::uint32_t)>(sample)(asked.elements.front());
            }
            check_hits(c, what.name, described(what), bins.bins(), step);
        }
    }
}

TEST_CASE("emitted coverage of devices has the hits of qk cover") {
    const std::set<std::string_view> some{"nvidia.volta.mma.m8n8k4.f16.f16.f16.f16",
                                          "nvidia.hopper.wgmma.m64n8k32.f32.e4m3.e4m3",
                                          "nvidia.rtx_blackwell.mma_block_scale.m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3",
                                          "nvidia.rtx_blackwell.mma_block_scale.m16n8k32.block32.f32.e4m3.e5m2.f32.ue8m0",
                                          "amd.cdna3.mfma.f64_4x4x4_4b_f64",
                                          "amd.cdna3.mfma.f32_4x4x4_16b_bf16",
                                          "x86.fma.vfmadd231ps",
                                          "x86.avx512_vnni.vpdpbusds"};
    std::size_t seen = 0;
    devices::each([&](const device& d) {
        if (!test::whole() && !some.contains(d.name)) return;
        INFO(d.name);
        hold({d.a, d.b, d.accumulator, 2 * d.k, "unit" + std::to_string(++seen)});
    });
    CHECK(seen >= some.size());
}

TEST_CASE("emitted coverage of accumulators has the hits of qk cover") {
    struct row {
        const char *text, *a, *b;
        int k;
        bool has_c = true;
    };
    const row rows[] = {{"sum=exact,groups=8,place=after,result=fp16,round=down,c=fp16", "fp16", "fp16", 16},
                        {"sum=exact,result=fp8_e4m3fn,c=bf16", "fp6_e2m3", "fp4_e2m1", 2},
                        {"sum=exact", "mxfp4", "mxfp8_e4m3", 64},
                        {"sum=exact", "nvfp4", "nvfp4", 32},
                        {"sum=exact", "bfp16", "bfp16", 16},
                        {"sum=exact", "int8", "uint8", 4},
                        {"sum=exact", "int:bits=31", "int:bits=31", 2},
                        {"align=20,groups=4", "int8", "fp16", 4},
                        {"sum=exact", "tf32", "fp24", 2},
                        {"align=24,cut=down", "fp8_e4m3fnuz", "fp8_e5m2fnuz", 3, false},
                        {"sum=sequential", "fp4_e2m1", "fp4_e2m1", 1, false},
                        {"width=18,groups=8", "int8", "uint8", 8},
                        {"width=48", "int16", "int16", 4, false},
                        {"width=60", "int32", "uint32", 3}};
    int n = 0;
    for (const row& r : rows) {
        INFO(r.text);
        const auto how = parse_accumulator(r.text);
        REQUIRE_MESSAGE(how, std::string(how.error.view()));
        hold({*parse_format(r.a), *parse_format(r.b), *how, r.k, "sum" + std::to_string(++n), r.has_c});
    }
}
