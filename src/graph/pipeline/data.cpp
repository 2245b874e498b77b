// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/data.hpp"

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/elements.hpp"
#include "graph/pipeline/bad_samples.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"

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

/// Throws for data whose first open axis 0 has no element: there is no sample.
void check_count(const model& m, const named_tensors& data, const char* option) {
    for (const value_info& input : m.inputs()) {
        const tensor& value = data.at(input.name);
        const bool open = !input.has_shape || (!input.shape.empty() && input.shape[0].value < 0);
        if (!open || value.rank() == 0) continue;
        if (value.dim(0) > 0) return;
        throw error(std::string(option) + ": the data of input '" + input.name + "' has no samples (" + name_of(value.type()) + " " +
                    to_string(value.shape()) + ")");
    }
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

named_tensors data_settings::load(const model& m, const data_source& from, const char* option, bool cut, bool keeps_nan) const {
    const preprocessing prepare = preprocessing::parse(preprocess);
    named_tensors data = from.read(m, option, {prepare.resize_height, prepare.resize_width}, read_batch_axis());
    for (const value_info& input : m.inputs()) {
        tensor& value = data.at(input.name);
        if (!preprocess.empty() && input.type == data_type::float32) value = prepare.apply(value, input);
        if (const std::string more = fitting_preprocessing(value, input); !more.empty()) throw error(misfit(value, input, option, more));
    }
    check_count(m, data, option);
    if (cut && samples > 0) keep_first(m, data);
    if (keeps_nan && !skip_bad_samples) return data;
    const bad_samples bad = find_bad_samples(m, data);
    if (bad.which.empty()) return data;
    if (skip_bad_samples) return without_samples(m, data, bad, option);
    throw error(std::string(option) + ": " + bad.text() + "; mend the data, or leave such samples out with --skip-bad-samples");
}

/// Cuts data to the first `samples`.
void data_settings::keep_first(const model& m, named_tensors& data) const {
    const auto n = static_cast<std::int64_t>(samples);
    if (data.batch_axis == no_batch_axis && data.ragged.empty() && samples > 1)
        throw error("--samples " + std::to_string(samples) + ": with --batch-axis none the data is one sample");
    if (data.batch_axis && data.ragged.empty()) {
        if (*data.batch_axis == no_batch_axis) return;
        const execute::sample_set all = execute::make_samples(m, data);
        if (all.count < samples) throw error("--samples asks for more than the data has: " + std::to_string(all.count));
        for (std::size_t i = 0; i < all.inputs.size(); ++i)
            if (all.axes[i] >= 0) data[m.inputs()[i].name] = execute::rows_along(all.inputs[i], all.axes[i], 0, samples * all.rows_each(i));
        return;
    }
    for (const value_info& input : m.inputs()) {
        if (!input.has_shape || input.shape.empty()) continue;
        tensor& value = data.at(input.name);
        const std::string what = "the data of input '" + input.name + "'";
        std::int64_t rows = std::max<std::int64_t>(input.shape[0].value, 1);
        if (const auto own = data.ragged.find(input.name); own != data.ragged.end()) {
            if (own->second.size() < samples)
                throw error("--samples asks for more than " + what + " has: " + std::to_string(own->second.size()));
            rows = value.dim(0) / static_cast<std::int64_t>(own->second.size());
            own->second.resize(samples);
        } else if (!data.ragged.empty() && value.rank() > 0 && value.dim(0) < n * rows) {
            continue;  // given whole to each sample
        }
        value = first_rows(value, n * rows, what);
    }
}

std::optional<int> data_settings::read_batch_axis() const {
    if (batch_axis.empty()) return std::nullopt;
    if (batch_axis == "none") return no_batch_axis;
    const bool number = batch_axis.size() <= 2 && batch_axis.find_first_not_of("0123456789") == std::string::npos;
    if (!number) throw error("--batch-axis '" + batch_axis + "' is neither none nor an axis: 0, 1, ...");
    return std::stoi(batch_axis);
}

bool data_settings::has_statistics() const {
    const std::vector<std::string>& files = calibration.files;
    return files.size() == 1 && std::filesystem::is_regular_file(files[0]) && is_calibration_file(files[0]);
}

named_tensors data_settings::load_inputs(const model& m, bool keeps_nan) const { return load(m, inputs, "--inputs", true, keeps_nan); }

named_tensors data_settings::load_calibration(const model& m, std::size_t most) const {
    named_tensors all = load_all_calibration(m);
    if (hold_out == 0 && most == 0) return all;
    const std::size_t step = held_out_step(samples_of(m, all).count);
    if (step > 0) all = chosen_samples(m, all, [&](std::size_t i) { return !is_held_out(i, step); });
    return most == 0 ? all : evenly_chosen(m, all, most);
}

named_tensors data_settings::load_all_calibration(const model& m) const {
    return calibration.empty() ? load_inputs(m) : load(m, calibration, "--calibration", false, false);
}

std::vector<std::int64_t> data_settings::load_labels(const std::vector<std::size_t>& left_out) const {
    std::size_t each = 1;
    std::vector<std::int64_t> all = all_labels(each);
    for (auto s = left_out.rbegin(); s != left_out.rend(); ++s)
        if ((*s + 1) * each <= all.size())
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(*s * each), all.begin() + static_cast<std::ptrdiff_t>((*s + 1) * each));
    return all;
}

/// Returns the labels as given, and how many each sample has.
std::vector<std::int64_t> data_settings::all_labels(std::size_t& each) const {
    if (labels.empty()) return {};
    if (std::filesystem::is_directory(labels.file)) return folder_labels();
    const std::string name = "'" + labels.name("labels") + "'";
    tensor t = labels.read();
    if (samples > 0) t = first_rows(t, static_cast<std::int64_t>(samples), name);
    std::vector<std::int64_t> values(t.size());
    if (t.rank() > 0 && t.dim(0) > 0) each = t.size() / static_cast<std::size_t>(t.dim(0));
    const bool whole = t.type() != data_type::float32 && t.type() != data_type::float64 && t.type() != data_type::float16 &&
                       t.type() != data_type::bfloat16;
    if (!whole || !ops::read_elements(t.type(), t.bytes(), std::span<std::int64_t>(values)))
        throw error(name + " holds " + name_of(t.type()) + "; labels must be integers");
    return values;
}

/// Returns the class of each image of a folder: the index of its sub-folder among all.
std::vector<std::int64_t> data_settings::folder_labels() const {
    std::vector<std::int64_t> classes = list_images(labels.file).classes;
    if (classes.empty())
        throw error("--labels '" + labels.file + "' has no sub-folders of images, one for each class; give an .npy of integers instead");
    if (samples > classes.size()) throw error("--samples asks for more than '" + labels.file + "' has: " + std::to_string(classes.size()));
    if (samples > 0) classes.resize(samples);
    return classes;
}

named_tensors chosen_samples(const model& m, const named_tensors& given, const std::function<bool(std::size_t)>& wanted) {
    const execute::sample_set set = samples_of(m, given);
    std::vector<std::size_t> gone;
    for (std::size_t i = 0; i < set.count; ++i)
        if (!wanted(i)) gone.push_back(i);
    if (gone.empty() || gone.size() == set.count) return given;
    return remaining_samples(m, given, set, gone);
}

named_tensors evenly_chosen(const model& m, const named_tensors& given, std::size_t most) {
    const std::size_t all = samples_of(m, given).count;
    if (all <= most) return given;
    return chosen_samples(m, given, [&](std::size_t i) { return i * most / all != (i + 1) * most / all; });
}

}  // namespace qk::graph::pipeline
