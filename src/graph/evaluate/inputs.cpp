// SPDX-License-Identifier: Apache-2.0
// Definitions of inputs.hpp.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "graph/evaluate/execute/runner.hpp"
#include "graph/evaluate/tensor_files.hpp"
#include "graph/files/natural_order.hpp"
#include "qk/graph/base/printable.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/files/file.hpp"

namespace qk::graph {
namespace detail {

inline std::string describe(const value_info& v) {
    return "'" + v.name + "' (" + name_of(v.type) + (v.shape.empty() ? "" : " ") + dimensions_text(v) + ")";
}

inline std::string list_inputs(const model& m) {
    std::string s;
    for (const value_info& v : m.inputs()) s += (s.empty() ? "" : ", ") + describe(v);
    return s.empty() ? "none" : s;
}

/// Returns the data files of a folder in natural order; only the inputs of ONNX test data. `others` gets the rest of the folder.
inline std::vector<std::filesystem::path> data_files(const std::filesystem::path& folder,
                                                     std::vector<std::filesystem::path>* others = nullptr) {
    namespace fs = std::filesystem;
    std::error_code failed;
    std::vector<fs::path> files, rest;
    bool test_data = false;
    const auto starts = [](const fs::path& f, const char* with) { return f.filename().string().starts_with(with); };
    for (const auto& e : fs::directory_iterator(folder, failed)) {
        const fs::path kind = e.path().extension();
        const bool array = kind == ".npy" || kind == ".npz" || kind == ".pb";
        (array ? files : rest).push_back(e.path());
        test_data = test_data || (kind == ".pb" && starts(e.path(), "input_"));
    }
    if (test_data) {
        const auto inputs = std::partition(files.begin(), files.end(), [&](const fs::path& f) { return starts(f, "input_"); });
        std::copy_if(inputs, files.end(), std::back_inserter(rest), [&](const fs::path& f) { return !starts(f, "output_"); });
        files.erase(inputs, files.end());
    }
    for (auto* list : {&files, &rest})
        std::ranges::sort(*list, [](const fs::path& a, const fs::path& b) { return natural_less(a.filename(), b.filename()); });
    if (others != nullptr) *others = std::move(rest);
    return files;
}

/// Splits FILE,FILE,... at its commas, unless there is a file of that whole name.
inline std::vector<std::string> listed_files(const std::string& argument) {
    std::error_code failed;
    if (argument.find(',') == std::string::npos || std::filesystem::exists(argument, failed)) return {argument};
    std::vector<std::string> files;
    for (std::size_t from = 0; from <= argument.size();) {
        const std::size_t comma = std::min(argument.find(',', from), argument.size());
        files.push_back(argument.substr(from, comma - from));
        from = comma + 1;
    }
    return files;
}

/// Joins samples whose lengths differ along axes that the model leaves open, padded to the longest, and appends the shape of each to
/// `ragged`. Returns an empty tensor for other data.
inline tensor join_ragged(const std::vector<tensor>& parts, const value_info& input, std::map<std::string, std::vector<dims>>& ragged) {
    if (parts.size() < 2 || !input.has_shape) return {};
    std::vector<tensor> samples;
    for (tensor part : parts) {
        if (part.rank() + 1 == input.shape.size()) {  // a sample without its axis 0
            dims shape = part.shape();
            shape.insert(shape.begin(), 1);
            part = tensor(part.type(), shape, part.buffer());
        }
        if (part.rank() != input.shape.size() || part.rank() < 2 || part.type() != parts[0].type()) return {};
        for (std::int64_t r = 0; r < part.dim(0); ++r) samples.push_back(execute::rows(part, static_cast<std::size_t>(r), 1));
    }
    if (samples.empty()) return {};
    dims longest = samples[0].shape();
    bool differ = parts[0].rank() != input.shape.size();
    for (const tensor& t : samples)
        for (std::size_t k = 1; k < longest.size(); ++k) {
            if (t.dim(k) != samples[0].dim(k) && input.shape[k].value >= 0) return {};
            differ = differ || t.dim(k) != samples[0].dim(k);
            longest[k] = std::max(longest[k], t.dim(k));
        }
    if (!differ) return {};
    for (const tensor& t : samples) ragged[input.name].push_back(t.shape());
    return execute::join_padded(std::move(samples), longest);
}

/// Returns the input with this name, or with this name as a file name; null if there is none.
inline const value_info* input_named(const model& m, const std::string& name) {
    for (const value_info& v : m.inputs())
        if (v.name == name) return &v;
    for (const value_info& v : m.inputs())
        if (as_file_name(v.name) == name) return &v;
    return nullptr;
}

/// The data given for one input, and the argument that gave it.
struct given_parts {
    std::vector<tensor> parts;
    std::string source;
};

/// Returns whether each file is a sample by itself: the graph does not keep the rows of a file apart, so files are no rows either.
inline bool files_are_samples(const model& m, const std::map<std::string, given_parts>& given, std::optional<int> batch_axis) {
    if (batch_axis) return *batch_axis == no_batch_axis;
    named_tensors first;
    bool several = false;
    for (const value_info& v : m.inputs()) {
        const auto own = given.find(v.name);
        if (own == given.end()) return false;
        first[v.name] = own->second.parts.front();
        if (own->second.parts.size() < 2) continue;
        several = true;
        if (!v.has_shape || v.shape.empty() || v.shape[0].value >= 0 || first[v.name].rank() != v.shape.size()) return false;
    }
    if (!several) return false;
    try {
        const execute::sample_set data = execute::make_samples(m, first);
        if (!data.symbolic) return !data.uncut.empty();
        const auto network = execute::make_network(m, execute::large_constants::late);
        return !execute::follow_samples(*network, data, data.axes).rows() &&
               (data.wider.empty() || !execute::follow_samples(*network, data, data.wider).rows());
    } catch (const error&) {
        return false;  // the data does not fit before it is preprocessed, or not at all: its error comes where it is used
    }
}

/// Joins files, each of them a sample, and appends the shape of each to `ragged`.
inline tensor join_files(std::vector<tensor> parts, const std::string& name, const std::string& source,
                         std::map<std::string, std::vector<dims>>& ragged) {
    dims longest = parts.front().shape();
    for (const tensor& t : parts) {
        if (t.rank() != longest.size() || t.rank() == 0 || t.type() != parts.front().type())
            throw error(source + ": " + name_of(t.type()) + " " + to_string(t.shape()) + " and " + name_of(parts.front().type()) + " " +
                        to_string(parts.front().shape()) + " are no samples of one input");
        for (std::size_t k = 0; k < longest.size(); ++k) longest[k] = std::max(longest[k], t.dim(k));
        ragged[name].push_back(t.shape());
    }
    return execute::join_padded(std::move(parts), longest);
}

/// Joins tensors along another axis than 0.
inline tensor join_along(const std::vector<tensor>& parts, int axis, const std::string& source) {
    const auto at = static_cast<std::size_t>(axis);
    if (parts.size() == 1) return parts.front();
    dims shape = parts.front().shape();
    if (shape.size() <= at) return join(parts, source);
    shape[at] = 0;
    for (const tensor& t : parts) {
        dims other = t.shape();
        const std::int64_t rows = other.size() > at ? other[at] : 0;
        if (other.size() > at) other[at] = 0;
        dims wanted = shape;
        wanted[at] = 0;
        if (other != wanted || t.type() != parts.front().type())
            throw error(source + ": " + name_of(t.type()) + " " + to_string(t.shape()) + " cannot be joined to " +
                        name_of(parts.front().type()) + " " + to_string(parts.front().shape()) + " on axis " + std::to_string(axis));
        shape[at] += rows;
    }
    tensor all(parts.front().type(), shape);
    std::size_t first = 0;
    for (const tensor& t : parts) {
        execute::put_rows(all, axis, first, t);
        first += static_cast<std::size_t>(t.dim(at));
    }
    return all;
}

/// Joins the parts of each input to its data.
inline named_tensors joined_inputs(const model& m, std::map<std::string, given_parts> given, std::optional<int> batch_axis) {
    named_tensors all;
    all.batch_axis = batch_axis;
    const bool apart = files_are_samples(m, given, batch_axis);
    for (auto& [name, own] : given) {
        const auto input = std::ranges::find(m.inputs(), name, &value_info::name);
        if (apart && own.parts.size() > 1) {
            all[name] = join_files(std::move(own.parts), name, own.source, all.ragged);
            continue;
        }
        if (batch_axis && *batch_axis > 0) {
            all[name] = join_along(own.parts, *batch_axis, own.source);
            continue;
        }
        tensor joined = join_ragged(own.parts, *input, all.ragged);
        all[name] = joined.empty() ? join(own.parts, own.source) : std::move(joined);
    }
    return all;
}

}  // namespace detail

named_tensor read_tensor_proto(const std::filesystem::path& file) {
    onnx::TensorProto p;
    if (!p.ParseFromString(read_file(file))) throw error(file.string() + ": not an ONNX tensor");
    try {
        return {p.name(), to_tensor(p, file.has_parent_path() ? file.parent_path() : ".")};
    } catch (const error& e) {
        throw error(file.string() + ": " + e.what());
    }
}

std::vector<named_tensor> read_tensors(const std::filesystem::path& path, image_size size) {
    namespace fs = std::filesystem;
    std::error_code failed;
    if (!fs::is_directory(path, failed)) {
        if (path.extension() == ".pb") return {read_tensor_proto(path)};
        if (path.extension() == ".npz") return read_npz(path);
        if (is_image_name(path)) return {{path.stem().string(), read_images({path}, size)}};
        refuse_other_image(path);
        return {{path.stem().string(), read_npy(path)}};
    }
    const std::vector<fs::path> files = detail::data_files(path);
    if (files.empty()) {
        const image_folder images = list_images(path);
        if (images.files.empty()) throw error("folder '" + path.string() + "' holds no .npy, .npz or .pb file and no image (.png, .jpg)");
        return {{path.filename().string(), read_images(images.files, size)}};
    }
    std::vector<named_tensor> all;
    for (const fs::path& f : files)
        for (named_tensor& t : read_tensors(f)) all.push_back(std::move(t));
    return all;
}

std::vector<std::filesystem::path> files_of_tensors(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    std::vector<fs::path> all;
    const bool folder = fs::is_directory(path, failed);
    std::vector<fs::path> files = folder ? detail::data_files(path) : std::vector<fs::path>{path};
    if (folder && files.empty()) files = list_images(path).files;
    for (const fs::path& file : files) {
        if (!fs::exists(file, failed)) continue;
        all.push_back(file);
        onnx::TensorProto p;
        if (file.extension() != ".pb" || !fs::is_regular_file(file, failed) || !p.ParseFromString(read_file(file))) continue;
        for (const auto& e : p.external_data())
            if (e.key() == "location") all.push_back(file.parent_path() / e.value());
    }
    return all;
}

std::vector<std::filesystem::path> passed_over(const std::filesystem::path& path) {
    std::error_code failed;
    std::vector<std::filesystem::path> others;
    if (!std::filesystem::is_directory(path, failed)) return others;
    return detail::data_files(path, &others).empty() ? list_images(path).passed_over : others;
}

std::string as_file_name(std::string name) {
    std::string out;
    for (std::string_view rest = name; !rest.empty();) {
        const code_point c = first_code_point(rest);
        const std::size_t length = std::max<std::size_t>(c.length, 1);
        if (c.length == 0 || is_control(c.value) || c.value == '/' || c.value == ':') out += '_';
        else out += rest.substr(0, length);
        rest.remove_prefix(length);
    }
    return out;
}

tensor join(const std::vector<tensor>& parts, const std::string& what) {
    if (parts.size() == 1) return parts.front();
    dims shape = parts.front().shape();
    if (shape.empty()) throw error(what + ": values without dimensions cannot be joined on axis 0");
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const tensor& t = parts[i];
        if (t.type() != parts[0].type() || t.rank() != shape.size() || !std::equal(shape.begin() + 1, shape.end(), t.shape().begin() + 1)) {
            throw error(what + ": " + name_of(t.type()) + " " + to_string(t.shape()) + " cannot be joined to " + name_of(parts[0].type()) +
                        " " + to_string(parts[0].shape()) + " on axis 0");
        }
        shape[0] += t.dim(0);
    }
    tensor all(parts[0].type(), shape);
    std::size_t at = 0;
    for (const tensor& t : parts) {
        if (t.size_bytes() > 0) std::memcpy(all.bytes() + at, t.bytes(), t.size_bytes());
        at += t.size_bytes();
    }
    return all;
}

named_tensors read_inputs(const model& m, const std::vector<std::string>& arguments, const std::string& option, image_size size,
                          std::optional<int> batch_axis) {
    const auto& inputs = m.inputs();
    const auto named = [&](const std::string& name) { return detail::input_named(m, name); };
    std::map<std::string, detail::given_parts> all;
    const auto give = [&](const std::string& name, std::vector<tensor> parts, const std::string& source) {
        if (!all.emplace(name, detail::given_parts{std::move(parts), source}).second)
            throw error(option + " " + source + ": input '" + name + "' is given twice");
    };
    for (const std::string& argument : arguments) {
        const std::size_t equals = argument.find('=');
        if (equals != std::string::npos) {
            const std::string name = argument.substr(0, equals);
            const bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const value_info& v) { return v.name == name; });
            std::error_code failed;
            if (!is_input && !std::filesystem::exists(argument, failed))
                throw error(option + " " + argument + ": the model has no input '" + name + "'; it has " + detail::list_inputs(m));
            if (is_input) {
                std::vector<tensor> parts;
                for (const std::string& file : detail::listed_files(argument.substr(equals + 1)))
                    for (named_tensor& t : read_tensors(file, size)) parts.push_back(std::move(t.value));
                give(name, parts, argument);
                continue;
            }
        }
        std::vector<named_tensor> found;
        bool keys = true;  // all names are those of arrays in .npz files, which name their input
        for (const std::string& file : detail::listed_files(argument)) {
            keys = keys && std::ranges::all_of(files_of_tensors(file), [](const auto& f) { return f.extension() == ".npz"; });
            for (named_tensor& t : read_tensors(file, size)) found.push_back(std::move(t));
        }
        const auto other = std::ranges::find_if(found, [&](const named_tensor& t) { return named(t.name) == nullptr; });
        if (keys && other != found.end() && std::ranges::any_of(found, [&](const named_tensor& t) { return named(t.name) != nullptr; }))
            throw error(option + " " + argument + ": array '" + other->name +
                        "' is no input of the model, beside arrays that are; it has " + detail::list_inputs(m) +
                        ": leave the array out of the file");
        const bool by_name = std::all_of(found.begin(), found.end(), [&](const named_tensor& t) { return named(t.name) != nullptr; });
        std::vector<const value_info*> missing;
        for (const value_info& v : inputs)
            if (all.find(v.name) == all.end()) missing.push_back(&v);
        if (by_name) {
            std::map<std::string, std::vector<tensor>> parts;
            for (named_tensor& t : found) parts[named(t.name)->name].push_back(std::move(t.value));
            for (auto& [name, list] : parts) give(name, std::move(list), argument);
        } else if (missing.size() == 1 || (found.size() == 1 && !missing.empty())) {
            std::vector<tensor> parts;
            for (named_tensor& t : found) parts.push_back(std::move(t.value));
            give(missing.front()->name, parts, argument);
        } else if (found.size() == missing.size()) {
            for (std::size_t i = 0; i < found.size(); ++i) give(missing[i]->name, {found[i].value}, argument);
        } else {
            throw error(option + " " + argument + ": holds " + std::to_string(found.size()) + " tensors, beginning with '" +
                        found.front().name + "', that do not match the model's inputs: " + detail::list_inputs(m));
        }
    }
    for (const value_info& v : inputs)
        if (all.find(v.name) == all.end())
            throw error("no data for the model's input " + detail::describe(v) + "; give it with " + option + " " + v.name + "=FILE.npy");
    return detail::joined_inputs(m, std::move(all), batch_axis);
}

named_tensors join_batches(const model& m, std::span<const named_tensors> batches, const std::string& option,
                           std::optional<int> batch_axis) {
    std::map<std::string, detail::given_parts> all;
    std::map<std::string, std::vector<dims>> ragged;
    for (std::size_t b = 0; b < batches.size(); ++b) {
        const std::string where = option + (batches.size() == 1 ? "" : ", batch " + std::to_string(b));
        const auto give = [&](const std::string& name, const tensor& value) {
            detail::given_parts& own = all[name];
            own.source = option;
            if (own.parts.size() != b)
                throw error(where + ": input '" + name +
                            (own.parts.size() > b ? "' is given twice" : "' has no array in an earlier batch"));
            if (value.empty()) throw error(where + ": the array of input '" + name + "' is no tensor");
            own.parts.push_back(value);
        };
        for (const auto& [name, value] : batches[b]) {
            if (name.empty()) continue;
            const value_info* input = detail::input_named(m, name);
            if (input == nullptr) throw error(where + ": the model has no input '" + name + "'; it has " + detail::list_inputs(m));
            give(input->name, value);
            if (const auto own = batches[b].ragged.find(name); own != batches[b].ragged.end()) ragged[input->name] = own->second;
        }
        const auto lacks = [&](const value_info& v) { return !all.contains(v.name) || all.at(v.name).parts.size() == b; };
        if (const auto rest = batches[b].find(""); rest != batches[b].end()) {
            const auto open = std::ranges::find_if(m.inputs(), lacks);
            if (open == m.inputs().end())
                throw error(where + ": an array without a name is left over; the model has " + detail::list_inputs(m));
            give(open->name, rest->second);
        }
        if (const auto open = std::ranges::find_if(m.inputs(), lacks); open != m.inputs().end())
            throw error(where + ": no data for the model's input " + detail::describe(*open));
    }
    if (batches.size() > 1 && !ragged.empty()) throw error(option + ": ragged samples come as one batch");
    const std::optional<int> axis = batch_axis || batches.empty() ? batch_axis : batches[0].batch_axis;
    named_tensors joined = detail::joined_inputs(m, std::move(all), axis);
    if (!ragged.empty()) joined.ragged = std::move(ragged);
    return joined;
}

}  // namespace qk::graph
