// SPDX-License-Identifier: Apache-2.0
// `qk dot`: a matrix product as a device computes it, of values or of codes.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "hardware/dot_case.hpp"
#include "qk/dispatch.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/model.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "support/flags_json.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using graph::error;
using graph::tensor;

struct dot_arguments {
    std::vector<std::string> files;
    std::string device, accumulator, a_format, b_format, case_file, output;
    bool json = false, overwrite = false;
};

// ---- values

/// Reads a matrix; an array of one dimension is a row (A) or a column (B).
tensor matrix_of(const std::string& file, bool row) {
    const tensor t = graph::read_npy(file);
    graph::dims shape = t.shape();
    if (shape.size() == 1) shape.insert(row ? shape.begin() : shape.end(), 1);
    if (shape.size() != 2) throw error(fmt::format("{} has shape {}; a matrix has two dimensions", file, graph::to_string(t.shape())));
    return t.reshaped(shape);
}
/// Returns the values of a tensor as doubles: floats of 16 to 64 bits and integers, except uint64.
std::vector<double> values_of(const tensor& t, const std::string& file) {
    using graph::data_type;
    const auto values = graph::double_values(t);
    if (t.type() == data_type::boolean || t.type() == data_type::uint64 || !values)
        throw error(fmt::format("{} holds {}; values are floats or integers", file, name_of(t.type())));
    return *values;
}

/// Encodes a matrix in `f`, blocks along `axis`, and returns its planes.
std::vector<std::byte> encoded(const std::vector<double>& values, const format& f, along_axis axis, const std::string& file) {
    if (f == format(fp64)) {
        std::vector<std::byte> bytes(8 * values.size());
        if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }
    std::vector<float> x(values.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(values[i]);
    std::vector<std::byte> bytes(packed_bytes(f, is_block_format(f) ? axis : along_axis{1, x.size(), 1}));
    if (x.empty()) return bytes;
    const codec_parameters p = is_block_format(f) ? codec_parameters(axis) : codec_parameters(affine{.scale = 1.0f, .zero_point = 0});
    if (dispatch::encode(f, x, bytes, p) != encode_status::done)
        throw error(fmt::format("{}: format {} has no codes for these values", file, to_text(f).view()));
    return bytes;
}

void multiply_values(const dot_arguments& given, const multiplier& by) {
    if (given.files.size() < 3 || given.files.size() > 4) throw error("give A.npy B.npy [C.npy] OUT.npy, or --case FILE.npz");
    const std::string &fa = given.files[0], &fb = given.files[1], &out = given.files.back();
    graph::output_set files(given.overwrite);
    for (std::size_t i = 0; i + 1 < given.files.size(); ++i) files.input("FILES", given.files[i]);
    files.output("FILES", out);
    const tensor a = matrix_of(fa, true), b = matrix_of(fb, false);
    const product_shape shape{static_cast<std::size_t>(a.shape()[0]), static_cast<std::size_t>(b.shape()[1]),
                              static_cast<std::size_t>(a.shape()[1])};
    if (b.shape()[0] != a.shape()[1])
        throw error(fmt::format("{} has shape {} and {} has {}; A is [m,k] and B [k,n]", fa, graph::to_string(a.shape()), fb,
                                graph::to_string(b.shape())));
    const bool whole = by.how.sum == summation::integer;
    std::vector<std::uint64_t> c = given.files.size() == 4 ? std::vector<std::uint64_t>() : usual_c(by.how, shape);
    if (given.files.size() == 4) {
        const tensor t = matrix_of(given.files[2], true);
        if (t.shape() != graph::dims{a.shape()[0], b.shape()[1]})
            throw error(
                fmt::format("{} has shape {}; C is [m,n], here [{},{}]", given.files[2], graph::to_string(t.shape()), shape.m, shape.n));
        for (const double v : values_of(t, given.files[2])) {
            if (whole) c.push_back(static_cast<std::uint64_t>(static_cast<std::int64_t>(v)));
            else if (by.how.addend == fp64) c.push_back(std::bit_cast<std::uint64_t>(v));
            else  // rounds once, straight to the format of C's register
                c.push_back(stored_code_of(by.how.addend, v));
        }
    }
    const along_axis rows{shape.m, shape.k, 1}, columns{1, shape.k, shape.n};
    const std::vector<std::byte> pa = encoded(values_of(a, fa), by.a, rows, fa), pb = encoded(values_of(b, fb), by.b, columns, fb);
    const auto planes = [](const format& f, along_axis axis, const std::vector<std::byte>& bytes) {
        if (f == format(fp64)) return const_planes{bytes, {}, {}, {}};
        return planes_of(layout_of(f, axis), std::span<const std::byte>(bytes));
    };
    dot_counts counts;
    std::vector<std::uint64_t> d(shape.m * shape.n);
    matrix_multiply_add(by.a, by.b, by.how, shape, {.planes = planes(by.a, rows, pa)}, {.planes = planes(by.b, columns, pb)}, c, d,
                        given.json ? &counts : nullptr);
    const graph::dims result{a.shape()[0], b.shape()[1]};
    tensor y(whole ? graph::data_type::int64 : by.how.result == fp64 ? graph::data_type::float64 : graph::data_type::float32, result);
    for (std::size_t i = 0; i < d.size(); ++i) {
        if (whole || by.how.result == fp64) std::memcpy(y.bytes() + 8 * i, &d[i], 8);
        else
            y.as<float>()[i] = bits(by.how.result) <= 16 ? value_of(by.how.result, static_cast<std::uint32_t>(d[i]))
                                                         : std::bit_cast<float>(static_cast<std::uint32_t>(d[i]));
    }
    files.write(out, graph::to_npy(y));
    files.commit();
    if (given.json) {
        print_json({{"device", by.name},
                    {"accumulator", std::string(to_text(by.how).view())},
                    {"a_format", std::string(to_text(by.a).view())},
                    {"b_format", std::string(to_text(by.b).view())},
                    {"shape", {shape.m, shape.n, shape.k}},
                    {"counts", json_of(counts)}});
    }
}

// ---- codes

void multiply_case(const dot_arguments& given, const multiplier& by, verb_result& verdict) {
    if (!given.files.empty()) throw error("--case holds the operands: leave out " + given.files.front());
    graph::output_set files(given.overwrite);
    files.input("--case", given.case_file).output("-o", given.output);
    const dot_case problem = case_of(graph::read_npz(given.case_file), given.case_file, by);
    if (given.output.empty() && !problem.d) throw error(given.case_file + " has no d to compare with; say -o OUT.npz to write one");
    dot_counts counts;
    const std::vector<std::uint64_t> d = multiply(problem, by, given.json ? &counts : nullptr);
    nlohmann::ordered_json report{{"device", by.name},
                                  {"accumulator", std::string(to_text(by.how).view())},
                                  {"case", given.case_file},
                                  {"shape", {problem.shape.m, problem.shape.n, problem.shape.k}}};
    if (!given.output.empty()) {
        files.write(
            given.output,
            graph::zip({{"d.npy", graph::to_npy(codes_tensor(d, problem.shape.m, problem.shape.n, result_bits(by.how)))}}, given.output));
        files.commit();
        report["output"] = given.output;
    } else {
        constexpr std::size_t shown = 8;
        std::size_t different = 0;
        std::string lines;
        nlohmann::ordered_json first = nlohmann::ordered_json::array();
        const int digits = result_bits(by.how) / 4;
        for (std::size_t i = 0; i < d.size(); ++i) {
            const std::uint64_t mask = result_bits(by.how) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << result_bits(by.how)) - 1;
            const std::uint64_t said = (*problem.d)[i] & mask, ours = d[i] & mask;
            if (same_result(by.how, said, ours) || different++ >= shown) continue;
            const std::size_t row = i / problem.shape.n, column = i % problem.shape.n;
            lines += fmt::format("  d[{},{}]: the file has {:0{}x}, {} gives {:0{}x}\n", row, column, said, digits, by.name, ours, digits);
            first.push_back({{"row", row},
                             {"column", column},
                             {"expected", fmt::format("{:0{}x}", said, digits)},
                             {"actual", fmt::format("{:0{}x}", ours, digits)}});
        }
        if (different != 0) verdict.status = status::failed;
        report["same"] = different == 0;
        report["compared"] = d.size();
        report["different"] = different;
        report["first"] = first;
        if (different != 0 && problem.c.empty() && problem.shape.k != 1)
            lines += fmt::format("  {} has no c: zeros were added\n", given.case_file);
        if (!given.json) fmt::print("{} of {} differ\n{}", different, d.size(), lines);
    }
    report["counts"] = json_of(counts);
    if (given.json) print_json(report);
}

}  // namespace

void add_dot(command& app, verb_result& verdict) {
    auto given = std::make_shared<dot_arguments>();
    option_table& verb =
        app.add_subcommand("dot", "Multiply matrices as a device does: products aligned, cut, added and rounded in its way");
    verb.add_option("FILES", given->files, "A.npy B.npy [C.npy] OUT.npy: A [m,k], B [k,n], C and OUT [m,n], values").type_name("FILE");
    verb.add_option("--device", given->device,
                    "what multiplies: a name of `qk formats --devices`; without its shape the one with the largest k")
        .type_name("NAME")
        .common();
    verb.add_option("--accumulator", given->accumulator,
                    "instead of a device: how sums are formed, as docs/reference/numerics.md (\"Accumulators as text\") writes them")
        .type_name("TEXT")
        .common();
    verb.add_option("--a-format", given->a_format, "format of A's elements, blocks along k (default: the device's)")
        .type_name("F")
        .common();
    verb.add_option("--b-format", given->b_format, "format of B's elements, blocks along k (default: the device's)")
        .type_name("F")
        .common();
    verb.add_option("--case", given->case_file,
                    "operands as codes: an .npz with a, b, c, scale_a, scale_b; with d and no -o it is compared")
        .type_name("FILE.npz")
        .common();
    verb.add_option("-o,--output", given->output, "with --case: write d into this .npz").type_name("OUT.npz").common().writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one JSON object: what was compared, and counts of overflow, underflow, inexact, NaN, saturation")
        .common();
    verb.footer(
        "Exit status with --case: 0 the same (NaN equals NaN), 1 different, 2 unusable.\n\nExamples:\n"
        "  qk dot a.npy b.npy d.npy --device nvidia.hopper.wgmma.f32.e4m3.e4m3\n"
        "  qk dot a.npy b.npy d.npy --accumulator groups=16,align=25,round=toward-zero --a-format mxfp8_e4m3 --b-format mxfp4\n"
        "  qk dot --case mine.npz --device amd.cdna3.mfma.f32_f16\n"
        "  qk dot --case mine.npz --device amd.cdna3.mfma.f32_f16 -o answer.npz --json");
    verb.callback([given, &verdict] {
        const multiplier by = multiplier_of(given->device, given->accumulator, given->a_format, given->b_format);
        if (!given->case_file.empty()) return multiply_case(*given, by, verdict);
        if (!given->output.empty()) throw error("-o goes with --case; without it the last of FILES is the output");
        multiply_values(*given, by);
    });
}

}  // namespace qk::tool
