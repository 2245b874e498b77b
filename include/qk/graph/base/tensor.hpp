// SPDX-License-Identifier: Apache-2.0
// A value of the evaluator: type, shape, and a shared row-major buffer. Types narrower than a byte are held one code per byte
// (int4 and int2 sign-extended, so that a byte read as int8_t is the value).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

// Memory of tensors: from the heap, or from an allocator that a thread uses for a while.

/// Gives tensors their buffers. The evaluator's per-thread arenas implement it; without an allocator, buffers come from the heap.
class allocator {
  public:
    virtual ~allocator() = default;
    virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
};

/// While an object lives, tensors made on its thread take their bytes from `source`. Fresh pages of the system cost more than what a small
/// layer computes on them, so long work on one thread keeps an allocator of its own.
class thread_memory {
  public:
    explicit thread_memory(allocator& source) : before_(current) { current = &source; }
    ~thread_memory() { current = before_; }
    thread_memory(const thread_memory&) = delete;
    thread_memory& operator=(const thread_memory&) = delete;

    static std::shared_ptr<std::byte> allocate(std::size_t bytes) { return current != nullptr ? current->allocate(bytes) : of_heap(bytes); }
    /// Returns memory that is 64-byte aligned, with room for a vector load past the end.
    static std::shared_ptr<std::byte> of_heap(std::size_t bytes) {
        const std::size_t n = (bytes + 63) / 64 * 64 + 64;
        return {static_cast<std::byte*>(::operator new (n, std::align_val_t{64})),
                [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); }};
    }

  private:
    static inline constinit thread_local allocator* current = nullptr;
    allocator* before_;
};

/// ONNX's TensorProto.DataType codes, including those newer than the installed onnx library.
enum class data_type : int {
    undefined = 0,
    float32 = 1,
    uint8 = 2,
    int8 = 3,
    uint16 = 4,
    int16 = 5,
    int32 = 6,
    int64 = 7,
    string = 8,
    boolean = 9,
    float16 = 10,
    float64 = 11,
    uint32 = 12,
    uint64 = 13,
    complex64 = 14,
    complex128 = 15,
    bfloat16 = 16,
    float8e4m3fn = 17,
    float8e4m3fnuz = 18,
    float8e5m2 = 19,
    float8e5m2fnuz = 20,
    uint4 = 21,
    int4 = 22,
    float4e2m1 = 23,
    float8e8m0 = 24,
    uint2 = 25,
    int2 = 26,
    float6e2m3 = 27,
    float6e3m2 = 28,
};

/// Lower-case name as ONNX's documentation spells it: "float32", "int8", "float8e4m3fn".
const char* name_of(data_type t);

/// Bytes that one element takes in a tensor's buffer; 0 for types without a fixed size (string, undefined).
constexpr std::size_t size_of(data_type t) {
    switch (t) {
        case data_type::float32:
        case data_type::int32:
        case data_type::uint32: return 4;
        case data_type::float64:
        case data_type::int64:
        case data_type::uint64:
        case data_type::complex64: return 8;
        case data_type::complex128: return 16;
        case data_type::uint16:
        case data_type::int16:
        case data_type::float16:
        case data_type::bfloat16: return 2;
        case data_type::undefined:
        case data_type::string: return 0;
        default: return 1;
    }
}

/// Bits of a float16 (half) or a bfloat16 (brain); arithmetic goes through float32 and qk's own casts.
struct half {
    std::uint16_t bits;
};
struct brain {
    std::uint16_t bits;
};

namespace detail {
constexpr data_type type_behind(const void*) { return data_type::undefined; }
constexpr data_type type_behind(const float*) { return data_type::float32; }
constexpr data_type type_behind(const double*) { return data_type::float64; }
constexpr data_type type_behind(const std::int8_t*) { return data_type::int8; }
constexpr data_type type_behind(const std::uint8_t*) { return data_type::uint8; }
constexpr data_type type_behind(const std::int16_t*) { return data_type::int16; }
constexpr data_type type_behind(const std::uint16_t*) { return data_type::uint16; }
constexpr data_type type_behind(const std::int32_t*) { return data_type::int32; }
constexpr data_type type_behind(const std::uint32_t*) { return data_type::uint32; }
constexpr data_type type_behind(const std::int64_t*) { return data_type::int64; }
constexpr data_type type_behind(const std::uint64_t*) { return data_type::uint64; }
constexpr data_type type_behind(const bool*) { return data_type::boolean; }
constexpr data_type type_behind(const half*) { return data_type::float16; }
constexpr data_type type_behind(const brain*) { return data_type::bfloat16; }
}  // namespace detail

/// data_type of a C++ element type.
template <class T>
inline constexpr data_type type_of = detail::type_behind(static_cast<const T*>(nullptr));

using dims = std::vector<std::int64_t>;

/// Returns the number of elements. Throws on negative dimensions and above 2^40 elements, so that absurd shapes end in a sentence. If one
/// dimension is 0, the product of the others is bounded, too (2^28): no product of dimensions overflows, no loop over them is endless.
std::size_t element_count(std::span<const std::int64_t> shape);

/// Returns "[1,3,224,224]".
std::string to_string(std::span<const std::int64_t> shape);

/// Copying a tensor shares its buffer. A shared buffer must not be written to.
class tensor {
  public:
    tensor() = default;
    /// Uninitialised elements in a new, 64-byte aligned buffer (or in `buffer`, which holds at least size_bytes()).
    tensor(data_type type, dims shape, std::shared_ptr<std::byte> buffer = nullptr);

    data_type type() const { return type_; }
    const dims& shape() const { return shape_; }
    std::int64_t dim(std::size_t i) const { return shape_[i]; }
    std::size_t rank() const { return shape_.size(); }
    std::size_t size() const { return count_; }  ///< number of elements
    std::size_t size_bytes() const { return count_ * size_of(type_); }
    bool empty() const { return buffer_ == nullptr; }  ///< no value at all (an omitted optional input)

    std::byte* bytes() { return buffer_.get(); }
    const std::byte* bytes() const { return buffer_.get(); }
    const std::shared_ptr<std::byte>& buffer() const { return buffer_; }

    /// Returns the elements as T; the caller has checked type().
    template <class T>
    std::span<T> as() {
        return {reinterpret_cast<T*>(buffer_.get()), count_};
    }
    template <class T>
    std::span<const T> as() const {
        return {reinterpret_cast<const T*>(buffer_.get()), count_};
    }

    /// Returns the same elements under another shape of equal count; both tensors share the buffer.
    tensor reshaped(dims shape) const;

  private:
    data_type type_ = data_type::undefined;
    dims shape_;
    std::size_t count_ = 0;
    std::shared_ptr<std::byte> buffer_;
};

/// Returns a tensor that holds a copy of the given elements.
template <class T>
tensor make_tensor(dims shape, std::span<const T> values) {
    tensor t(type_of<T>, std::move(shape));
    if (t.size() != values.size()) throw error("make_tensor: the shape and the number of values differ");
    if (!values.empty()) std::memcpy(t.bytes(), values.data(), t.size_bytes());
    return t;
}

}  // namespace qk::graph
