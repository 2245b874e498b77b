// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

const char* name_of(data_type t) {
    static constexpr const char* names[] = {"undefined",      "float32",    "uint8",          "int8",       "uint16",    "int16",
                                            "int32",          "int64",      "string",         "bool",       "float16",   "float64",
                                            "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
                                            "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
                                            "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
    const int i = static_cast<int>(t);
    return i >= 0 && i < static_cast<int>(std::size(names)) ? names[i] : "unknown";
}

std::size_t element_count(std::span<const std::int64_t> shape) {
    std::size_t n = 1;
    bool none = false;
    for (const std::int64_t d : shape) {
        if (d < 0) throw error("negative dimension " + std::to_string(d) + " in a shape");
        const auto u = static_cast<std::size_t>(d);
        none = none || u == 0;
        if (u != 0 && n > (std::size_t{1} << 40) / u) throw error("a shape of more than 2^40 elements");
        if (u != 0) n *= u;
    }
    if (none && n > std::size_t{1} << 28) throw error("a shape without elements whose other dimensions make more than 2^28");
    return none ? 0 : n;
}

std::string to_string(std::span<const std::int64_t> shape) {
    std::string s = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
    return s + "]";
}

tensor::tensor(data_type type, dims shape, std::shared_ptr<std::byte> buffer)
    : type_(type), shape_(std::move(shape)), count_(element_count(shape_)), buffer_(std::move(buffer)) {
    if (!buffer_) buffer_ = thread_memory::allocate(size_bytes());
}

tensor tensor::reshaped(dims shape) const {
    tensor t = *this;
    if (element_count(shape) != count_) throw error("cannot view " + to_string(shape_) + " as " + to_string(shape));
    t.shape_ = std::move(shape);
    return t;
}

}  // namespace qk::graph
