// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/data.hpp"

#include <algorithm>
#include <cmath>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/elements.hpp"
#include "graph/pipeline/bad_samples.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "qk/graph/ops/tensor_values.hpp"

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

std::size_t rows_of(const tensor& t) { return t.rank() == 0 ? 1 : static_cast<std::size_t>(t.dim(0)); }

/// Returns how many labels each row has, which errors need to name a place.
std::size_t labels_each(const tensor& t) { return t.size() / std::max<std::size_t>(rows_of(t), 1); }

/// Returns labels of any type as integers. Throws for the first that is none.
std::vector<std::int64_t> whole_numbers(const tensor& t, const std::string& name) {
    std::vector<std::int64_t> values(t.size());
    const auto fail = [&](std::size_t i, const std::string& text, const char* why) -> void {
        throw error(name + ": label " + text + " at " + label_index(i, labels_each(t)) + " is " + why);
    };
    const auto numbers = [&](auto to) {
        if (!ops::read_elements(t.type(), t.bytes(), to)) throw error(name + " holds " + name_of(t.type()) + "; labels are whole numbers");
    };
    if (!is_integer(t.type()) && t.type() != data_type::boolean) {
        std::vector<double> given(t.size());
        numbers(std::span(given));
        for (std::size_t i = 0; i < given.size(); ++i) {
            const bool fits = std::abs(given[i]) < 0x1p63;
            if (!fits || given[i] != std::trunc(given[i])) fail(i, formatted("%.9g", given[i]), fits ? "no whole number" : "no class");
            values[i] = static_cast<std::int64_t>(given[i]);
        }
        return values;
    }
    numbers(std::span(values));
    if (t.type() == data_type::uint64)
        for (std::size_t i = 0; i < values.size(); ++i)
            if (values[i] < 0) fail(i, std::to_string(static_cast<std::uint64_t>(values[i])), "no class");
    return values;
}

/// Returns the error for labels that are not as many as the rows of the data.
error misfit_labels(const tensor& t, const std::vector<std::int64_t>& all, std::size_t wanted, const std::string& name) {
    const std::size_t each = labels_each(t), first = wanted * each;
    const bool matrix = t.rank() > 1;
    std::string text = name + " has " + (matrix ? "labels of shape " + to_string(t.shape()) : std::to_string(all.size()) + " labels") +
                       " for " + std::to_string(wanted) + " samples";
    if (first < all.size()) text += ": label " + std::to_string(all[first]) + " at " + label_index(first, each) + " is of none of them";
    else if (matrix) text += ": axis 0 has to count them";
    return error(text);
}

/// Returns an output's shape as the model declares it; empty if it does not.
std::vector<dimension> output_shape(const model& m, int index) {
    if (index < 0 || static_cast<std::size_t>(index) >= m.outputs().size()) return {};
    return m.outputs()[static_cast<std::size_t>(index)].shape;
}

/// Throws for a label that is no class of an output of this declared shape; does nothing where that leaves the classes open.
void check_classes(const std::vector<dimension>& declared, const std::vector<std::int64_t>& all, std::size_t each, std::int64_t ignored,
                   const std::string& name) {
    dims shape;
    for (const dimension& d : declared) {
        const bool counts_samples = shape.empty(), counts_positions = shape.size() == 1 && declared.size() == 3;
        if (d.value < 0 && !counts_samples && !counts_positions) return;
        shape.push_back(d.value < 0 ? 1 : d.value);
    }
    if (shape.empty()) return;
    try {
        check_labels(all, each, choices_of(shape, each).classes, ignored);
    } catch (const error& e) {
        throw error(name + ": " + e.what());
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
    if (held_out.of > 0) all = chosen_samples(m, all, [&](std::size_t i) { return !held_out.has(i); });
    return most == 0 ? all : evenly_chosen(m, all, most);
}

named_tensors data_settings::load_all_calibration(const model& m) const {
    if (read_before) return *read_before;
    return calibration.empty() ? load_inputs(m) : load(m, calibration, "--calibration", false, false);
}

std::vector<std::int64_t> data_settings::load_labels(const model& m, const named_tensors& data, std::optional<int> output_index) const {
    if (labels.empty()) return {};
    const std::string name = "'" + labels.name("labels") + "'";
    tensor t = std::filesystem::is_directory(labels.file) ? folder_labels() : labels.read();
    const execute::sample_set set = samples_of(m, data);
    const std::size_t count = set.count + data.left_out.size();
    // A model of a fixed batch takes several rows as one sample; axis 0 of the labels counts the rows, or the samples. Where the output
    // does not say how many rows it has, it has as many as the input.
    const std::vector<dimension> shape = output_shape(m, output_index.value_or(0));
    const auto cut = static_cast<std::size_t>(std::ranges::find_if(set.axes, [](int axis) { return axis >= 0; }) - set.axes.begin());
    const bool is_cut = cut < set.axes.size();
    std::size_t batch = is_cut ? set.rows_each(cut) : 1;
    if (!shape.empty() && shape[0].value >= 1) batch = static_cast<std::size_t>(shape[0].value);
    const std::size_t all_samples = is_cut || samples == 0 ? count : samples;
    const bool by_row = samples > 0 ? rows_of(t) >= all_samples * batch : rows_of(t) != all_samples;
    const std::size_t wanted = by_row ? all_samples * batch : all_samples;
    if (samples > 0 && !inputs.empty()) t = first_rows(t, static_cast<std::int64_t>(wanted), name);
    std::vector<std::int64_t> all = whole_numbers(t, name);
    if (is_cut && rows_of(t) != wanted) throw misfit_labels(t, all, wanted, name);
    const std::size_t each = all.size() / count;
    if (output_index) check_classes(shape, all, each, positions.ignore_label, name);
    for (auto s = data.left_out.rbegin(); s != data.left_out.rend(); ++s)
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(*s * each), all.begin() + static_cast<std::ptrdiff_t>((*s + 1) * each));
    if (output_index) counting_labels(all, positions.ignore_label, name);
    return all;
}

/// Returns the class of each image of a folder: the index of its sub-folder among all.
tensor data_settings::folder_labels() const {
    const std::vector<std::int64_t> classes = list_images(labels.file).classes;
    if (classes.empty())
        throw error("--labels '" + labels.file + "' has no sub-folders of images, one for each class; give an .npy of integers instead");
    return make_tensor<std::int64_t>({static_cast<std::int64_t>(classes.size())}, classes);
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
