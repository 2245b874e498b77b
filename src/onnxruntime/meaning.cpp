// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime/meaning.hpp"

#include <algorithm>

#include "qk/formats/parse.hpp"

namespace qk::onnxruntime {
namespace {

namespace own = portable::attribute;

/// Reads attributes of one node.
class attribute_reader {
  public:
    attribute_reader(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}

    std::string text(const char* name) const {
        const auto value = text_attribute(api_, info_, name);
        if (!value) missing(name);
        return *value;
    }
    std::int64_t number(const char* name) const {
        std::int64_t value = 0;
        if (!succeeded(api_, api_.KernelInfoGetAttribute_int64(info_, name, &value))) missing(name);
        return value;
    }
    std::vector<std::int64_t> numbers(const char* name) const {
        std::size_t size = 0;
        if (!succeeded(api_, api_.KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size))) missing(name);
        std::vector<std::int64_t> values(size);
        if (size > 0 && !succeeded(api_, api_.KernelInfoGetAttributeArray_int64(info_, name, values.data(), &size))) missing(name);
        return values;
    }
    template <class T>
    T read(const char* name, const parsed<T>& value) const {
        if (!value) throw refusal(std::string("its attribute '") + name + "' cannot be: " + value.error.c_str());
        return *value;
    }
    [[noreturn]] static void missing(const char* name) {
        throw refusal(
            std::string("it lacks the attribute '") + name +
            "', by which a call says what it means: the file was written by a qk of before this library, or was changed; write it "
            "again with this qk, or run it without the library");
    }

  private:
    const OrtApi& api_;
    const OrtKernelInfo* info_;
};

}  // namespace

std::optional<std::string> text_attribute(const OrtApi& api, const OrtKernelInfo* info, const char* name) {
    std::size_t size = 0;
    if (!succeeded(api, api.KernelInfoGetAttribute_string(info, name, nullptr, &size))) return std::nullopt;
    std::string value(size, '\0');
    if (!succeeded(api, api.KernelInfoGetAttribute_string(info, name, value.data(), &size))) return std::nullopt;
    value.resize(std::min(value.find('\0'), value.size()));
    return value;
}

std::string node_name(const OrtApi& api, const OrtKernelInfo* info) {
    std::size_t size = 0;
    if (!succeeded(api, api.KernelInfo_GetNodeName(info, nullptr, &size))) return {};
    std::string name(size, '\0');
    if (!succeeded(api, api.KernelInfo_GetNodeName(info, name.data(), &size))) return {};
    name.resize(std::min(name.find('\0'), name.size()));
    return name;
}

function_kind kind_of(std::string_view function) {
    using enum portable::result_shape;
    function_kind k{function.starts_with(portable::products)         ? product
                    : function.starts_with(portable::decodes)        ? shape
                    : function.starts_with(portable::rows_of_tables) ? rows
                                                                     : input};
    if (k.result != product) return k;
    // A number may follow the type: product_mxfp4_float16_2.
    const std::size_t digits = function.find_last_not_of("0123456789");
    if (digits != std::string_view::npos && digits + 1 < function.size() && function[digits] == '_') {
        const std::string_view without = function.substr(0, digits);
        if (without.ends_with(portable::of_float16) || without.ends_with(portable::of_bfloat16)) function = without;
    }
    if (function.ends_with(portable::of_float16)) k.type = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    if (function.ends_with(portable::of_bfloat16)) k.type = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
    return k;
}

call_meaning read_meaning(const OrtApi& api, const OrtKernelInfo* info, portable::result_shape kind) {
    const attribute_reader a(api, info);
    const std::int64_t version = a.number(own::version);
    if (version != portable::version)
        throw refusal("its attributes are of version " + std::to_string(version) + ", and this library reads version " +
                      std::to_string(portable::version) + ": use the library of the qk that wrote the file");
    call_meaning m;
    m.format = a.read(own::format, parse_rounded_format(a.text(own::format)));
    const scale_rule rule = a.read(own::scale_rule, parse_scale_rule(a.text(own::scale_rule)));
    m.semantics = a.read(own::semantics, portable::parse_semantics_text(a.text(own::semantics), rule));
    m.scales = a.read(own::scales, parse_option("source of scales", a.text(own::scales), portable::scale_source_names));
    m.axis = a.number(own::axis);
    const std::int64_t block = a.number(own::block);
    m.flatten = a.number(own::flatten) != 0;
    const auto result = a.read(own::result, parse_option("result", a.text(own::result), portable::result_shape_names));
    using enum portable::scale_source;
    const bool blocked = is_block_format(m.format), decodes = kind != portable::result_shape::input;
    const char* wrong = is_stochastic(m.semantics.rounding)               ? "a call that rounds stochastically has no random bits"
                        : blocked != (m.scales == own)                    ? "formats of blocks, and they alone, choose their own scales"
                        : blocked && block != block_size(m.format)        ? "the attribute 'block' is not the format's own"
                        : m.scales == blocks && block < 1                 ? "blocks have at least one value"
                        : is_integer_format(m.format) && m.scales == none ? "an integer format needs a scale"
                        : is_searched(m.semantics.scale_rule) && blocked && !decodes
                            ? "its scales are searched, which is not for activations"
                        : result != kind             ? "its shape is not that of such a function"
                        : decodes && m.scales == run ? "constants have no scale of a run"
                                                     : nullptr;
    if (wrong != nullptr) throw refusal(std::string("its attributes contradict each other: ") + wrong);
    m.block = blocked || m.scales == blocks ? static_cast<std::size_t>(block) : 0;
    if (!decodes) return m;
    m.shape = a.numbers(own::shape);
    std::size_t size = 1;
    for (const std::int64_t d : m.shape)
        if (d < 0 || __builtin_mul_overflow(size, static_cast<std::size_t>(d), &size) || size > std::size_t{1} << 40)
            throw refusal("its attribute 'shape' is no shape");
    if (kind == portable::result_shape::shape) return m;
    if (m.shape.size() != 2 || size == 0) throw refusal("its attribute 'shape' is not that of a matrix, [outputs, inputs]");
    if (kind == portable::result_shape::rows) return m;
    m.bias = a.number(own::bias) != 0;
    m.sums = a.read(own::sums, parse_option("sums", a.text(own::sums), portable::sums_names));
    if (m.sums == portable::sums::integers && !portable::takes_integer_sums(m.format, m.scales, m.axis, block))
        throw refusal("its attributes contradict each other: such a matrix has no sums of integers");
    return m;
}

along_axis seen_along(const call_meaning& m, std::span<const std::int64_t> shape) {
    using enum portable::scale_source;
    std::size_t size = 1;
    for (const std::int64_t d : shape) size *= static_cast<std::size_t>(d);
    if (m.scales == none || m.scales == run || m.scales == one) return {1, size, 1};
    if (shape.empty()) return {1, 1, 1};
    const auto rank = static_cast<std::int64_t>(shape.size());
    along_axis a{1, 1, 1};
    const std::int64_t at = m.flatten && rank > 1 ? 1 : rank == 1 ? 0 : m.axis < 0 ? m.axis + rank : m.axis;
    if (at < 0 || at >= rank)
        throw refusal("its axis is " + std::to_string(m.axis) + ", and the tensor has " + std::to_string(rank) + " axes");
    for (std::int64_t i = 0; i < rank; ++i) {
        const bool along = i == at || (m.flatten && i > at);
        (i < at ? a.outer : along ? a.length : a.inner) *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
    }
    return a;
}

parts::parts(along_axis whole, std::size_t rows, std::size_t step) : whole_(whole), length_(whole.length) {
    constexpr std::size_t wanted = 1 << 14;
    const std::size_t row = std::max<std::size_t>(whole.length * whole.inner, 1);
    if (whole.outer == 0 || whole.length == 0 || whole.inner == 0) return;
    if (step != 0 && row > wanted) {
        length_ = std::max<std::size_t>(wanted / whole.inner / step, 1) * step;
        pieces_ = (whole.length + length_ - 1) / length_;
    } else {
        rows_ = std::max<std::size_t>(wanted / row / rows, 1) * rows;
    }
    groups_ = (whole.outer + rows_ - 1) / rows_;
}

part parts::operator[](std::size_t i) const {
    const std::size_t group = i / pieces_, piece = i % pieces_;
    part p{.outer = group * rows_, .along = piece * length_, .offset = 0, .axis = {}};
    p.axis = {std::min(rows_, whole_.outer - p.outer), std::min(length_, whole_.length - p.along), whole_.inner};
    p.offset = (p.outer * whole_.length + p.along) * whole_.inner;
    return p;
}

}  // namespace qk::onnxruntime
