// SPDX-License-Identifier: Apache-2.0
// `qk formats`: the catalogue, or the facts of given formats, as a table; or the devices.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "options/format_options.hpp"
#include "options/words.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/number.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/error.hpp"
#include "qk/graph/files.hpp"
#include "support/console.hpp"
#include "support/format_codes.hpp"
#include "support/system_rules.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct format_row {
    std::string name;
    qk::format format;
    std::string source;
};

std::string number(double v) {
    int exponent = 0;
    if (v > 0 && std::frexp(v, &exponent) == 0.5 && (v < 0.01 || v >= 65536)) return fmt::format("2^{}", exponent - 1);
    if (v == std::floor(v) && std::abs(v) < 1e10) return fmt::format("{:.0f}", v);
    return std::abs(v) < 1e7 ? fmt::format("{:.8g}", v) : fmt::format("{:.4g}", v);
}

/// A number of the table, and of JSON.
struct fact {
    std::string text;
    nlohmann::ordered_json json;
};
fact fact_of(double v) { return {number(v), v}; }
/// Some formats of IEEE P3109 have numbers that no double holds: as D*2^N they are exact, and JSON has the digits that --codes has, as
/// text.
fact fact_of(const code_number& n) {
    const double v = std::ldexp(n.negative ? -double(n.digits) : n.digits, n.exponent);
    if (std::isfinite(v) && n.exponent >= -1074) return fact_of(v);
    const int zeros = std::countr_zero(n.digits);
    const std::uint32_t odd = n.digits >> zeros;
    return {fmt::format("{}{}2^{}", n.negative ? "-" : "", odd == 1 ? "" : fmt::format("{}*", odd), n.exponent + zeros), value_of(n).text};
}

/// The numbers between which a format reaches, its own also where it has some beyond float32.
struct reach_of_format {
    fact largest, lowest, smallest, smallest_normal;

    reach_of_format(const qk::format& f, const format_facts& k)
        : largest(fact_of(k.largest)),
          lowest(fact_of(k.lowest)),
          smallest(fact_of(k.smallest)),
          smallest_normal(fact_of(k.smallest_normal)) {
        const floating* g = std::get_if<floating>(&f);
        if (g == nullptr || !exceeds_float32(*g)) return;
        const auto value = [&](std::uint64_t code) { return number_of(*g, static_cast<std::uint32_t>(code)); };
        code_number most = value(largest_magnitude(*g));
        largest = fact_of(most);
        most.negative = true;
        if (is_signed(*g)) lowest = fact_of(most);
        smallest = fact_of(value(1));
        smallest_normal = fact_of(value(std::uint64_t{1} << g->mantissa_bits));
    }
};

std::string range(const qk::format& f, const format_facts& k, const reach_of_format& reach) {
    if (is_integer_format(f) || k.lowest >= 0 || (is_table_format(f) && k.lowest != -k.largest))
        return reach.lowest.text + " to " + reach.largest.text;
    return "+-" + reach.largest.text;
}

std::string special_words(const format_facts& k) {
    std::string s;
    const auto add = [&s](bool there, const char* what) {
        if (there) s += (s.empty() ? "" : " ") + std::string(what);
    };
    add(k.infinity, "Inf");
    add(k.nan, "NaN");
    add(k.negative_zero, "-0");
    return s.empty() ? "-" : s;
}

std::string block(const qk::format& f) {
    if (const auto* m = std::get_if<microexponent>(&f)) return fmt::format("{} ({})", m->block_size, m->sub_block_size);
    return is_block_format(f) ? fmt::format("{}", block_size(f)) : "-";
}

void print_table(const std::vector<format_row>& rows) {
    constexpr auto line = "{:<16} {:>8}  {:<25} {:<14} {:<11} {:<7} {}\n";
    print(line, "format", "bits", "range", "smallest > 0", "specials", "block", "source");
    for (const format_row& r : rows) {
        const format_facts k = facts(r.format);
        const reach_of_format reach(r.format, k);
        print(line, r.name, fmt::format("{:.6g}", bits_per_value(r.format)), range(r.format, k, reach), reach.smallest.text,
              special_words(k), block(r.format), r.source);
    }
    print(
        "\nbits: storage per value, shared scales and exponents spread over their blocks. Integers: range in units of the scale\n"
        "(y = (q - zero_point) * scale); nvfp4: in units of its tensor scale. Block formats: scale or exponent at its extremes;\n"
        "their NaN is a code for the whole block. block: values that share a scale (sub-block in brackets).\n"
        "IEEE P3109: binaryKpP{{s,u}}{{e,f}}, K 3 to 15 bits, P of precision, signed or unsigned, extended (Inf) or finite, as "
        "binary8p3se.\n"
        "More: int8:symmetric,pow2,narrow,reduce_range  int:bits=6  float:exponent=E,mantissa=M[,sign=0][,bias=B]\n"
        "      [,special=ieee|fn|fnuz|none|nan|inf][,subnormals=0]\n"
        "      bfp:block=N,exponent=E,mantissa=M[,bump]  mx:element=F,block=N  microexponent:block=N,sub_block=N,mantissa=M  "
        "nvfp:block=N[,element=F][,scale=F][,tensor=0]\n"
        "      table:values=V/V/...[,ties=even-code|lower|upper|toward-zero|away]  (2 to 256 numbers or nan: code i is the i-th)\n");
}

nlohmann::ordered_json as_json(const format_row& r) {
    const format_facts k = facts(r.format);
    const reach_of_format reach(r.format, k);
    return {{"name", r.name},
            {"family", family_name(r.format)},
            {"bits_per_value", bits_per_value(r.format)},
            {"largest", reach.largest.json},
            {"lowest", reach.lowest.json},
            {"smallest_normal", reach.smallest_normal.json},
            {"smallest_subnormal", reach.smallest.json},
            {"infinity", k.infinity},
            {"nan", k.nan},
            {"negative_zero", k.negative_zero},
            {"block_size", block_size(r.format)},
            {"source", r.source}};
}

/// Prints every code of the formats with its value: as pairs in each format's object, or as lines and a drawing.
void print_codes(const std::vector<format_row>& rows, bool json) {
    if (rows.empty()) throw graph::error("--codes lists the codes of given formats: qk formats fp4_e2m1 --codes");
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::vector<std::pair<std::string, std::string>> pairs;  // what stands in the text, and the pairs that take its place
    const auto held = [&](const std::vector<code_value>& codes) {
        pairs.emplace_back("pairs " + std::to_string(pairs.size()), pairs_of(codes));
        return pairs.back().first;
    };
    for (const format_row& r : rows) {
        const format_codes codes = codes_of(r.format);
        if (!json) {
            print_lines(fmt::format("{}{}: {} bits\n{}", list.empty() ? "" : "\n", r.name, codes.bits, table_of(codes)));
            list.push_back(nullptr);
            continue;
        }
        list.push_back(as_json(r));
        list.back()["codes"] = held(codes.elements);
        if (!codes.shared.empty()) list.back()["scale_codes"] = held(codes.shared);
    }
    if (!json) return;
    // Numbers that no double holds have no place in the library's values, so the pairs are text.
    std::string text = graph::json_text(nlohmann::ordered_json{{"formats", list}}, 2);
    for (const auto& [from, to] : pairs) {
        const std::string quoted = "\"" + from + "\"";
        text.replace(text.find(quoted), quoted.size(), to);
    }
    print_lines(text + "\n");
}

/// Prints the devices whose names contain one of the words (all without words). Throws, with the nearest names, for a word that no name
/// contains.
void print_devices(const std::vector<std::string>& words, bool json) {
    const auto means = [](const std::string& word, const device& d) {
        return d.name.find(word) != std::string_view::npos || without_shape(d.name) == word;
    };
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const std::string& word : words) {
        bool known = false;
        devices::each([&](const device& d) { known = known || means(word, d); });
        if (!known) throw graph::error(std::string(unknown_device(word).view()));
    }
    constexpr auto line = "{:<78} {:<14} {:<14} {:>3}  {}\n";
    if (!json) fmt::print(line, "device", "A", "B", "k", "accumulator");
    devices::each([&](const device& d) {
        if (!words.empty() && std::none_of(words.begin(), words.end(), [&](const auto& word) { return means(word, d); })) return;
        const auto name = [](const qk::format& f) { return f == qk::format(fp64) ? std::string("fp64") : std::string(to_text(f).view()); };
        const std::string how(to_text(d.accumulator).view());
        if (!json) return fmt::print(line, d.name, name(d.a), name(d.b), d.k, how);
        list.push_back({{"name", d.name},
                        {"a_format", name(d.a)},
                        {"b_format", name(d.b)},
                        {"m", d.m},
                        {"n", d.n},
                        {"k", d.k},
                        {"accumulator", how},
                        {"source", d.source}});
    });
    if (json) return print_json({{"devices", list}});
    fmt::print(
        "\nWithout its shape (m16n8k16, 16x16x16) a name means the one with the largest k. The accumulator is what `qk dot --accumulator` "
        "takes.\n"
        "Sources: {}; x86: {}; systolic arrays: {}.\n",
        devices::mma_sim, devices::intel_sdm, devices::tpu);
}

}  // namespace

void add_formats(command& app, verb_result&) {
    struct arguments {
        std::vector<std::string> names;
        bool json = false, devices = false, systems = false, codes = false;
    };
    auto given = std::make_shared<arguments>();
    option_table& verb = app.add_subcommand("formats", "List the number formats: bits per value, range, special values, block, source");
    verb.add_option("FORMAT", given->names, "only these: names or textual forms (default: the whole catalogue)").suggest(format_words());
    verb.add_flag("--devices", given->devices,
                  "list what multiplies and adds instead: matrix units, and FORMAT is a part of a device's name")
        .common();
    verb.add_flag("--systems", given->systems,
                  "list other systems' rules instead, for `qk convert --system`: FORMAT is a part of a rule's name")
        .common();
    verb.add_flag("--codes", given->codes, "list every code of the given formats (of up to 16 bits) with its value, and draw their numbers")
        .common();
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Examples:\n  qk formats\n  qk formats mxfp4 bfp:block=16,exponent=8,mantissa=5\n  qk formats binary6p3se --codes\n  qk formats "
        "--systems nvfp4\n  qk formats "
        "--devices nvidia.hopper\n  qk "
        "formats --json");
    verb.callback([given] {
        if (given->devices && given->systems) throw graph::error("--devices and --systems are two lists: give one of them");
        if (given->codes && (given->devices || given->systems))
            throw graph::error("--codes lists the codes of formats: leave it out with --devices and --systems");
        if (given->devices) {
            need_hardware("--devices");
            return print_devices(given->names, given->json);
        }
        if (given->systems) return print_systems(given->names, given->json);
        std::vector<format_row> rows;
        for (const std::string& name : given->names) {
            const qk::format f = parsed_format(name);
            const named_format* entry = find_format(f);
            if (find_p3109(name) != no_format) rows.push_back({name, f, "IEEE P3109 draft 3.2"});
            else rows.push_back({std::string(to_text(f).view()), f, entry != nullptr ? std::string(entry->source) : "by its textual form"});
        }
        if (given->codes) return print_codes(rows, given->json);
        if (rows.empty()) {
            for (const named_format& entry : catalogue) rows.push_back({std::string(entry.name), entry.format, std::string(entry.source)});
        }
        if (!given->json) return print_table(rows);
        nlohmann::ordered_json list = nlohmann::ordered_json::array();
        for (const format_row& r : rows) list.push_back(as_json(r));
        print_json({{"formats", list}});
    });
}

}  // namespace qk::tool
