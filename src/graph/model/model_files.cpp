// SPDX-License-Identifier: Apache-2.0
// Definitions of model_files.hpp.
#include "qk/graph/model/model_files.hpp"

#include <onnx/onnx_pb.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "qk/graph/base/error.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/model/utf8_names.hpp"

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

void collect_external(const onnx::TensorProto& t, const fs::path& folder, std::vector<fs::path>& files) {
    for (const auto& e : t.external_data())
        if (e.key() == "location" && e.value().find('\0') == std::string::npos) files.push_back(folder / e.value());
}

void collect_external(const onnx::GraphProto& g, const fs::path& folder, std::vector<fs::path>& files) {
    for (const auto& t : g.initializer()) collect_external(t, folder, files);
    for (const auto& n : g.node())
        for (const auto& a : n.attribute()) {
            collect_external(a.t(), folder, files);
            for (const auto& t : a.tensors()) collect_external(t, folder, files);
            if (a.has_g()) collect_external(a.g(), folder, files);
            for (const auto& inner : a.graphs()) collect_external(inner, folder, files);
        }
}

/// Serialized into a file that does not count until it is committed.
void serialize(const onnx::ModelProto& m, output_set& out, const fs::path& file, const char* too_much) {
    pending_file& pending = out.begin(file);
    std::ofstream stream(pending.temporary(), std::ios::binary);
    if (!m.SerializeToOstream(&stream) && stream) throw error("cannot write " + file.string() + ": " + too_much);
    stream.close();
    if (!stream) throw error("cannot write " + file.string() + ": " + std::strerror(errno) + "; nothing is written");
}

}  // namespace

model_files files_of_model(const fs::path& file) {
    model_files found{{file}, 0};
    onnx::ModelProto m;
    std::error_code failed;
    if (!fs::is_regular_file(file, failed) || !m.ParseFromString(read_file(file))) return found;
    collect_external(m.graph(), file.parent_path(), found.all);
    found.renamed = names_to_utf8(m);
    return found;
}

void save(const model& m, output_set& out, const fs::path& file, std::size_t largest) {
    constexpr std::size_t smallest_outside = 1024;
    if (m.proto().ByteSizeLong() < largest) return serialize(m.proto(), out, file, "it cannot be serialized");
    // Elements move to FILE.data, page-aligned so that they can be mapped; the copy keeps everything else.
    onnx::ModelProto small = m.proto();
    fs::path data = file;
    data += ".data";
    pending_file& elements = out.begin(data);
    std::uint64_t offset = 0;
    for (auto& t : *small.mutable_graph()->mutable_initializer()) {
        if (t.raw_data().size() < smallest_outside) continue;
        const std::uint64_t padding = (4096 - offset % 4096) % 4096;
        elements.write(std::string(padding, '\0'));
        elements.write(t.raw_data());
        offset += padding;
        const auto add = [&](const char* key, const std::string& value) {
            auto* e = t.add_external_data();
            e->set_key(key);
            e->set_value(value);
        };
        add("location", data.filename().string());
        add("offset", std::to_string(offset));
        add("length", std::to_string(t.raw_data().size()));
        offset += t.raw_data().size();
        t.clear_raw_data();
        t.set_data_location(onnx::TensorProto::EXTERNAL);
    }
    serialize(small, out, file, "it has more than 2 GB besides its initializers");
}

}  // namespace qk::graph
