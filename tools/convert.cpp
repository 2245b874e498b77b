// SPDX-License-Identifier: Apache-2.0
// `qk convert`: a .npy file through a format.
#include <fmt/format.h>

#include <memory>

#include "qk/graph/npy.hpp"
#include "qk/graph/pending_file.hpp"
#include "quantize_options.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct arguments {
    std::string input, output;
    quantize_options how;
};

void convert(const arguments& given) {
    format_of(given.how);  // the cheap mistakes first
    semantics_of(given.how);
    const graph::tensor x = float_tensor(graph::read_npy(given.input), given.input);
    const conversion c = resolve(given.how, x.shape(), given.input);
    graph::tensor y(graph::data_type::float32, x.shape());
    fake_quantize(c, x.as<float>(), y.as<float>());
    graph::write_npy(given.output, y);
}

}  // namespace

void add_convert(CLI::App& app, verb_result&) {
    auto given = std::make_shared<arguments>();
    CLI::App* verb =
        app.add_subcommand("convert", "Convert a .npy file through a format: every value becomes the nearest that the format has");
    verb->add_option("INPUT", given->input, "float32 or float16 .npy")->required();
    verb->add_option("OUTPUT", given->output, "float32 .npy of the same shape")->required();
    add_format_options(*verb, given->how);
    add_scale_options(*verb, given->how);
    verb->footer(
        "An option overrides the choice of --semantics.\n\nExamples:\n"
        "  qk convert x.npy y.npy --format mxfp4\n"
        "  qk convert x.npy y.npy --format bfp:block=16,exponent=8,mantissa=5 --axis 1 --semantics quark --rounding half-away\n"
        "  qk convert x.npy y.npy --format int8 --scale 0.05 --zero-point 3\n"
        "  qk convert x.npy y.npy --format int8 --scales s.npy --scale-axis 0");
    verb->callback([given] { convert(*given); });
}

}  // namespace qk::tool
