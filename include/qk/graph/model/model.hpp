// SPDX-License-Identifier: Apache-2.0
// An ONNX model in memory: loaded, checked, sorted. Its protobuf message stays the only truth, so unknown fields survive a save.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/name_history.hpp"

namespace onnx {
class ModelProto;
class GraphProto;
class NodeProto;
class TensorProto;
class SparseTensorProto;
}  // namespace onnx

namespace qk::graph {

/// A dimension is a number, or a symbol (dim_param; "" is unknown) with value -1.
struct dimension {
    std::int64_t value = -1;
    std::string symbol;
};

/// A graph input or output as the model declares it.
struct value_info {
    std::string name;
    data_type type = data_type::undefined;
    bool has_shape = false;
    std::vector<dimension> shape;
};
/// Returns the dimensions as the model declares them, "N,3,32,32"; "?" stands for what it leaves open.
std::string dimensions_text(const value_info& v);
/// Returns the dimensions in brackets, or "any shape".
std::string shape_text(const value_info& v);

class model {
  public:
    /// Reads, checks and sorts. External data is read (only from inside the model's folder). Nodes get unique, non-empty names.
    /// Large weights stay in their files and are read on demand (element_source.hpp): the files may be replaced, but not changed.
    /// Throws error naming file, node or tensor: unreadable file, malformed protobuf, cycle, missing tensor, duplicate output, ...
    static model load(const std::filesystem::path& file);
    static model parse(std::string_view bytes, const std::filesystem::path& folder = {}, const std::string& label = "model");

    /// Writes a file beside `file`, then renames it. Above 2 GB weights go to FILE.data as external data, one after the other.
    void save(const std::filesystem::path& file) const;

    model(const model&);
    model(model&&) noexcept;
    model& operator=(model&&) noexcept;
    ~model();

    const onnx::ModelProto& proto() const;
    onnx::ModelProto& proto();  ///< after an edit call reindex()
    const onnx::GraphProto& graph() const;
    onnx::GraphProto& graph();

    /// Checks and sorts again, and rebuilds the look-ups below.
    void reindex();

    const std::vector<value_info>& inputs() const;  ///< without those that only name an initializer
    const std::vector<value_info>& outputs() const;
    int opset(std::string_view domain) const;     ///< 0: not imported
    int node_index(std::string_view name) const;  ///< index into graph().node(), or -1
    int producer(std::string_view tensor) const;  ///< index of the node that makes it, or -1
    struct use {
        int node;
        int input;
    };  ///< node -1: graph output number `input`; input -1: read inside a subgraph of the node
    const std::vector<use>& uses(std::string_view tensor) const;  ///< by every graph node, in order, then by graph outputs
    bool is_constant(std::string_view tensor) const;              ///< an initializer (Constant nodes become initializers in fold_constants)
    /// Returns the initializer's value, maybe shared: do not write to it. Throws error if there is none or its data does not fit its shape.
    tensor constant(std::string_view name) const;
    dims constant_shape(std::string_view name) const;  ///< without reading its values
    data_type constant_type(std::string_view name) const;

    const std::string& label() const;             ///< the file's name, for messages
    const std::filesystem::path& folder() const;  ///< the folder that it came from; empty: memory
    const name_history& history() const;          ///< names of the file that folding took away
    name_history& history();

    /// Returns what a room above found out about the whole model, found out once: Found(*this). It follows from all but names of nodes and
    /// elements of larger tensors. A copy shares it; reindex() forgets it where it may be another. Any thread may call this.
    template <class Found>
    std::shared_ptr<const Found> found() const {
        if (auto kept = std::static_pointer_cast<const Found>(found(typeid(Found)))) return kept;
        auto made = std::make_shared<const Found>(*this);
        keep_found(typeid(Found), made);
        return made;
    }

  private:
    model();
    void start(const std::filesystem::path& folder, const std::string& label, std::size_t bytes);
    void finish();
    std::shared_ptr<const void> found(std::type_index what) const;
    void keep_found(std::type_index what, std::shared_ptr<const void> found) const;
    struct index;
    std::unique_ptr<onnx::ModelProto> proto_;
    std::unique_ptr<index> index_;
};

/// These convert a TensorProto of any type but strings (raw data, typed fields, packed 2 and 4 bits, external data in `folder`) to a tensor
/// and back. Throws error naming the tensor: data that does not fit the shape, absurd shapes, external data outside the folder. A tensor
/// whose message refers to an element_source is shared with others: do not write to it.
tensor to_tensor(const onnx::TensorProto& proto, const std::filesystem::path& folder = {});
tensor to_tensor(const onnx::SparseTensorProto& proto);  ///< as a dense tensor
void to_proto(const tensor& value, const std::string& name, onnx::TensorProto& out);

}  // namespace qk::graph
