// SPDX-License-Identifier: Apache-2.0
// How ONNX stores elements, in a message and as external data. onnx.proto, message TensorProto.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "graph/files/data_file.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {
namespace detail {

/// Bits of one element as ONNX packs it: 2, 4, or whole bytes; 0 for types without a fixed size.
constexpr std::size_t packed_bits(data_type t) {
    switch (t) {
        case data_type::uint4:
        case data_type::int4:
        case data_type::float4e2m1: return 4;
        case data_type::uint2:
        case data_type::int2: return 2;
        default: return 8 * size_of(t);
    }
}
constexpr bool is_known(data_type t) { return packed_bits(t) != 0 && static_cast<int>(t) >= 1 && static_cast<int>(t) <= 26; }

inline std::string quoted_name(const onnx::TensorProto& p) { return p.name().empty() ? "a tensor" : "tensor '" + p.name() + "'"; }

/// Unpacks codes of 2 or 4 bits, the first element in the lowest bits, to one a byte; signed types are sign-extended.
inline void unpack(std::string_view packed, data_type type, std::span<std::uint8_t> out) {
    const auto width = static_cast<unsigned>(packed_bits(type));
    const unsigned per_byte = 8 / width, mask = (1u << width) - 1;
    const bool extend = type == data_type::int4 || type == data_type::int2;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const unsigned code = static_cast<unsigned char>(packed[i / per_byte]) >> (i % per_byte * width) & mask;
        const bool negative = extend && (code >> (width - 1)) != 0;
        out[i] = static_cast<std::uint8_t>(negative ? code | ~mask : code);
    }
}
inline std::string pack(data_type type, std::span<const std::uint8_t> codes) {
    const auto width = static_cast<unsigned>(packed_bits(type));
    const unsigned per_byte = 8 / width, mask = (1u << width) - 1;
    std::string packed((codes.size() + per_byte - 1) / per_byte, '\0');
    for (std::size_t i = 0; i < codes.size(); ++i) {
        char& place = packed[i / per_byte];
        place = static_cast<char>(static_cast<unsigned char>(place) | (codes[i] & mask) << (i % per_byte * width));
    }
    return packed;
}

/// Where the external bytes of `p` lie: in a file inside `folder`. Throws error for an absolute path, "..", and a link that leads out.
struct external_place {
    std::filesystem::path file;
    std::uint64_t offset = 0;
};
inline external_place place_of_external(const onnx::TensorProto& p, const std::filesystem::path& folder, std::size_t expected) {
    namespace fs = std::filesystem;
    const auto fail = [&](const std::string& what) -> void { throw error(quoted_name(p) + ": external data " + what); };
    std::string location;
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length;
    for (const auto& e : p.external_data()) {
        if (e.key() == "location") location = e.value();
        if (e.key() != "offset" && e.key() != "length") continue;
        std::uint64_t v = 0;
        const char* end = e.value().data() + e.value().size();
        if (const auto r = std::from_chars(e.value().data(), end, v); r.ec != std::errc() || r.ptr != end)
            fail("has the " + e.key() + " '" + e.value() + "'");
        if (e.key() == "offset") offset = v;
        else length = v;
    }
    if (folder.empty()) fail("needs the model's folder; load the model from its file");
    const fs::path relative(location);
    if (location.empty()) fail("has no location");
    if (location.find('\0') != std::string::npos) fail("has a malformed location");
    bool inside = relative.is_relative();
    for (const fs::path& part : relative) inside = inside && part != "..";
    std::error_code failed;
    const fs::path root = fs::canonical(folder, failed), file = fs::weakly_canonical(folder / relative, failed);
    const auto [root_end, ignored] = std::mismatch(root.begin(), root.end(), file.begin(), file.end());
    if (!inside || failed || root_end != root.end()) fail("'" + location + "' lies outside the model's folder; copy it there");
    if (!fs::is_regular_file(file, failed)) fail("file '" + file.string() + "' does not exist");
    const std::uint64_t size = fs::file_size(file, failed);
    if (failed || offset > size || length.value_or(expected) > size - offset) fail("reaches beyond the end of '" + file.string() + "'");
    if (length.value_or(expected) != expected)
        fail("is " + std::to_string(*length) + " bytes where the shape needs " + std::to_string(expected));
    return {file, offset};
}
inline std::string read_external(const onnx::TensorProto& p, const std::filesystem::path& folder, std::size_t expected) {
    const external_place from = place_of_external(p, folder, expected);
    std::string bytes(expected, '\0');
    try {
        data_file(from.file).read(from.offset, std::as_writable_bytes(std::span(bytes)));
    } catch (const error& e) {
        throw error(quoted_name(p) + ": external data: " + e.what());
    }
    return bytes;
}

/// Returns the bytes that the elements take as raw data; throws for unknown types and absurd shapes, naming the tensor.
inline std::size_t raw_size(const onnx::TensorProto& p) {
    const auto type = static_cast<data_type>(p.data_type());
    if (!is_known(type))
        throw error(quoted_name(p) + ": element type " +
                    (type == data_type::string ? "string" : "number " + std::to_string(p.data_type())) + " is not supported");
    try {
        return (element_count({p.dims().data(), static_cast<std::size_t>(p.dims_size())}) * packed_bits(type) + 7) / 8;
    } catch (const error& e) {
        throw error(quoted_name(p) + ": " + e.what());
    }
}

/// Copies a typed field. ONNX keeps float16 and narrower in int32_data, complex numbers as pairs, 4-bit types two to an entry.
template <class To, class Field>
void copy_field(const Field& from, tensor& to) {
    auto* out = reinterpret_cast<To*>(to.bytes());
    for (int i = 0; i < from.size(); ++i) out[i] = static_cast<To>(from.Get(i));
}

/// Returns the number of entries of the typed field that hold `count` elements of `type`.
inline std::size_t field_entries(data_type type, std::size_t count) {
    if (type == data_type::complex64 || type == data_type::complex128) return 2 * count;
    return packed_bits(type) < 8 ? (count * packed_bits(type) + 7) / 8 : count;
}

inline std::size_t field_size(const onnx::TensorProto& p) {
    switch (static_cast<data_type>(p.data_type())) {
        case data_type::float32:
        case data_type::complex64: return static_cast<std::size_t>(p.float_data_size());
        case data_type::float64:
        case data_type::complex128: return static_cast<std::size_t>(p.double_data_size());
        case data_type::int64: return static_cast<std::size_t>(p.int64_data_size());
        case data_type::uint32:
        case data_type::uint64: return static_cast<std::size_t>(p.uint64_data_size());
        default: return static_cast<std::size_t>(p.int32_data_size());
    }
}

/// Throws error naming the tensor when its data does not fit its shape. Reads no external data.
inline void check_tensor(const onnx::TensorProto& p) {
    const std::size_t bytes = raw_size(p);
    if (p.data_location() == onnx::TensorProto::EXTERNAL) return;
    const std::size_t count = element_count({p.dims().data(), static_cast<std::size_t>(p.dims_size())});
    const std::size_t wanted = p.has_raw_data() ? bytes : field_entries(static_cast<data_type>(p.data_type()), count);
    const std::size_t found = p.has_raw_data() ? p.raw_data().size() : field_size(p);
    if (found != wanted)
        throw error(quoted_name(p) + ": holds " + std::to_string(found) + (p.has_raw_data() ? " bytes" : " values") + " where its shape " +
                    to_string(std::span(p.dims().data(), static_cast<std::size_t>(p.dims_size()))) + " of " +
                    name_of(static_cast<data_type>(p.data_type())) + " needs " + std::to_string(wanted));
}

}  // namespace detail
}  // namespace qk::graph
