// SPDX-License-Identifier: Apache-2.0
#include "options/data_options.hpp"

#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "qk/graph/ops/elements.hpp"

namespace qk::tool {
namespace {

graph::tensor first_rows(const graph::tensor& t, std::int64_t rows, const std::string& what) {
    if (t.rank() == 0 || t.dim(0) < rows) {
        throw graph::error("--samples asks for more than " + what +
                           " has: " + (t.rank() == 0 ? std::string("a scalar") : std::to_string(t.dim(0))));
    }
    graph::dims shape = t.shape();
    shape[0] = rows;
    return {t.type(), shape, t.buffer()};
}

}  // namespace

/// Data that preprocessing would make fit.
std::string data_options::misfit(const graph::tensor& value, const graph::value_info& input, const char* option,
                                 const std::string& more) const {
    std::string shape;
    for (const graph::dimension& d : input.shape)
        shape += (shape.empty() ? "" : ",") + (d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
    return std::string(option) + ": input '" + input.name + "' is " + graph::name_of(input.type) + " [" + shape +
           "] in the model, and the data given is " + graph::name_of(value.type()) + " " + graph::to_string(value.shape()) +
           (preprocess.empty() ? "" : " after --preprocess") + "; --preprocess " + preprocess + (preprocess.empty() ? "" : ",") + more +
           " makes it fit (add the mean=... and std=... that the network was trained with)";
}

void data_options::add(option_table& verb, bool inputs_required) {
    verb.section("Data");
    verb.add_option("--inputs", inputs,
                    "data: FILE or INPUT=FILE (.npy, .npz, .pb, .png, .jpg, a folder of any); repeat it for several inputs")
        .required(inputs_required)
        .one_each()
        .type_name("[INPUT=]FILE")
        .common()
        .reads();
    verb.add_option("--labels", labels, "class of each sample, .npy of integers; or the folder of images whose sub-folders are the classes")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_option(
            "--preprocess", preprocess,
            "for example layout=nhwc,channels=bgr,scale=1,mean=104:117:123,std=1:1:1: (x * scale - mean) / std by channel; resize=HxW for "
            "images")
        .type_name("SPEC");
    verb.add_option("--calibration", calibration, "data to choose ranges from, like --inputs; the inputs if not given")
        .one_each()
        .type_name("[INPUT=]FILE")
        .common()
        .reads();
    verb.add_option("--samples", samples, "use exactly the first N samples of the inputs; all if not given")
        .type_name("N")
        .at_least(1, "leave --samples out to use all of them");
    verb.add_option("--threads", threads, "one for each core if not given; results do not depend on it")
        .type_name("T")
        .between(1, 1024, "leave --threads out for one for each core");
    verb.section("");
}

graph::named_tensors data_options::load(const graph::model& m, const std::vector<std::string>& arguments, const char* option,
                                        bool cut) const {
    const graph::preprocessing prepare = graph::preprocessing::parse(preprocess);
    graph::named_tensors data = graph::read_inputs(m, arguments, option, {prepare.resize_height, prepare.resize_width});
    for (const graph::value_info& input : m.inputs()) {
        graph::tensor& value = data.at(input.name);
        if (!preprocess.empty() && input.type == graph::data_type::float32) value = prepare.apply(value, input);
        if (const std::string more = graph::fitting_preprocessing(value, input); !more.empty())
            throw graph::error(misfit(value, input, option, more));
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
    if (std::filesystem::is_directory(labels)) return folder_labels();
    graph::tensor t = graph::read_npy(labels);
    if (samples > 0) t = first_rows(t, static_cast<std::int64_t>(samples), "'" + labels + "'");
    std::vector<std::int64_t> values(t.size());
    const bool whole = t.type() != graph::data_type::float32 && t.type() != graph::data_type::float64 &&
                       t.type() != graph::data_type::float16 && t.type() != graph::data_type::bfloat16;
    if (!whole || !graph::ops::read_elements(t.type(), t.bytes(), std::span<std::int64_t>(values))) {
        throw graph::error("'" + labels + "' holds " + graph::name_of(t.type()) + "; labels must be integers");
    }
    return values;
}

/// The class of each image of a folder: the place of its sub-folder among all.
std::vector<std::int64_t> data_options::folder_labels() const {
    std::vector<std::int64_t> classes = graph::list_images(labels).classes;
    if (classes.empty())
        throw graph::error("--labels '" + labels + "' has no sub-folders of images, one for each class; give an .npy of integers instead");
    if (samples > classes.size())
        throw graph::error("--samples asks for more than '" + labels + "' has: " + std::to_string(classes.size()));
    if (samples > 0) classes.resize(samples);
    return classes;
}

}  // namespace qk::tool
