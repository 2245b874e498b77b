// SPDX-License-Identifier: Apache-2.0
// Definitions of model.hpp: loading, saving, look-ups.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "graph/base/content_hash.hpp"
#include "graph/files/data_file.hpp"
#include "graph/model/check.hpp"
#include "graph/model/element_source.hpp"
#include "graph/model/message_outline.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/model/utf8_names.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/model/model_files.hpp"

namespace qk::graph {

std::string dimensions_text(const value_info& v) {
    std::string s;
    for (const dimension& d : v.shape)
        s += (s.empty() ? "" : ",") + (d.value >= 0 ? std::to_string(d.value) : d.symbol.empty() ? "?" : d.symbol);
    return s;
}
std::string shape_text(const value_info& v) { return v.has_shape ? "[" + dimensions_text(v) + "]" : "any shape"; }

struct model::index {
    std::string label;
    std::filesystem::path folder;
    std::vector<value_info> inputs, outputs;
    string_map<int> opsets, nodes, producers, initializers, sparse;
    string_map<std::vector<use>> uses;
    name_history history;
    held_sources outside;  ///< the sources that initializers refer to
    std::map<std::type_index, std::shared_ptr<const void>> found;
    std::string found_in;  ///< the outline of the model in which it was found
};

namespace detail {

inline value_info to_value_info(const onnx::ValueInfoProto& v) {
    value_info info{.name = v.name(), .type = data_type::undefined, .has_shape = false, .shape = {}};
    if (!v.type().has_tensor_type()) return info;  // sequences, maps, optionals
    const auto& t = v.type().tensor_type();
    info.type = static_cast<data_type>(t.elem_type());
    info.has_shape = t.has_shape();
    for (const auto& d : t.shape().dim()) {
        dimension n{.value = -1, .symbol = d.dim_param() == "?" ? "" : d.dim_param()};  // "?": some exporters' name of every unknown size
        if (d.has_dim_value() && d.dim_value() >= 0) n.value = d.dim_value();           // some exporters write -1 for "any"
        info.shape.push_back(std::move(n));
    }
    return info;
}

/// Leaves the elements of `t` in a file, where they lie as ONNX packs them.
inline void leave_in_file(onnx::TensorProto& t, std::shared_ptr<const data_file> file, std::uint64_t offset, held_sources& outside) {
    const auto type = static_cast<data_type>(t.data_type());
    const std::size_t bytes = raw_size(t);
    dims shape(t.dims().begin(), t.dims().end());
    element_source::part_reader part;
    if (packed_bits(type) >= 8 && type != data_type::boolean)
        part = [file, offset](std::size_t first, std::span<std::byte> to) { file->read(offset + first, to); };
    const auto whole = [file = std::move(file), offset, type, bytes, shape] {
        tensor made(type, shape);
        if (packed_bits(type) >= 8) {
            file->read(offset, {made.bytes(), bytes});
        } else {
            std::string packed(bytes, '\0');
            file->read(offset, std::as_writable_bytes(std::span(packed)));
            unpack(packed, type, made.as<std::uint8_t>());
        }
        return made;
    };
    const auto s = std::make_shared<element_source>(type, shape, whole, std::move(part));
    refer_to(s, t);
    outside.emplace(s->name(), s);
}

/// Is true for a large tensor whose elements can stay in a file: of a known type, and not boolean, whose bytes have to be made 0 or 1.
inline bool may_stay_outside(const onnx::TensorProto& t) {
    const auto type = static_cast<data_type>(t.data_type());
    return is_known(type) && type != data_type::boolean && raw_size(t) >= smallest_outside;
}

/// Loads all external data into the model, or refers to it. Many tensors may name one region of one file, so the sum is bounded by what the
/// folder holds.
inline void load_external(onnx::ModelProto& m, const std::filesystem::path& folder, held_sources& outside) {
    std::uint64_t sum = 0, most = std::uint64_t{1} << 24;
    string_set counted;
    std::unordered_set<const onnx::TensorProto*> initializers;
    for (const auto& t : m.graph().initializer()) initializers.insert(&t);
    std::map<std::filesystem::path, std::shared_ptr<const data_file>> files;
    for_each_tensor(*m.mutable_graph(), [&](onnx::TensorProto& t) {
        if (t.data_location() != onnx::TensorProto::EXTERNAL ||
            outside.contains(t.external_data_size() == 1 ? t.external_data(0).value() : ""))
            return;
        if (folder.empty()) place_of_external(t, folder, 0);  // says that a model in memory has no files beside it
        for (const auto& e : t.external_data()) {
            std::error_code failed;
            if (e.key() != "location" || !counted.insert(e.value()).second) continue;
            const auto size = std::filesystem::file_size(folder / e.value(), failed);
            if (!failed) most += 16 * size;
        }
        const std::size_t bytes = raw_size(t);
        sum += bytes;
        if (sum > most) throw error(quoted_name(t) + ": external data adds up to many times the files that hold it");
        if (initializers.contains(&t) && may_stay_outside(t)) {
            const external_place at = place_of_external(t, folder, bytes);
            auto& file = files[at.file];
            if (!file) file = std::make_shared<data_file>(at.file);
            return leave_in_file(t, file, at.offset, outside);
        }
        t.set_raw_data(read_external(t, folder, bytes));
        t.clear_external_data();
        t.clear_data_location();
    });
}

inline void parse_message(onnx::ModelProto& m, std::string_view bytes, const std::string& label) {
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    google::protobuf::io::CodedInputStream coded(&stream);
    coded.SetRecursionLimit(100);  // graphs inside graphs: about 30 deep
    if (!m.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
        throw error(label + ": not an ONNX model, damaged, cut short or nested too deeply");
}

/// Reads a message whose large initializers stay in the file; returns false when it has to be read as a whole.
inline bool parse_outline(onnx::ModelProto& m, const std::shared_ptr<const data_file>& file, std::string_view bytes,
                          held_sources& outside) {
    const auto outline = outline_of(bytes, smallest_outside);
    if (!outline) return false;
    try {
        parse_message(m, outline->message, "");
        auto& initializers = *m.mutable_graph()->mutable_initializer();
        if (static_cast<std::size_t>(initializers.size()) != outline->places.size()) return false;
        for (std::size_t i = 0; i < outline->places.size(); ++i) {
            const message_outline::place& at = outline->places[i];
            onnx::TensorProto& t = initializers[static_cast<int>(i)];
            if (at.length == 0) continue;
            if (t.data_location() == onnx::TensorProto::EXTERNAL || !may_stay_outside(t) || raw_size(t) != at.length) {
                t.set_raw_data(bytes.data() + at.offset, at.length);  // later checks report whatever is wrong with it
                continue;
            }
            leave_in_file(t, file, at.offset, outside);
        }
        return true;
    } catch (const error&) {
        return false;
    }
}

}  // namespace detail

model::model() : proto_(std::make_unique<onnx::ModelProto>()), index_(std::make_unique<index>()) {}
model::model(const model& m) : proto_(std::make_unique<onnx::ModelProto>(*m.proto_)), index_(std::make_unique<index>(*m.index_)) {}
model::model(model&&) noexcept = default;
model& model::operator=(model&&) noexcept = default;
model::~model() = default;

namespace {

std::mutex& found_mutex() {
    static std::mutex one;
    return one;
}

/// Tells apart what facts about a whole model follow from: all of it but values of large tensors and names of nodes.
std::string outline_of(const onnx::ModelProto& p) {
    content_hash h;
    const auto add = [&h](const auto& message) { h.add(message.SerializeAsString()); };
    const auto add_tensor = [&](const onnx::TensorProto& t) {
        const bool weights = t.dims_size() > 1 && t.data_type() == onnx::TensorProto::FLOAT;
        if (!weights && t.ByteSizeLong() <= 1024) return add(t);  // maybe a shape, an axis, a scale of a Resize
        h.add(t.name()), h.add(std::to_string(t.data_type()));
        for (const std::int64_t d : t.dims()) h.add(std::to_string(d));
    };
    for (const auto& o : p.opset_import()) add(o);
    for (const auto& f : p.functions()) add(f);
    const onnx::GraphProto& g = p.graph();
    for (const auto& t : g.initializer()) add_tensor(t);
    for (const auto& t : g.sparse_initializer()) add(t);
    for (const auto* values : {&g.input(), &g.output(), &g.value_info()})
        for (const auto& v : *values) add(v);
    for (const auto& n : g.node()) {
        h.add(n.domain()), h.add(n.op_type());
        for (const auto* names : {&n.input(), &n.output()}) {
            for (const std::string& name : *names) h.add(name);
            h.add("");
        }
        for (const auto& a : n.attribute()) add(a);
    }
    return h.text();
}

}  // namespace

std::shared_ptr<const void> model::found(std::type_index what) const {
    const std::lock_guard lock(found_mutex());
    const auto kept = index_->found.find(what);
    return kept == index_->found.end() ? nullptr : kept->second;
}
void model::keep_found(std::type_index what, std::shared_ptr<const void> found) const {
    const std::lock_guard lock(found_mutex());
    if (index_->found.empty()) index_->found_in = outline_of(*proto_);
    index_->found[what] = std::move(found);
}

model model::load(const std::filesystem::path& file) {
    const std::filesystem::path folder = file.parent_path().empty() ? "." : file.parent_path();
    const auto held = std::make_shared<const data_file>(file);
    model m;
    m.start(folder, file.string(), held->size());
    while_mapped(*held, [&](std::string_view bytes) {
        if (bytes.size() >= smallest_outside && detail::parse_outline(*m.proto_, held, bytes, m.index_->outside)) return true;
        m.index_->outside.clear();
        detail::parse_message(*m.proto_, bytes, file.string());
        return true;
    });
    m.finish();
    return m;
}

model model::parse(std::string_view bytes, const std::filesystem::path& folder, const std::string& label) {
    model m;
    m.start(folder, label, bytes.size());
    detail::parse_message(*m.proto_, bytes, label);
    m.finish();
    return m;
}

void model::start(const std::filesystem::path& folder, const std::string& label, std::size_t bytes) {
    index_->label = label;
    index_->folder = folder;
    if (bytes >= std::numeric_limits<int>::max()) throw error(label + ": larger than 2 GB; save it with external data");
}

void model::finish() {
    try {
        if (proto_->has_graph()) detail::load_external(*proto_, index_->folder, index_->outside);
    } catch (const error& e) {
        throw error(index_->label + ": " + e.what());
    }
    names_to_utf8(*proto_);
    reindex();
}

void model::save(const std::filesystem::path& file) const {
    output_set out;
    graph::save(*this, out, file);
    out.commit();
}

void model::reindex() {
    index& x = *index_;
    try {
        check_and_sort(*proto_);
        x.outside = take_out(*proto_->mutable_graph());
    } catch (const error& e) {
        x.found.clear();
        throw error(x.label + ": " + e.what());
    }
    if (!x.found.empty() && outline_of(*proto_) != x.found_in) x.found.clear();
    x.inputs.clear(), x.outputs.clear();
    x.opsets.clear(), x.nodes.clear(), x.producers.clear(), x.initializers.clear(), x.sparse.clear(), x.uses.clear();
    const onnx::GraphProto& g = proto_->graph();
    for (const auto& o : proto_->opset_import()) {
        int& version = x.opsets[o.domain() == "ai.onnx" ? "" : o.domain()];
        version = std::max(version, static_cast<int>(std::clamp<std::int64_t>(o.version(), 0, 1 << 20)));
    }
    if (proto_->opset_import_size() == 0) x.opsets[""] = 1;  // IR versions 1 and 2 had no imports
    for (int i = 0; i < g.initializer_size(); ++i) x.initializers[g.initializer(i).name()] = i;
    for (int i = 0; i < g.sparse_initializer_size(); ++i) x.sparse[g.sparse_initializer(i).values().name()] = i;
    for (const auto& i : g.input())
        if (!is_constant(i.name())) x.inputs.push_back(detail::to_value_info(i)), x.uses[i.name()];
    for (const auto& o : g.output()) x.outputs.push_back(detail::to_value_info(o));
    for (int i = 0; i < g.node_size(); ++i) {
        const onnx::NodeProto& n = g.node(i);
        x.nodes[n.name()] = i;
        for (const std::string& o : n.output())
            if (!o.empty()) x.producers[o] = i;
        for (int k = 0; k < n.input_size(); ++k)
            if (!n.input(k).empty()) x.uses[n.input(k)].push_back({i, k});
        std::unordered_set<std::string_view> inner;
        detail::for_each_subgraph(n, [&](const onnx::GraphProto& s) { detail::collect_outer(s, inner); });
        for (const std::string_view name : inner) x.uses[std::string(name)].push_back({i, -1});
    }
    for (int i = 0; i < g.output_size(); ++i) x.uses[g.output(i).name()].push_back({-1, i});
}

const onnx::ModelProto& model::proto() const { return *proto_; }
onnx::ModelProto& model::proto() { return *proto_; }
const onnx::GraphProto& model::graph() const { return proto_->graph(); }
onnx::GraphProto& model::graph() { return *proto_->mutable_graph(); }
const std::vector<value_info>& model::inputs() const { return index_->inputs; }
const std::vector<value_info>& model::outputs() const { return index_->outputs; }
const std::string& model::label() const { return index_->label; }
const std::filesystem::path& model::folder() const { return index_->folder; }
const name_history& model::history() const { return index_->history; }
name_history& model::history() { return index_->history; }

template <class T>
static const T& find_or(const string_map<T>& map, std::string_view key, const T& otherwise) {
    const auto i = map.find(key);
    return i == map.end() ? otherwise : i->second;
}
int model::opset(std::string_view domain) const { return find_or(index_->opsets, domain == "ai.onnx" ? "" : domain, 0); }
int model::node_index(std::string_view name) const { return find_or(index_->nodes, name, -1); }
int model::producer(std::string_view tensor) const { return find_or(index_->producers, tensor, -1); }
const std::vector<model::use>& model::uses(std::string_view tensor) const {
    static const std::vector<use> none;
    return find_or(index_->uses, tensor, none);
}
bool model::is_constant(std::string_view tensor) const {
    return index_->initializers.find(tensor) != index_->initializers.end() || index_->sparse.find(tensor) != index_->sparse.end();
}
tensor model::constant(std::string_view name) const {
    try {
        if (const auto i = index_->initializers.find(name); i != index_->initializers.end())
            return to_tensor(graph().initializer(i->second), folder());
        if (const auto i = index_->sparse.find(name); i != index_->sparse.end()) return to_tensor(graph().sparse_initializer(i->second));
    } catch (const error& e) {
        throw error(label() + ": " + e.what());
    }
    throw error(label() + ": tensor '" + std::string(name) + "' is no initializer");
}

dims model::constant_shape(std::string_view name) const {
    const auto of = [](const auto& t) { return dims(t.dims().begin(), t.dims().end()); };
    if (const auto i = index_->initializers.find(name); i != index_->initializers.end()) return of(graph().initializer(i->second));
    if (const auto i = index_->sparse.find(name); i != index_->sparse.end()) return of(graph().sparse_initializer(i->second));
    throw error(label() + ": tensor '" + std::string(name) + "' is no initializer");
}

data_type model::constant_type(std::string_view name) const {
    if (const auto i = index_->initializers.find(name); i != index_->initializers.end())
        return static_cast<data_type>(graph().initializer(i->second).data_type());
    if (const auto i = index_->sparse.find(name); i != index_->sparse.end())
        return static_cast<data_type>(graph().sparse_initializer(i->second).values().data_type());
    throw error(label() + ": tensor '" + std::string(name) + "' is no initializer");
}

}  // namespace qk::graph
