// SPDX-License-Identifier: Apache-2.0
#include "support/packed_file.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "qk/dispatch.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files.hpp"
#include "qk/qk.hpp"

namespace qk::tool {
namespace {

using graph::error;
using graph::tensor;

tensor bytes_tensor(std::span<const std::byte> bytes) {
    return graph::make_tensor<std::uint8_t>({static_cast<std::int64_t>(bytes.size())},
                                            {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}
tensor integers(std::span<const std::int64_t> values) {
    return graph::make_tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values);
}
tensor integers(std::initializer_list<std::int64_t> values) { return integers(std::span(values.begin(), values.size())); }

}  // namespace

packed_tensor pack(const conversion& c, const tensor& x) {
    packed_tensor p{c, x.shape(), std::vector<std::byte>(layout_of(c, x.size()).bytes())};
    if (x.size() == 0) return p;
    if (dispatch::encode(c.format, x.as<float>(), p.bytes, parameters_of(c), c.how) == encode_status::no_code) {
        throw error(
            fmt::format("format {} has no code for what this semantics gives (NaN or Inf passed through, a scale beyond E8M0, or -0); "
                        "leave --packed out, or use --semantics ocp",
                        to_text(c.format).view()));
    }
    return p;
}

tensor unpack(const packed_tensor& p) {
    tensor y(graph::data_type::float32, p.shape);
    if (y.size() != 0) dispatch::decode(p.how.format, p.bytes, y.as<float>(), parameters_of(p.how));
    return y;
}

std::string to_archive(const packed_tensor& p) {
    const conversion& c = p.how;
    std::vector<graph::zip_entry> entries;
    const auto add = [&entries](const char* name, const tensor& t) { entries.push_back({std::string(name) + ".npy", graph::to_npy(t)}); };
    const const_planes planes = planes_of(layout_of(c, graph::element_count(p.shape)), std::span<const std::byte>(p.bytes));
    add("elements", bytes_tensor(planes.elements));
    if (!planes.scales.empty()) add("scales", bytes_tensor(planes.scales));
    if (!planes.shifts.empty()) add("shifts", bytes_tensor(planes.shifts));
    if (!planes.tensor.empty()) add("tensor_scale", bytes_tensor(planes.tensor));
    const auto text = to_text(c.format);
    add("format", bytes_tensor(std::as_bytes(std::span(text.view()))));
    add("layout", integers({layout_version}));
    add("shape", integers(p.shape));
    add("axis", integers({c.axis}));
    if (c.given != conversion::granularity::none && !is_block_format(c.format)) {
        add("scale", graph::make_tensor<float>({static_cast<std::int64_t>(c.scale.size())}, c.scale));
        if (!c.zero_point.empty()) add("zero_point", integers(c.zero_point));
        if (c.given != conversion::granularity::tensor)
            add("scale_axis", integers({c.scale_axis, static_cast<std::int64_t>(c.scale_block)}));
    }
    return graph::zip(entries, "the packed file");
}

bool is_archive(const std::string& bytes) { return bytes.starts_with("PK"); }

packed_tensor from_archive(const std::string& bytes, const std::string& file) {
    std::map<std::string, tensor> members;
    for (const graph::zip_entry& e : graph::unzip(bytes, file)) members.emplace(e.name, graph::parse_npy(e.bytes, file + ": " + e.name));
    const auto member = [&](const std::string& name, graph::data_type type) -> const tensor* {
        const auto found = members.find(name + ".npy");
        if (found == members.end()) return nullptr;
        if (found->second.type() != type)
            throw error(fmt::format("{}: {} holds {}, not {}", file, name, name_of(found->second.type()), name_of(type)));
        return &found->second;
    };
    const auto needed = [&](const std::string& name, graph::data_type type) -> const tensor& {
        const tensor* t = member(name, type);
        if (t == nullptr)
            throw error(fmt::format("{} is not a packed tensor: it has no member {}; `qk convert --packed` writes such files", file, name));
        return *t;
    };
    const auto integer_member = [&](const std::string& name, std::size_t count) {
        const tensor& t = needed(name, graph::data_type::int64);
        if (t.size() != count) throw error(fmt::format("{}: {} holds {} values, not {}", file, name, t.size(), count));
        return t.as<std::int64_t>();
    };
    const std::int64_t version = integer_member("layout", 1)[0];
    if (version != layout_version) throw error(fmt::format("{} has layout {}; this qk reads layout {}", file, version, layout_version));
    const tensor& text = needed("format", graph::data_type::uint8);
    const auto format = parse_rounded_format({reinterpret_cast<const char*>(text.bytes()), text.size()});
    if (!format) throw error(fmt::format("{}: {}", file, format.error.view()));
    packed_tensor p;
    conversion& c = p.how;
    c.format = *format;
    const auto shape = needed("shape", graph::data_type::int64).as<std::int64_t>();
    p.shape.assign(shape.begin(), shape.end());
    const std::size_t count = graph::element_count(p.shape);
    const int rank = static_cast<int>(p.shape.size());
    const auto axis_of = [&](std::int64_t axis, const char* name) {
        if (axis < (rank == 0 ? -1 : 0) || axis >= std::max(rank, 1))
            throw error(fmt::format("{}: {} {} does not fit shape {}", file, name, axis, graph::to_string(p.shape)));
        return static_cast<int>(axis);
    };
    c.axis = axis_of(integer_member("axis", 1)[0], "axis");
    c.blocks = seen_along(p.shape, c.axis);
    const packed_layout layout = layout_of(c, count);
    p.bytes.resize(layout.bytes());
    const planes planes = planes_of(layout, std::span(p.bytes));
    const auto read = [&](const char* name, std::span<std::byte> plane) {
        if (plane.empty()) return;
        const tensor& t = needed(name, graph::data_type::uint8);
        if (t.size() != plane.size())
            throw error(fmt::format("{}: {} has {} bytes; format {} of shape {} needs {}", file, name, t.size(), to_text(c.format).view(),
                                    graph::to_string(p.shape), plane.size()));
        std::memcpy(plane.data(), t.bytes(), plane.size());
    };
    read("elements", planes.elements);
    read("scales", planes.scales);
    read("shifts", planes.shifts);
    read("tensor_scale", planes.tensor);
    if (const tensor* scale = member("scale", graph::data_type::float32)) {
        c.scale.assign(scale->as<float>().begin(), scale->as<float>().end());
        if (const tensor* zero = member("zero_point", graph::data_type::int64))
            c.zero_point.assign(zero->as<std::int64_t>().begin(), zero->as<std::int64_t>().end());
        std::size_t expected = 1;
        c.given = conversion::granularity::tensor;
        if (member("scale_axis", graph::data_type::int64) != nullptr) {
            const auto at = integer_member("scale_axis", 2);
            if (rank == 0) throw error(fmt::format("{}: scale_axis for a scalar", file));
            c.scale_axis = axis_of(at[0], "scale_axis");
            c.scale_blocks = seen_along(p.shape, c.scale_axis);
            if (at[1] < 0 || at[1] > (std::int64_t{1} << 40)) throw error(fmt::format("{}: blocks of {}", file, at[1]));
            c.scale_block = static_cast<std::size_t>(at[1]);
            c.given = c.scale_block == 0 ? conversion::granularity::channel : conversion::granularity::block;
            expected = c.scale_block == 0
                           ? c.scale_blocks.length
                           : c.scale_blocks.outer * ((c.scale_blocks.length + c.scale_block - 1) / c.scale_block) * c.scale_blocks.inner;
        }
        if (c.scale.size() != expected || (!c.zero_point.empty() && c.zero_point.size() != expected)) {
            throw error(
                fmt::format("{}: {} scales and {} zero points where {} belong", file, c.scale.size(), c.zero_point.size(), expected));
        }
    }
    return p;
}

}  // namespace qk::tool
