// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/model/model_files.hpp"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <functional>
#include <string>

#include "graph/files/data_file.hpp"
#include "graph/model/element_source.hpp"
#include "graph/model/message_outline.hpp"
#include "graph/model/model_bytes.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/model/utf8_names.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/files/file.hpp"

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

/// Takes what protobuf writes. Its code knows no exceptions, so an error of the file waits here.
struct into_file final : google::protobuf::io::CopyingOutputStream {
    explicit into_file(pending_file& f) : file(f) {}
    bool Write(const void* bytes, int n) override {
        try {
            file.write({static_cast<const char*>(bytes), static_cast<std::size_t>(n)});
        } catch (const error& e) {
            problem = e.what();
        }
        return problem.empty();
    }
    pending_file& file;
    std::string problem;
};

/// Serializes into a file that does not count until it is committed.
void serialize(const onnx::ModelProto& m, output_set& out, const fs::path& file, const char* too_much) {
    into_file into(out.begin(file));
    google::protobuf::io::CopyingOutputStreamAdaptor stream(&into, 1 << 20);
    const bool done = m.SerializeToZeroCopyStream(&stream) && stream.Flush();
    if (!into.problem.empty()) throw error(into.problem + "; nothing is written");
    if (!done) throw error("cannot write " + file.string() + ": " + too_much);
}

/// Returns an initializer's elements as raw data, wherever they are. `held` and `packed` keep what had to be read or packed.
std::string_view raw_bytes(const onnx::TensorProto& t, tensor& held, std::string& packed) {
    const source_pointer s = source_of(t);
    if (s == nullptr) return t.raw_data();
    held = s->read();
    if (detail::packed_bits(held.type()) >= 8) return {reinterpret_cast<const char*>(held.bytes()), held.size_bytes()};
    packed = detail::pack(held.type(), std::as_const(held).as<std::uint8_t>());
    return packed;
}

/// Gives `write` one file with the initializers one after the other behind the rest of the graph: no message holds them all.
void write_in_pieces(const onnx::ModelProto& m, const std::function<void(std::string_view)>& write) {
    constexpr unsigned graph_of_model = 7, initializer_of_graph = 5, raw_data_of_tensor = 9;  // onnx.proto
    onnx::ModelProto rest = m;
    google::protobuf::RepeatedPtrField<onnx::TensorProto> initializers;
    initializers.Swap(rest.mutable_graph()->mutable_initializer());
    const std::string graph = rest.graph().SerializeAsString();
    rest.clear_graph();
    // Returns the bytes of a tensor up to its elements if those lie outside the message, otherwise all of its bytes.
    const auto head_of = [&](const onnx::TensorProto& t) {
        std::string head, start;
        const source_pointer s = source_of(t);
        const std::uint64_t raw = s != nullptr ? s->raw_bytes() : 0;
        if (s != nullptr) {
            onnx::TensorProto bare = t;
            bare.clear_external_data(), bare.clear_data_location();
            bare.SerializeToString(&head);
            detail::put_header(head, raw_data_of_tensor, raw);
        } else {
            t.SerializeToString(&head);
        }
        detail::put_header(start, initializer_of_graph, head.size() + raw);
        return start + head;
    };
    std::uint64_t length = graph.size() + bytes_outside(m.graph());
    for (const auto& t : initializers) length += head_of(t).size();
    std::string start = rest.SerializeAsString();
    detail::put_header(start, graph_of_model, length);
    write(start + graph);
    for (const auto& t : initializers) {
        write(head_of(t));
        if (source_of(t) == nullptr) continue;
        tensor held;
        std::string packed;
        write(raw_bytes(t, held, packed));
    }
}

/// Reads a model without the elements of large initializers. Returns false for what is no model.
bool read_outline(std::string_view bytes, onnx::ModelProto& m) {
    const auto outline = detail::outline_of(bytes, smallest_outside);
    if (!outline && bytes.size() > largest_model_file) return false;
    return outline ? m.ParseFromString(outline->message) : m.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string serialized(const onnx::ModelProto& m) {
    const std::size_t outside = bytes_outside(m.graph()), all = m.ByteSizeLong() + outside;
    if (all >= largest_model_file) throw error("the model has more than 2 GB, too many for bytes in memory: name a file for it");
    std::string bytes;
    bytes.reserve(all);
    if (outside == 0) m.SerializeToString(&bytes);
    else write_in_pieces(m, [&](std::string_view piece) { bytes += piece; });
    return bytes;
}

std::size_t count_renamed(std::string_view bytes) {
    onnx::ModelProto m;
    return read_outline(bytes, m) ? names_to_utf8(m) : 0;
}

model_files files_of_model(const fs::path& file) {
    model_files found{{file}, 0};
    onnx::ModelProto m;
    try {
        if (!while_mapped(data_file(file), [&](std::string_view bytes) { return read_outline(bytes, m); })) return found;
    } catch (const error&) {
        return found;
    }
    detail::for_each_tensor(*m.mutable_graph(), [&](const onnx::TensorProto& t) {
        for (const auto& e : t.external_data())
            if (e.key() == "location" && e.value().find('\0') == std::string::npos) found.all.push_back(file.parent_path() / e.value());
    });
    found.renamed = names_to_utf8(m);
    return found;
}

void save(const model& m, output_set& out, const fs::path& file, std::size_t largest) {
    constexpr std::size_t smallest_external = 1024;
    const std::size_t outside = bytes_outside(m.graph());
    if (m.proto().ByteSizeLong() + outside < largest) {
        if (outside == 0) return serialize(m.proto(), out, file, "it cannot be serialized");
        pending_file& pending = out.begin(file);
        return write_in_pieces(m.proto(), [&](std::string_view piece) { pending.write(piece); });
    }
    // Elements move to FILE.data, page-aligned so that they can be mapped; the copy keeps everything else.
    onnx::ModelProto small = m.proto();
    fs::path data = file;
    data += ".data";
    pending_file& elements = out.begin(data);
    std::uint64_t offset = 0;
    for (auto& t : *small.mutable_graph()->mutable_initializer()) {
        tensor held;
        std::string packed;
        const std::string_view raw = raw_bytes(t, held, packed);
        if (raw.size() < smallest_external) continue;
        const std::uint64_t padding = (4096 - offset % 4096) % 4096;
        elements.write(std::string(padding, '\0'));
        elements.write(raw);
        offset += padding;
        t.clear_external_data();
        const auto add = [&](const char* key, const std::string& value) {
            auto* e = t.add_external_data();
            e->set_key(key);
            e->set_value(value);
        };
        add("location", data.filename().string());
        add("offset", std::to_string(offset));
        add("length", std::to_string(raw.size()));
        offset += raw.size();
        t.clear_raw_data();
        t.set_data_location(onnx::TensorProto::EXTERNAL);
    }
    serialize(small, out, file, "it has more than 2 GB besides its initializers");
}

}  // namespace qk::graph
