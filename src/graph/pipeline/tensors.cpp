// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/tensors.hpp"

#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/op.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::pipeline {
namespace {

std::string reader_name(const model& m, const model::use& u) { return u.node < 0 ? "the model's output" : m.graph().node(u.node).name(); }

/// Adds a tensor, and behind it what its readers take where they quantize it in different ways.
void add_tensor(std::vector<traced_tensor>& all, const model& m, const precision_plan& plan, const traced_tensor& plain) {
    std::vector<std::pair<std::string, const quantizer*>> readers;
    for (const model::use& u : m.uses(plain.tensor)) {
        if (u.input < 0 && u.node >= 0) continue;  // inside a body, which the plan does not reach
        const std::string consumer = u.node < 0 ? "" : m.graph().node(u.node).name();
        readers.emplace_back(reader_name(m, u), plan.find({plain.tensor, consumer, u.input}));
    }
    const auto same = [&](const auto& r) {
        const quantizer *a = r.second, *b = readers.front().second;
        return a == b || (a != nullptr && b != nullptr && *a == *b);
    };
    traced_tensor main = plain;
    if (!readers.empty() && std::ranges::all_of(readers, same)) {
        if (readers.front().second != nullptr) main.how = *readers.front().second;
        all.push_back(std::move(main));
        return;
    }
    main.mixed = !readers.empty();
    all.push_back(main);
    std::set<std::string> taken;
    for (const auto& [reader, how] : readers) {
        if (how == nullptr || !taken.insert(reader).second) continue;
        traced_tensor own = plain;
        own.name = plain.tensor + " -> " + reader;
        own.how = *how;
        all.push_back(std::move(own));
    }
}

}  // namespace

std::vector<traced_tensor> trace_tensors(const model& m, const precision_plan& plan) {
    std::vector<traced_tensor> all;
    for (const value_info& v : m.inputs()) add_tensor(all, m, plan, {.name = v.name, .tensor = v.name, .node = {}, .op_type = {}});
    std::set<std::string> constants;
    std::set<std::string> sequences;
    for (const onnx::NodeProto& n : m.graph().node()) {
        for (const std::string& t : n.input()) {
            if (!m.is_constant(t) || !constants.insert(t).second) continue;
            std::vector<traced_tensor> own;
            add_tensor(own, m, plan, {.name = t, .tensor = t, .node = {}, .op_type = {}, .constant = true});
            for (traced_tensor& o : own)
                if (o.how) all.push_back(std::move(o));
        }
        const bool takes_one = std::ranges::any_of(n.input(), [&](const std::string& t) { return sequences.contains(t); });
        const bool sequence = makes_sequence(n, takes_one);
        for (const std::string& t : n.output()) {
            if (t.empty()) continue;
            if (sequence) sequences.insert(t);
            else add_tensor(all, m, plan, {.name = t, .tensor = t, .node = n.name(), .op_type = n.op_type()});
        }
    }
    return all;
}

std::string tapped_model::tap(const std::string& tensor, const quantizer* how) {
    const std::string name = "qk_tap_" + std::to_string(taps_++);
    onnx::NodeProto& n = *graph().add_node();
    n.set_op_type("Identity");
    n.set_name(name);
    n.add_input(tensor);
    n.add_output(name);
    graph().add_output()->set_name(name);
    plan_.edges[{tensor, name, 0}] = how != nullptr ? *how : quantizer{};
    return name;
}

named_tensors tapped_model::run(const named_tensors& inputs, int threads) {
    if (!runs_) {
        model_.reindex();
        runs_.emplace(model_, evaluate_options{.threads = threads});
    }
    named_tensors whole = inputs;
    whole.batch_axis = no_batch_axis;
    return runs_->run(whole, plan_).outputs;
}

std::vector<named_tensors> runs_of(const model& m, const named_tensors& inputs) {
    const execute::sample_set samples = execute::make_samples(m, inputs);
    const std::size_t count = samples.symbolic && !samples.ragged && !inputs.batch_axis ? 1 : samples.count;
    std::vector<named_tensors> runs;
    for (std::size_t s = 0; s < count; ++s) {
        const std::vector<tensor> values = count == 1 ? samples.slice(0, samples.count) : samples.slice(s, 1);
        named_tensors& run = runs.emplace_back();
        for (std::size_t i = 0; i < values.size(); ++i) run[m.inputs()[i].name] = values[i];
    }
    return runs;
}

tensor_source::tensor_source(const model& m, const precision_plan& plan, const std::vector<traced_tensor>& tensors, int threads)
    : all_(m, plan), threads_(threads) {
    for (const traced_tensor& t : tensors) names_.emplace_back(t.name, all_.tap(t.tensor, t.how ? &*t.how : nullptr));
}

std::map<std::string, tensor> tensor_source::run(const named_tensors& inputs) {
    named_tensors outputs = all_.run(inputs, threads_);
    std::map<std::string, tensor> values;
    for (const auto& [name, output] : names_)
        if (const tensor& value = outputs.at(output); !value.empty() && value.type() != data_type::string) values[name] = value;
    return values;
}

std::vector<std::string> file_names_for(const std::vector<std::string>& names) {
    constexpr std::size_t longest = 200;  // bytes; file systems take 255, with the ending and what is written beside
    std::vector<std::string> files;
    std::set<std::string> taken;
    for (const std::string& given : names) {
        std::string name = as_file_name(given);
        if (name.size() > longest) {
            std::size_t cut = longest;
            while (cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xc0u) == 0x80u) --cut;  // not inside a character
            name = name.substr(0, cut) + "~";
        }
        std::string own = name;
        for (int n = 2; !taken.insert(own).second; ++n) own = name + "-" + std::to_string(n);
        files.push_back(std::move(own));
    }
    return files;
}

namespace {

constexpr const char* index_name = "index.json";

std::vector<std::string> files_of(const std::vector<traced_tensor>& tensors) {
    std::vector<std::string> names;
    for (const traced_tensor& t : tensors) names.push_back(t.name);
    return file_names_for(names);
}

/// Joins what the runs have of a tensor: along axis 0 where they are alike, else one behind the other without a shape.
tensor join_runs(std::vector<tensor> parts, bool& alike) {
    const dims first = parts.front().shape();
    alike = parts.size() == 1 || (!first.empty() && std::ranges::all_of(parts, [&](const tensor& t) { return t.shape() == first; }));
    if (!alike)
        for (tensor& t : parts) t = t.reshaped({static_cast<std::int64_t>(t.size())});
    return join(parts, "--dump");
}

}  // namespace

tensor_dump::tensor_dump(std::filesystem::path folder, bool overwrite, std::string model, std::vector<traced_tensor> tensors)
    : folder_(std::filesystem::absolute(folder).lexically_normal()), model_(std::move(model)), tensors_(std::move(tensors)) {
    if (!folder_.has_filename()) folder_ = folder_.parent_path();
    std::error_code failed;
    if (std::filesystem::exists(folder_, failed)) {
        if (!std::filesystem::is_directory(folder_, failed)) throw error("--dump: " + folder_.string() + " is a file; name a folder");
        const bool empty = std::filesystem::is_empty(folder_, failed), dump = std::filesystem::exists(folder_ / index_name, failed);
        if (!empty && !(overwrite && dump))
            throw error("--dump: " + folder_.string() +
                        (dump ? " holds a dump already; --overwrite replaces it" : " is not empty; name a new folder"));
    }
    std::filesystem::create_directories(folder_.parent_path(), failed);
    beside_ = folder_.parent_path() / ("." + folder_.filename().string() + ".qk-" + std::to_string(::getpid()) + ".part");
    if (!std::filesystem::create_directory(beside_, failed)) throw error("--dump: cannot make a folder beside " + folder_.string());
}

tensor_dump::~tensor_dump() {
    std::error_code ignored;
    std::filesystem::remove_all(beside_, ignored);
}

void tensor_dump::add(std::map<std::string, tensor> run) { runs_.push_back(std::move(run)); }

std::size_t tensor_dump::commit(std::size_t samples) {
    nlohmann::ordered_json index{{"model", model_}, {"samples", samples}, {"runs", runs_.size()}};
    index["tensors"] = nlohmann::ordered_json::array();
    const std::vector<std::string> files = files_of(tensors_);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const traced_tensor& t = tensors_[i];
        std::vector<tensor> parts;
        for (auto& run : runs_)
            if (const auto found = run.find(t.name); found != run.end()) parts.push_back(found->second);
        if (parts.size() != runs_.size() || parts.empty()) continue;  // no tensor of numbers
        if (t.constant) parts.resize(1);
        bool alike = true;
        const tensor all = join_runs(parts, alike);
        write_npy(beside_ / (files[i] + ".npy"), all);
        nlohmann::ordered_json entry{{"order", index["tensors"].size()}, {"name", t.name}, {"node", t.node}};
        if (!t.op_type.empty()) entry["operator"] = t.op_type;
        entry["file"] = files[i] + ".npy";
        entry["shape"] = all.shape();
        entry["type"] = name_of(all.type());
        if (t.constant) entry["constant"] = true;
        if (t.how) entry["format"] = std::string(to_text(t.how->format).view());
        if (!alike)
            for (const tensor& p : parts) entry["shapes"].push_back(p.shape());
        index["tensors"].push_back(std::move(entry));
    }
    write_file(beside_ / index_name, json_text(index, 1) + "\n");
    std::error_code failed;
    const std::filesystem::path old = beside_.string() + "-old";
    const bool replaces = std::filesystem::exists(folder_, failed);
    if (replaces) std::filesystem::rename(folder_, old, failed);
    if (!failed) std::filesystem::rename(beside_, folder_, failed);
    if (failed) {
        const std::string why = failed.message();
        if (replaces && !std::filesystem::exists(folder_, failed)) std::filesystem::rename(old, folder_, failed);
        throw error("--dump: cannot put " + folder_.string() + " in place: " + why);
    }
    if (replaces) std::filesystem::remove_all(old, failed);
    return index["tensors"].size();
}

tensor_folder::tensor_folder(const std::filesystem::path& folder, const std::vector<traced_tensor>& tensors) {
    std::error_code failed;
    if (std::filesystem::exists(folder / index_name, failed)) {
        const json_cursor index = json_cursor::load(folder / index_name);
        if (const auto runs = index.find("runs")) runs_ = static_cast<std::size_t>(runs->integer(0, std::int64_t{1} << 40));
        const json_cursor list = index.at("tensors");
        for (std::size_t i = 0; i < list.size(); ++i) {
            const json_cursor t = list.at(i);
            const std::string file = t.at("file").text();
            if (std::filesystem::path(file).filename() != file || file.empty())
                throw error((folder / index_name).string() + ": '" + file + "' is no name of a file in this folder");
            entry e{.name = t.at("name").text(), .file = folder / file, .shapes = {}, .constant = t.has("constant")};
            if (const auto shapes = t.find("shapes"))
                for (std::size_t k = 0; k < shapes->size(); ++k) {
                    const json_cursor row = shapes->at(k);
                    dims& shape = e.shapes.emplace_back();
                    for (std::size_t d = 0; d < row.size(); ++d) shape.push_back(row.at(d).integer(0, std::int64_t{1} << 40));
                }
            entries_.push_back(std::move(e));
        }
    } else {
        const std::vector<std::string> files = files_of(tensors);
        for (std::size_t i = 0; i < tensors.size(); ++i)
            if (const std::filesystem::path file = folder / (files[i] + ".npy"); std::filesystem::exists(file, failed))
                entries_.push_back({.name = tensors[i].name, .file = file, .shapes = {}, .constant = tensors[i].constant});
    }
    if (entries_.empty())
        throw error(folder.string() +
                    " has no tensor of this network: NAME.npy with '/', ':' and control characters as '_', or an index.json");
}

std::map<std::string, tensor> tensor_folder::run(std::size_t run, std::size_t all) const {
    std::map<std::string, tensor> values;
    for (const entry& e : entries_) {
        const tensor whole = read_npy(e.file);
        if (!e.shapes.empty()) {
            std::size_t first = 0;
            for (std::size_t k = 0; k < run && k < e.shapes.size(); ++k) first += element_count(e.shapes[k]);
            if (run >= e.shapes.size() || first + element_count(e.shapes[run]) > whole.size())
                throw error(e.file.string() + " does not hold what index.json says");
            const tensor part = whole.rank() == 1 ? execute::rows(whole, first, element_count(e.shapes[run])) : whole;
            values[e.name] = part.reshaped(e.shapes[run]);
        } else if (all == 1 || e.constant) {
            values[e.name] = whole;
        } else {
            const auto rows = whole.rank() == 0 ? 0 : static_cast<std::size_t>(whole.dim(0));
            if (rows % all != 0 || rows == 0)
                throw error(e.file.string() + " has " + std::to_string(rows) + " rows, which " + std::to_string(all) +
                            " samples do not divide");
            values[e.name] = execute::rows(whole, run * (rows / all), rows / all);
        }
    }
    return values;
}

}  // namespace qk::graph::pipeline
