// SPDX-License-Identifier: Apache-2.0
// to_tensor and to_proto of model.hpp.
#include "graph/model/tensor_proto.hpp"

#include "graph/model/element_source.hpp"

namespace qk::graph {

tensor to_tensor(const onnx::TensorProto& proto, const std::filesystem::path& folder) {
    if (const source_pointer outside = source_of(proto)) return outside->read();
    detail::check_tensor(proto);
    const auto type = static_cast<data_type>(proto.data_type());
    dims shape(proto.dims().begin(), proto.dims().end());
    std::string loaded;
    const bool external = proto.data_location() == onnx::TensorProto::EXTERNAL;
    if (external) loaded = detail::read_external(proto, folder, detail::raw_size(proto));
    const std::string& raw = external ? loaded : proto.raw_data();

    tensor t(type, std::move(shape));
    const bool narrow = detail::packed_bits(type) < 8;
    if (external || proto.has_raw_data()) {
        if (narrow) detail::unpack(raw, type, t.as<std::uint8_t>());
        else if (!raw.empty()) std::memcpy(t.bytes(), raw.data(), raw.size());
    } else if (narrow) {
        std::string packed;
        for (const std::int32_t v : proto.int32_data()) packed.push_back(static_cast<char>(v));
        detail::unpack(packed, type, t.as<std::uint8_t>());
    } else {
        switch (type) {
            case data_type::float32:
            case data_type::complex64: detail::copy_field<float>(proto.float_data(), t); break;
            case data_type::float64:
            case data_type::complex128: detail::copy_field<double>(proto.double_data(), t); break;
            case data_type::int64: detail::copy_field<std::int64_t>(proto.int64_data(), t); break;
            case data_type::uint64: detail::copy_field<std::uint64_t>(proto.uint64_data(), t); break;
            case data_type::uint32: detail::copy_field<std::uint32_t>(proto.uint64_data(), t); break;
            case data_type::int32: detail::copy_field<std::int32_t>(proto.int32_data(), t); break;
            default:
                if (size_of(type) == 2) detail::copy_field<std::uint16_t>(proto.int32_data(), t);
                else detail::copy_field<std::uint8_t>(proto.int32_data(), t);
        }
    }
    if (type == data_type::boolean)
        for (std::uint8_t& b : t.as<std::uint8_t>()) b = b != 0;
    return t;
}

tensor to_tensor(const onnx::SparseTensorProto& proto) {
    const std::string who = "sparse " + detail::quoted_name(proto.values());
    const tensor values = to_tensor(proto.values()), indices = to_tensor(proto.indices());
    const dims shape(proto.dims().begin(), proto.dims().end());
    // A few bytes must not become gigabytes.
    const std::size_t most = std::min(std::size_t{1} << 31, std::max(std::size_t{1} << 24, 4096 * values.size_bytes()));
    if (element_count(shape) * size_of(values.type()) > most)
        throw error(who + ": more than " + std::to_string(most) + " bytes when dense");
    const std::size_t count = values.size(), rank = shape.size();
    const bool linear = indices.rank() == 1;
    if (indices.type() != data_type::int64 || values.rank() != 1 || indices.size() != (linear ? count : count * rank))
        throw error(who + ": indices do not fit the values");
    tensor t(values.type(), shape);
    std::memset(t.bytes(), 0, t.size_bytes());
    const std::size_t item = size_of(values.type());
    for (std::size_t i = 0; i < count; ++i) {
        std::int64_t at = linear ? indices.as<std::int64_t>()[i] : 0;
        bool inside = true;
        for (std::size_t d = 0; d < rank && !linear; ++d) {
            const std::int64_t k = indices.as<std::int64_t>()[i * rank + d];
            inside = inside && k >= 0 && k < shape[d];
            if (inside) at = at * shape[d] + k;
        }
        if (!inside || at < 0 || static_cast<std::size_t>(at) >= t.size()) throw error(who + ": an index lies outside its shape");
        std::memcpy(t.bytes() + static_cast<std::size_t>(at) * item, values.bytes() + i * item, item);
    }
    return t;
}

void to_proto(const tensor& value, const std::string& name, onnx::TensorProto& out) {
    if (!detail::is_known(value.type())) throw error("tensor '" + name + "' of type " + name_of(value.type()) + " cannot be stored");
    out.Clear();
    out.set_name(name);
    out.set_data_type(static_cast<int>(value.type()));
    for (const std::int64_t d : value.shape()) out.add_dims(d);
    if (detail::packed_bits(value.type()) < 8) out.set_raw_data(detail::pack(value.type(), value.as<std::uint8_t>()));
    else out.set_raw_data(value.bytes(), value.size_bytes());
}

}  // namespace qk::graph
