// SPDX-License-Identifier: Apache-2.0
// Elements of a large constant outside the protobuf message: they are in memory once for all who hold them, or are read on demand (from a
// file, or by computing them again) and freed when nobody holds them any more.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "qk/graph/base/tensor.hpp"

namespace onnx {
class TensorProto;
class GraphProto;
}  // namespace onnx

namespace qk::graph {

/// Initializers of at least this many bytes lie outside the message. Smaller ones cost less inside it.
inline constexpr std::size_t smallest_outside = std::size_t{1} << 18;

class element_source {
  public:
    /// Holds elements that stay in memory.
    explicit element_source(tensor held);
    /// Reads bytes from `first` on, as a tensor's buffer has them.
    using part_reader = std::function<void(std::size_t first, std::span<std::byte> to)>;
    /// Holds elements that `make` returns, the same each time, of this type and shape; `part`, if given, reads some of their bytes alone.
    element_source(data_type type, dims shape, std::function<tensor()> make, part_reader part = {});
    ~element_source();
    element_source(const element_source&) = delete;
    element_source& operator=(const element_source&) = delete;

    data_type type() const { return type_; }
    const dims& shape() const { return shape_; }
    std::size_t raw_bytes() const;  ///< bytes of the elements as ONNX packs them
    /// Returns the elements, shared with whoever has them now: they must not be written to. Throws what `make` throws.
    tensor read() const;
    bool has_parts() const { return part_ != nullptr; }
    /// Reads the tensor's bytes from `first` on, without the others. Requires has_parts(). Throws what read() throws.
    void read_part(std::size_t first, std::span<std::byte> to) const { part_(first, to); }
    const std::string& name() const { return name_; }  ///< by which a message refers to it, in this process

  private:
    data_type type_;
    dims shape_;
    std::string name_;
    std::function<tensor()> make_;
    part_reader part_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<std::byte> held_;
    mutable std::weak_ptr<std::byte> last_;
};
using source_pointer = std::shared_ptr<const element_source>;

/// Sources by name.
using held_sources = std::map<std::string, source_pointer>;

/// Makes `out` say that its elements are the source's, in this process and as long as somebody holds the source; its name stays.
void refer_to(const source_pointer& source, onnx::TensorProto& out);
/// Returns what `p` refers to, or null. No file can make a message that refers to a source: names have a random part.
source_pointer source_of(const onnx::TensorProto& p);

/// Returns the sources of a graph's initializers; large ones that still lie in the message are moved out of it.
held_sources take_out(onnx::GraphProto& g);
/// Returns the sum of raw_bytes() of all initializers that refer to a source.
std::size_t bytes_outside(const onnx::GraphProto& g);

}  // namespace qk::graph
