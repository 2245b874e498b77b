// SPDX-License-Identifier: Apache-2.0
#include "support/row_formats.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "qk/codec.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"

namespace qk::tool {
namespace {

/// Splits "int4_g128" into "int4" and 128; 0: a row has one scale.
std::pair<std::string, std::size_t> split_group(const std::string& name) {
    const std::size_t at = name.rfind("_g");
    if (at == std::string::npos || at + 2 == name.size() || name.find_first_not_of("0123456789", at + 2) != std::string::npos)
        return {name, 0};
    const std::string digits = name.substr(at + 2);
    return {name.substr(0, at), digits.size() > 6 ? 0 : std::stoul(digits)};
}

/// Returns a scale under which the largest magnitude is the largest number of the format.
float scale_of(std::span<const float> x, double largest) {
    float amax = 0;
    for (const float v : x)
        if (std::isfinite(v)) amax = std::max(amax, std::abs(v));
    const float scale = static_cast<float>(static_cast<double>(amax) / largest);
    return scale > 0 ? scale : 1.0f;
}

}  // namespace

std::optional<checkpoint::row_format> row_format_named(const std::string& name) {
    const auto [base, group] = split_group(name);
    const auto parsed = parse_rounded_format(base);
    if (!parsed) return std::nullopt;
    const qk::format f = parsed.value;
    checkpoint::row_format how;
    if (is_block_format(f)) {
        if (group != 0) return std::nullopt;
        how.multiple = static_cast<std::size_t>(block_size(f));
        how.bytes = [f](std::uint64_t rows, std::uint64_t columns) {
            return packed_bytes(f, along_axis{static_cast<std::size_t>(rows), static_cast<std::size_t>(columns), 1});
        };
        const double largest = facts(f).largest;
        how.round = [f, largest, scaled = has_floating_scales(f)](std::span<const float> x, std::span<float> y) {
            if (scaled) dispatch::fake_quantize(f, x, y, along_axis{1, x.size(), 1}, affine{.scale = scale_of(x, largest)});
            else dispatch::fake_quantize(f, x, y, along_axis{1, x.size(), 1});
        };
        return how;
    }
    const bool scaled = is_integer_format(f) || bits_per_value(f) <= 8;
    if (!scaled && group != 0) return std::nullopt;
    how.multiple = std::max<std::size_t>(group, 1);
    const double bits = bits_per_value(f), largest = facts(f).largest;
    how.bytes = [bits, group, scaled](std::uint64_t rows, std::uint64_t columns) {
        const std::uint64_t scales = !scaled ? 0 : group == 0 ? rows : rows * columns / group;
        return static_cast<std::uint64_t>(std::ceil(bits * static_cast<double>(rows * columns) / 8)) + 2 * scales;
    };
    how.round = [f, largest, group, scaled](std::span<const float> x, std::span<float> y) {
        const std::size_t each = group == 0 ? x.size() : group;
        for (std::size_t i = 0; i < x.size(); i += each) {
            const std::span<const float> part = x.subspan(i, each);
            if (!scaled) dispatch::fake_quantize(f, part, y.subspan(i, each));
            else dispatch::fake_quantize(f, part, y.subspan(i, each), affine{.scale = scale_of(part, largest)});
        }
    };
    return how;
}

bool is_ggml_format(const std::string& name) {
    for (std::uint32_t t = 0; t < 64; ++t)
        if (const ggml_facts f = facts_of(static_cast<ggml_type>(t)); f.values != 0 && f.name == name) return true;
    return false;
}

}  // namespace qk::tool
