// SPDX-License-Identifier: Apache-2.0
#include "graph/export/refine.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/export/description.hpp"
#include "graph/model/code_types.hpp"

namespace qk::graph::detail {

void refine(quantizer& how, const std::string& text) {
    const auto told = described(text, how.scale);
    if (!told) return;
    quantizer refined = how;
    refined.semantics = told->semantics;
    if (holds_codes(how.format, told->format)) refined.format = told->format;
    else if (holds_moved_codes(how.format, told->format)) make_signed(refined, std::get<integer>(told->format));
    const integer* f = std::get_if<integer>(&refined.format);
    if (f == nullptr || std::ranges::all_of(refined.zero_point, [&](std::int64_t z) { return qmin(*f) <= z && z <= qmax(*f); }))
        how = refined;
}

namespace {
std::optional<integer> format_between(std::int64_t lowest, std::int64_t highest, bool is_signed) {
    for (int width = 1; width <= 16; ++width)
        for (const bool narrow : {false, true}) {
            const integer f{.bits = width, .is_signed = is_signed, .narrow = narrow};
            if (qmin(f) == lowest && qmax(f) == highest) return f;
        }
    return std::nullopt;
}
}  // namespace

bool narrow(quantizer& how, const tensor& low, const tensor& high) {
    if (how.scale.size() != 1 || low.type() != data_type::float32 || high.type() != data_type::float32 || low.size() != 1 ||
        high.size() != 1)
        return false;
    const std::int64_t zero = how.zero_point.empty() ? 0 : how.zero_point[0];
    if (!((std::fabs(low.as<float>()[0]) + std::fabs(high.as<float>()[0])) / how.scale[0] < 0x1p40f)) return false;
    const auto code = [&](const tensor& t) { return std::llround(t.as<float>()[0] / how.scale[0]) + zero; };
    const auto f = format_between(code(low), code(high), std::get<integer>(how.format).is_signed);
    if (f) how.format = *f;
    return f.has_value();
}

void make_signed(quantizer& how, integer f) {
    if (how.zero_point.empty()) how.zero_point = {0};
    for (std::int64_t& z : how.zero_point) z -= 128;
    if (!is_shifted(how)) how.zero_point.clear();
    how.format = f;
}

}  // namespace qk::graph::detail
