// SPDX-License-Identifier: Apache-2.0
// Arrays that Python passes, as memory: what is in a buffer, and the conversion that a call asks for.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qk/compare/conversion.hpp"
#include "qk/memory/values.hpp"

namespace qk::python {

namespace nb = nanobind;

/// A format under a semantics, parsed once and kept by Python.
struct spec {
    qk::format format;
    qk::semantics how;
    std::string text;
    bool is_plain = true;  ///< needs no scale or zero point where none is given
};

enum class number : std::uint8_t { float32, float16, bfloat16, int64, byte };

/// A C-contiguous buffer, held until it goes out of scope. Sixteen-bit integers stand for the bits of bfloat16, which numpy has no type
/// for.
class buffer {
  public:
    /// Throws a BufferError of Python where the array is read-only and should be written, or not contiguous.
    buffer(nb::handle object, bool written);
    ~buffer() { PyBuffer_Release(&view_); }
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;

    number kind() const { return kind_; }
    std::size_t size() const { return size_; }
    std::vector<std::int64_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }
    void* memory() const { return view_.buf; }
    template <class T>
    std::span<T> as() const {
        return {static_cast<T*>(view_.buf), size_};
    }
    values_in values() const;
    values_out places() const;

  private:
    Py_buffer view_{};
    number kind_ = number::float32;
    std::size_t size_ = 0;
};

/// The scales of a call: None, or buffers of float32 and int64.
struct scales {
    nb::handle scale, zero_point;
    int axis = -1;  ///< -1: one scale for the tensor
    std::size_t block = 0;
};

/// Returns the conversion of an array of this shape; throws ValueError with a sentence for an axis, scales or zero points that do not fit.
compare::conversion conversion_of(const spec& s, std::span<const std::int64_t> shape, int axis, const scales& given);

void add_arrays(nb::module_& m);
void add_backward(nb::module_& m);
void add_verbs(nb::module_& m);

}  // namespace qk::python
