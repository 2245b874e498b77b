// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/data.hpp"

#include <cstring>

#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/evaluate/execute/samples.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "qk/graph/ops/elements.hpp"

namespace qk::graph::pipeline {
namespace {

tensor first_rows(const tensor& t, std::int64_t rows, const std::string& what) {
    if (t.rank() == 0 || t.dim(0) < rows)
        throw error("--samples asks for more than " + what +
                    " has: " + (t.rank() == 0 ? std::string("a scalar") : std::to_string(t.dim(0))));
    dims shape = t.shape();
    shape[0] = rows;
    return {t.type(), shape, t.buffer()};
}

}  // namespace

/// Returns the error for data that would fit with the preprocessing `more`.
std::string data_settings::misfit(const tensor& value, const value_info& input, const char* option, const std::string& more) const {
    std::string shape;
    for (const dimension& d : input.shape)
        shape += (shape.empty() ? "" : ",") + (d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
    return std::string(option) + ": input '" + input.name + "' is " + name_of(input.type) + " [" + shape +
           "] in the model, and the data given is " + name_of(value.type()) + " " + to_string(value.shape()) +
           (preprocess.empty() ? "" : " after --preprocess") + "; --preprocess " + preprocess + (preprocess.empty() ? "" : ",") + more +
           " makes it fit (add the mean=... and std=... that the network was trained with)";
}

named_tensors data_settings::load(const model& m, const std::vector<std::string>& arguments, const char* option, bool cut) const {
    const preprocessing prepare = preprocessing::parse(preprocess);
    named_tensors data = read_inputs(m, arguments, option, {prepare.resize_height, prepare.resize_width});
    for (const value_info& input : m.inputs()) {
        tensor& value = data.at(input.name);
        if (!preprocess.empty() && input.type == data_type::float32) value = prepare.apply(value, input);
        if (const std::string more = fitting_preprocessing(value, input); !more.empty()) throw error(misfit(value, input, option, more));
        if (cut && samples > 0 && input.has_shape && !input.shape.empty()) {
            const std::int64_t rows = std::max<std::int64_t>(input.shape[0].value, 1);
            value = first_rows(value, static_cast<std::int64_t>(samples) * rows, "the data of input '" + input.name + "'");
            if (const auto own = data.ragged.find(input.name); own != data.ragged.end()) own->second.resize(samples);
        }
    }
    return data;
}

bool data_settings::has_statistics() const {
    return calibration.size() == 1 && std::filesystem::is_regular_file(calibration[0]) && is_calibration_file(calibration[0]);
}

named_tensors data_settings::load_inputs(const model& m) const { return load(m, inputs, "--inputs", true); }

named_tensors data_settings::load_calibration(const model& m, std::size_t most) const {
    named_tensors all = load_all_calibration(m);
    if (hold_out == 0 && most == 0) return all;
    const std::size_t count = execute::make_samples(m, all).count, step = held_out_step(count);
    if (step > 0) all = chosen_samples(m, all, [&](std::size_t i) { return !is_held_out(i, step); });
    return most == 0 ? all : evenly_chosen(m, all, most);
}

named_tensors data_settings::load_all_calibration(const model& m) const {
    return calibration.empty() ? load_inputs(m) : load(m, calibration, "--calibration", false);
}

std::vector<std::int64_t> data_settings::load_labels() const {
    if (labels.empty()) return {};
    if (std::filesystem::is_directory(labels)) return folder_labels();
    tensor t = read_npy(labels);
    if (samples > 0) t = first_rows(t, static_cast<std::int64_t>(samples), "'" + labels + "'");
    std::vector<std::int64_t> values(t.size());
    const bool whole = t.type() != data_type::float32 && t.type() != data_type::float64 && t.type() != data_type::float16 &&
                       t.type() != data_type::bfloat16;
    if (!whole || !ops::read_elements(t.type(), t.bytes(), std::span<std::int64_t>(values)))
        throw error("'" + labels + "' holds " + name_of(t.type()) + "; labels must be integers");
    return values;
}

/// Returns the class of each image of a folder: the index of its sub-folder among all.
std::vector<std::int64_t> data_settings::folder_labels() const {
    std::vector<std::int64_t> classes = list_images(labels).classes;
    if (classes.empty())
        throw error("--labels '" + labels + "' has no sub-folders of images, one for each class; give an .npy of integers instead");
    if (samples > classes.size()) throw error("--samples asks for more than '" + labels + "' has: " + std::to_string(classes.size()));
    if (samples > 0) classes.resize(samples);
    return classes;
}

named_tensors chosen_samples(const model& m, const named_tensors& given, const std::function<bool(std::size_t)>& wanted) {
    const execute::sample_set set = execute::make_samples(m, given);
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < set.count; ++i)
        if (wanted(i)) chosen.push_back(i);
    if (chosen.size() == set.count || chosen.empty()) return given;
    named_tensors some;
    for (std::size_t k = 0; k < set.inputs.size(); ++k) {
        const std::string& name = m.inputs()[k].name;
        const tensor& all = given.at(name);
        if (!set.cut[k]) {
            some[name] = all;
            continue;
        }
        const std::size_t bytes = all.size_bytes() / set.count;
        dims shape = all.shape();
        shape[0] = shape[0] / static_cast<std::int64_t>(set.count) * static_cast<std::int64_t>(chosen.size());
        tensor part(all.type(), shape);
        for (std::size_t i = 0; i < chosen.size(); ++i) std::memcpy(part.bytes() + i * bytes, all.bytes() + chosen[i] * bytes, bytes);
        some[name] = std::move(part);
        if (const auto own = given.ragged.find(name); own != given.ragged.end())
            for (const std::size_t i : chosen) some.ragged[name].push_back(own->second[i]);
    }
    return some;
}

named_tensors evenly_chosen(const model& m, const named_tensors& given, std::size_t most) {
    const std::size_t all = execute::make_samples(m, given).count;
    if (all <= most) return given;
    return chosen_samples(m, given, [&](std::size_t i) { return i * most / all != (i + 1) * most / all; });
}

}  // namespace qk::graph::pipeline
