// SPDX-License-Identifier: Apache-2.0
#include "options/data_options.hpp"

#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/ops/elements.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "support/in_words.hpp"

namespace qk::tool {
namespace {

graph::tensor first_rows(const graph::tensor& t, std::int64_t rows, const std::string& what) {
    if (t.rank() == 0 || t.dim(0) < rows) {
        throw graph::error("--samples asks for more than " + what + " has: " + (t.rank() == 0 ? std::string("a scalar") : std::to_string(t.dim(0))));
    }
    graph::dims shape = t.shape();
    shape[0] = rows;
    return {t.type(), shape, t.buffer()};
}

}  // namespace

void data_options::add(CLI::App& verb, bool inputs_required) {
    verb.add_option("--inputs", inputs, "data: FILE or INPUT=FILE (.npy, .npz, .pb, a folder); repeat it for several inputs")
        ->required(inputs_required)
        ->allow_extra_args(false)
        ->type_name("[INPUT=]FILE");
    verb.add_option("--labels", labels, "class of each sample, .npy of integers")->type_name("FILE");
    verb.add_option("--preprocess", preprocess, "for example layout=nhwc,channels=bgr,scale=1,mean=104:117:123,std=1:1:1: (x * scale - mean) / std by channel")
        ->type_name("SPEC");
    verb.add_option("--calibration", calibration, "data to choose ranges from, like --inputs; the inputs if not given")
        ->allow_extra_args(false)
        ->type_name("[INPUT=]FILE");
    verb.add_option("--samples", samples, "use exactly the first N samples of the inputs; all if not given")->type_name("N")->check(whole_number(1, "leave --samples out to use all of them"));
    verb.add_option("--threads", threads, "one for each core if not given; results do not depend on it")->type_name("T")->check(whole_number(1, "leave --threads out for one for each core", 1024));
}

graph::named_tensors data_options::load(const graph::model& m, const std::vector<std::string>& arguments, const char* option, bool cut) const {
    graph::named_tensors data = graph::read_inputs(m, arguments, option);
    for (const graph::value_info& input : m.inputs()) {
        graph::tensor& value = data.at(input.name);
        if (!preprocess.empty() && input.type == graph::data_type::float32) value = graph::preprocessing::parse(preprocess).apply(value, input);
        if (cut && samples > 0 && input.has_shape && !input.shape.empty()) {
            const std::int64_t rows = std::max<std::int64_t>(input.shape[0].value, 1);
            value = first_rows(value, static_cast<std::int64_t>(samples) * rows, "the data of input '" + input.name + "'");
        }
    }
    return data;
}

graph::named_tensors data_options::load_inputs(const graph::model& m) const { return load(m, inputs, "--inputs", true); }

graph::named_tensors data_options::load_calibration(const graph::model& m) const {
    return calibration.empty() ? load_inputs(m) : load(m, calibration, "--calibration", false);
}

std::vector<std::int64_t> data_options::load_labels() const {
    if (labels.empty()) return {};
    graph::tensor t = graph::read_npy(labels);
    if (samples > 0) t = first_rows(t, static_cast<std::int64_t>(samples), "'" + labels + "'");
    std::vector<std::int64_t> values(t.size());
    const bool whole = t.type() != graph::data_type::float32 && t.type() != graph::data_type::float64 && t.type() != graph::data_type::float16 && t.type() != graph::data_type::bfloat16;
    if (!whole || !graph::ops::read_elements(t.type(), t.bytes(), std::span<std::int64_t>(values))) {
        throw graph::error("'" + labels + "' holds " + graph::name_of(t.type()) + "; labels must be integers");
    }
    return values;
}

}  // namespace qk::tool
