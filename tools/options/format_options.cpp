// SPDX-License-Identifier: Apache-2.0
#include "options/format_options.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "options/hex_words.hpp"
#include "options/words.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/calibrate.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/model.hpp"
#include "qk/graph/plan.hpp"
#include "qk/option_names.hpp"
#include "qk/storage.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

using graph::error;

template <class T>
const T& checked(const parsed<T>& p, const std::string& before = "") {
    if (!p) throw error(fmt::format("{}{}", before, p.error.view()));
    return p.value;
}

float parse_float(const std::string& text, const char* option) {
    char* end = nullptr;
    const float v = std::strtof(text.c_str(), &end);
    if (text.empty() || *end != '\0') throw error(fmt::format("{} needs a number, not '{}'", option, text));
    return v;
}

std::int64_t parse_integer(const std::string& text, const char* option) {
    char* end = nullptr;
    errno = 0;
    const long long v = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || errno == ERANGE) throw error(fmt::format("{} needs a whole number, not '{}'", option, text));
    return v;
}

void check_scale_of(const qk::format& f, float scale, const std::string& what) {
    if (const message m = check_scale(scale); !m.empty()) throw error(fmt::format("{}: {}", what, m.view()));
    int exponent = 0;
    if (const integer* g = std::get_if<integer>(&f); g != nullptr && g->pow2 && std::frexp(scale, &exponent) != 0.5f) {
        throw error(fmt::format("{}: {} is not a power of two, and format {} has power-of-two scales; give 2^k or drop pow2", what, scale,
                                to_text(f).view()));
    }
}

void check_zero_point_of(const integer& f, std::int64_t zero, const std::string& what) {
    if (const message m = check_zero_point(f, zero); !m.empty()) throw error(fmt::format("{}: {}", what, m.view()));
    const std::int64_t middle = f.is_signed ? 0 : std::int64_t{1} << (f.bits - 1);
    if (f.symmetric && zero != middle)
        throw error(fmt::format("{}: format {} is symmetric, its zero point is {}", what, to_text(f).view(), middle));
}

int axis_within(int axis, const graph::dims& shape, const std::string& name, const char* option) {
    const int rank = static_cast<int>(shape.size());
    if (axis < -rank || axis >= rank) {
        if (rank == 0) throw error(fmt::format("{} {}: {} is a scalar and has no axis; leave {} out", option, axis, name, option));
        throw error(fmt::format("{} {} is out of range: {} has shape {}, so it must be {} to {}", option, axis, name,
                                graph::to_string(shape), -rank, rank - 1));
    }
    return axis < 0 ? axis + rank : axis;
}

std::vector<float> float_values(const graph::tensor& t, const std::string& file) {
    if (t.type() != graph::data_type::float32 && t.type() != graph::data_type::float64)
        throw error(fmt::format("{} holds {}; scales must be float32", file, graph::name_of(t.type())));
    return *graph::float_values(t);
}

std::vector<std::int64_t> integer_values(const graph::tensor& t, const std::string& file) {
    if (!graph::is_integer(t.type()) || t.type() == graph::data_type::uint64)
        throw error(fmt::format("{} holds {}; zero points must be integers", file, graph::name_of(t.type())));
    return *graph::integer_values(t);
}

/// Resolves one scale (and zero point) for the whole tensor.
void resolve_tensor_scale(const quantize_options& given, conversion& c) {
    const bool nvfp = has_floating_scales(c.format);
    if (is_block_format(c.format) && !nvfp) {
        throw error(fmt::format("format {} takes its scales from the data; leave --scale and --zero-point out", to_text(c.format).view()));
    }
    c.given = conversion::granularity::tensor;
    const float scale = given.scale.empty() ? 1.0f : parse_float(given.scale, "--scale");
    check_scale_of(c.format, scale, "--scale " + given.scale);
    c.scale = {scale};
    if (given.zero_point.empty()) return;
    const integer* f = std::get_if<integer>(&c.format);
    if (f == nullptr) throw error(fmt::format("--zero-point is for integer formats; {} has none", to_text(c.format).view()));
    const std::int64_t zero = parse_integer(given.zero_point, "--zero-point");
    check_zero_point_of(*f, zero, "--zero-point " + given.zero_point);
    c.zero_point = {zero};
}

/// Reads a scale for each channel or block from a file.
void resolve_scale_file(const quantize_options& given, conversion& c, const graph::dims& shape, const std::string& name) {
    if (!given.scale.empty() || !given.zero_point.empty())
        throw error("--scales comes with --zero-points, not with --scale or --zero-point");
    if (is_block_format(c.format))
        throw error(fmt::format("format {} takes its scales from the data; leave --scales out", to_text(c.format).view()));
    if (!given.scale_axis) throw error("--scales needs --scale-axis N, the axis that the scales run along");
    const int axis = axis_within(*given.scale_axis, shape, name, "--scale-axis");
    const graph::tensor file = graph::read_npy(given.scales);
    c.scale = float_values(file, given.scales);
    c.scale_axis = axis;
    c.scale_blocks = seen_along(shape, axis);
    const auto at = static_cast<std::size_t>(axis);
    graph::dims expected = shape;
    if (given.scale_block) {
        if (*given.scale_block < 1) throw error(fmt::format("--scale-block is {}; it must be 1 or more", *given.scale_block));
        c.given = conversion::granularity::block;
        c.scale_block = static_cast<std::size_t>(*given.scale_block);
        expected[at] = (shape[at] + *given.scale_block - 1) / *given.scale_block;
        if (file.shape() != expected) {
            throw error(fmt::format("{} has shape {}; blocks of {} along axis {} of {} {} need {}", given.scales,
                                    graph::to_string(file.shape()), *given.scale_block, axis, name, graph::to_string(shape),
                                    graph::to_string(expected)));
        }
    } else {
        c.given = conversion::granularity::channel;
        if (file.size() != static_cast<std::size_t>(shape[at])) {
            throw error(
                fmt::format("{} holds {} scales, and axis {} of {} {} has {} channels; give one each (or --scale-block N for blocks)",
                            given.scales, file.size(), axis, name, graph::to_string(shape), shape[at]));
        }
    }
    for (std::size_t i = 0; i < c.scale.size(); ++i) check_scale_of(c.format, c.scale[i], fmt::format("{}, entry {}", given.scales, i));
    if (given.zero_points.empty()) return;
    const integer* f = std::get_if<integer>(&c.format);
    if (f == nullptr) throw error(fmt::format("--zero-points is for integer formats; {} has none", to_text(c.format).view()));
    c.zero_point = integer_values(graph::read_npy(given.zero_points), given.zero_points);
    if (c.zero_point.size() != c.scale.size()) {
        throw error(fmt::format("{} holds {} zero points for the {} scales of {}", given.zero_points, c.zero_point.size(), c.scale.size(),
                                given.scales));
    }
    for (std::size_t i = 0; i < c.zero_point.size(); ++i)
        check_zero_point_of(*f, c.zero_point[i], fmt::format("{}, entry {}", given.zero_points, i));
}

}  // namespace

void add_format_options(option_table& verb, quantize_options& given) {
    verb.section("Format");
    verb.add_option("--format,-f", given.format, "name or textual form (`qk formats` lists them)")
        .type_name("F")
        .common()
        .suggest(format_words());
    verb.add_option("--semantics", given.semantics, "what that system does (default ocp): " + comma_separated(words_of(semantics_names)))
        .type_name("S")
        .suggest(words_of(semantics_names));
    verb.add_option("--rounding", given.rounding,
                    "half-even, half-away, half-up, toward-zero, up, down, to-odd, stochastic, stochastic-b or stochastic-c")
        .type_name("R")
        .suggest(words_of(rounding_names));
    verb.add_option("--scale-rule", given.scale_rule, "block scales: floor, ceil, rceil, even or ceil_7_25 (MX), four_over_six or search")
        .suggest(words_of(scale_rule_names));
    verb.add_option("--scale-objective", given.scale_objective,
                    "what searched scales minimise: mse (default), mae, or weighted: mse, weighted by column (convert: --importance)")
        .type_name("O")
        .suggest(words_of(scale_objective_names));
    verb.add_option("--integer-mode", given.integer_mode, "division: round(x / scale); reciprocal: round(x * (1 / scale))")
        .suggest(words_of(integer_mode_names));
    verb.add_option("--overflow", given.overflow, "saturate, ieee or propagate (IEEE P3109's SatFinite, OvfInf and SatPropagate)")
        .suggest(words_of(overflow_names));
    verb.add_option("--seed", given.seed, "of stochastic rounding (default 0)");
    verb.add_option("--random-bits", given.random_bits, "stochastic rounding: how many of the upper bits of a word count (default 32)")
        .type_name("N");
    verb.add_option("--random-words", given.random_words,
                    "the device's own random words: .npy of uint32, or a hexadecimal word a line, one for each value in memory order")
        .type_name("FILE")
        .reads();
    verb.add_flag("--zero-point-before", given.zero_point_before, "add the zero point before rounding");
    verb.add_flag("--mxint-lowest", given.mxint_lowest, "integer MX elements may use their lowest code");
    verb.add_flag("--flush-inputs", given.flush_inputs, "subnormal float32 inputs count as zero");
    verb.add_flag("--flush-outputs", given.flush_outputs, "subnormal results become zero");
    verb.section("");
}

void add_scale_options(option_table& verb, quantize_options& given) {
    verb.section("Axis and scales");
    verb.add_option("--axis", given.axis, "axis that blocks run along (default: the last)").common();
    verb.add_option("--scale", given.scale, "one scale for the tensor (default 1; nvfp4: from the data)").type_name("X").common();
    verb.add_option("--zero-point", given.zero_point, "one zero point for the tensor (default 0)").type_name("N").common();
    verb.add_option("--scales", given.scales, "FILE.npy with a scale for each channel, or each block with --scale-block")
        .type_name("FILE.npy")
        .reads();
    verb.add_option("--zero-points", given.zero_points, "FILE.npy, a zero point for each of --scales").type_name("FILE.npy").reads();
    verb.add_option("--scale-axis", given.scale_axis, "axis that --scales runs along");
    verb.add_option("--scale-block", given.scale_block, "values along --scale-axis that share a scale (ONNX's blocked quantization)");
    verb.section("");
}

namespace {

std::string described(floating f) {
    const format_facts k = facts(qk::format(f));
    const char* specials = k.infinity ? "Inf and NaN" : k.nan ? "NaN" : "neither Inf nor NaN";
    return fmt::format("{} (largest {:.6g}, {})", to_text(qk::format(f)).view(), k.largest, specials);
}
/// Says where elements have the bits of an MX format of the catalogue and other special values: mx:element=fp8_e4m3 is not mxfp8_e4m3.
/// Every run of a verb has a thread or a process of its own, and hears it once.
void remark_on_elements(const qk::format& f, const std::string& text) {
    const auto* given = std::get_if<microscaling>(&f);
    if (given == nullptr || has_integer_elements(*given)) return;
    const named_format* near = nullptr;
    for (const named_format& n : catalogue) {
        const auto* known = std::get_if<microscaling>(&n.format);
        if (known == nullptr || has_integer_elements(*known)) continue;
        if (known->element == given->element) return;
        const bool same_bits =
            known->element.exponent_bits == given->element.exponent_bits && known->element.mantissa_bits == given->element.mantissa_bits;
        if (same_bits && near == nullptr) near = &n;
    }
    thread_local std::string said;
    if (near == nullptr || said == text) return;
    said = text;
    print(stderr, "{} has elements {}; those of {} are {}\n", text, described(given->element), std::string(near->name),
          described(std::get<microscaling>(near->format).element));
}

}  // namespace

qk::format parsed_format(const std::string& text, const std::string& before) {
    const qk::format f = checked(parse_rounded_format(text), before);
    remark_on_elements(f, text);
    return f;
}

qk::format format_of(const quantize_options& given) {
    if (given.format.empty()) throw error("say which format with --format F; `qk formats` lists them");
    return parsed_format(given.format.substr(0, given.format.find('@')));
}

qk::semantics semantics_of(const quantize_options& given) {
    qk::semantics how = checked(parse_semantics(given.semantics));
    if (!given.rounding.empty()) how.rounding = checked(parse_rounding(given.rounding));
    if (!given.scale_rule.empty()) how.scale_rule = checked(parse_scale_rule(given.scale_rule));
    if (const std::size_t at = given.format.find('@'); at != std::string::npos) {  // mxfp4@even
        if (!given.scale_rule.empty()) throw error(fmt::format("--format {} names a scale rule: leave --scale-rule out", given.format));
        how.scale_rule = checked(parse_scale_rule(given.format.substr(at + 1)));
        if (!has_scale_rule(format_of(given), how.scale_rule) && !graph::searches_scales(format_of(given), how))
            throw error(
                fmt::format("--format {}: only MX formats have a scale rule (NVFP4 has two: search and four_over_six; formats of up to 8 "
                            "bits with a scale have search); leave {} out",
                            given.format, given.format.substr(at)));
    }
    if (!given.scale_objective.empty()) {
        how.scale_objective = checked(parse_scale_objective(given.scale_objective));
        if (!is_searched(how.scale_rule))
            throw error("--scale-objective is what searched scales minimise: say --scale-rule search or four_over_six, too");
    }
    if (!given.integer_mode.empty()) how.integer_mode = checked(parse_integer_mode(given.integer_mode));
    if (!given.overflow.empty()) how.overflow = checked(parse_overflow(given.overflow));
    if (given.seed) how.seed = *given.seed;
    if (given.random_bits) {
        if (*given.random_bits < 1 || *given.random_bits > 32)
            throw error(fmt::format("--random-bits is {}; it must be 1 to 32", *given.random_bits));
        if (!is_stochastic(how.rounding)) throw error("--random-bits is for --rounding stochastic, stochastic-b or stochastic-c");
        how.stochastic_bits = *given.random_bits;
    }
    how.zero_point_before |= given.zero_point_before;
    how.mxint_uses_lowest |= given.mxint_lowest;
    how.flush_inputs |= given.flush_inputs;
    how.flush_outputs |= given.flush_outputs;
    return how;
}

namespace {

/// Reads the words of stochastic rounding, at least one for each of `count` values.
std::vector<std::uint32_t> read_random_words(const std::string& file, std::size_t count, const std::string& name) {
    const std::string bytes = graph::read_file(file);
    std::vector<std::uint32_t> all;
    if (bytes.starts_with("\x93NUMPY")) {
        const graph::tensor t = graph::parse_npy(bytes, file);
        if (t.type() != graph::data_type::uint32)
            throw error(fmt::format("{} holds {}; random words are uint32", file, graph::name_of(t.type())));
        const auto given = t.as<std::uint32_t>();
        all.assign(given.begin(), given.end());
    } else {
        std::size_t line = 1;
        for (std::size_t from = 0; from < bytes.size(); ++line) {
            const std::size_t end = std::min(bytes.find('\n', from), bytes.size());
            for (const std::uint64_t w : words_of_line(bytes.substr(from, end - from))) {
                if (w >> 32 != 0) throw error(fmt::format("{}, line {}: a random word has 32 bits, 8 digits", file, line));
                all.push_back(static_cast<std::uint32_t>(w));
            }
            from = end + 1;
        }
    }
    if (all.size() < count) throw error(fmt::format("{} has {} words, and {} has {} values", file, all.size(), name, count));
    return all;
}

}  // namespace

conversion resolve(const quantize_options& given, const graph::dims& shape, const std::string& name) {
    conversion c;
    c.format = format_of(given);
    c.how = semantics_of(given);
    if (!given.random_words.empty()) {
        if (!is_stochastic(c.how.rounding)) throw error("--random-words is for --rounding stochastic, stochastic-b or stochastic-c");
        if (given.seed) throw error("--random-words takes the place of --seed; leave one out");
        c.use_words(read_random_words(given.random_words, graph::element_count(shape), name));
    }
    if (given.axis || !shape.empty()) c.axis = axis_within(given.axis.value_or(-1), shape, name, "--axis");
    c.blocks = seen_along(shape, c.axis);
    if (!given.scales.empty()) {
        resolve_scale_file(given, c, shape, name);
        return c;
    }
    if (given.scale_axis) throw error("--scale-axis needs --scales FILE.npy, or --scale-rule search");
    if (given.scale_block) throw error("--scale-block needs --scales FILE.npy, or --scale-rule search");
    if (!given.zero_points.empty()) throw error("--zero-points needs --scales FILE.npy");
    if (given.format.find('@') != std::string::npos && given.scale.empty() && graph::searches_scales(c.format, c.how))
        throw error(
            fmt::format("--format {}: only `qk convert` searches the scale of such a format; give --scale or --scales", given.format));
    if (!given.scale.empty() || !given.zero_point.empty()) resolve_tensor_scale(given, c);
    if (const integer* f = std::get_if<integer>(&c.format); f != nullptr && f->symmetric && !f->is_signed && c.zero_point.empty()) {
        c.given = conversion::granularity::tensor;
        if (c.scale.empty()) c.scale = {1.0f};
        c.zero_point = {std::int64_t{1} << (f->bits - 1)};
    }
    return c;
}

conversion resolve_searched(const quantize_options& given, const graph::tensor& x, const std::string& name) {
    quantize_options rest = given;
    rest.scale_axis.reset(), rest.scale_block.reset();
    rest.format = given.format.substr(0, given.format.find('@')), rest.scale_rule = "search";
    conversion c = resolve(rest, x.shape(), name);
    if (x.rank() == 0) throw error(name + " holds one number: no scale is searched for it; give --scale X");
    const bool of_channels = given.scale_axis && !given.scale_block;
    c.scale_axis = axis_within(given.scale_axis.value_or(-1), x.shape(), name, "--scale-axis");
    c.scale_blocks = seen_along(x.shape(), c.scale_axis);
    graph::precision what{.format = c.format, .per_channel = of_channels, .semantics = c.how};
    if (given.scale_block) what.block_size = *given.scale_block;
    const graph::quantizer q = graph::weight_quantizer(x, what, {.block = c.scale_axis, .flatten = false, .channel = c.scale_axis});
    c.scale = q.scale, c.zero_point = q.zero_point;
    c.given = given.scale_block ? conversion::granularity::block
              : of_channels     ? conversion::granularity::channel
                                : conversion::granularity::tensor;
    if (given.scale_block) c.scale_block = static_cast<std::size_t>(*given.scale_block);
    return c;
}

graph::tensor float_tensor(graph::tensor t, const std::string& file) {
    if (t.type() == graph::data_type::float32) return t;
    if (t.type() != graph::data_type::float16) {
        throw error(fmt::format("{} holds {}; give float32 or float16 (numpy: x.astype('float32'))", file, graph::name_of(t.type())));
    }
    graph::tensor wide(graph::data_type::float32, t.shape());
    const std::uint16_t* from = reinterpret_cast<const std::uint16_t*>(t.bytes());
    for (float& v : wide.as<float>()) v = widen(float16{*from++});
    return wide;
}

}  // namespace qk::tool
