// SPDX-License-Identifier: Apache-2.0
#include "graph/export/description.hpp"

#include <nlohmann/json.hpp>

#include "disk/bounded_json.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::detail {

std::string describe(quantizer q, bool with_scales) {
    if (!with_scales) q.scale.clear(), q.zero_point.clear();
    try {
        return to_json(q).dump();
    } catch (const error&) {
        return {};
    }
}

std::optional<quantizer> described(const std::string& text, const std::vector<float>& scale, std::vector<std::int64_t> zero_point) {
    if (!text.starts_with("{\"format\":")) return std::nullopt;
    try {
        nlohmann::ordered_json j = bounded_json::parse<nlohmann::ordered_json>(text);
        if (zero_point.size() == 1) zero_point.assign(scale.size(), zero_point[0]);
        if (!scale.empty()) j["scale"] = scale;
        if (!zero_point.empty()) j["zero_point"] = zero_point;
        return read_quantizer(json_cursor::parse(j.dump(), "description"));
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

}  // namespace qk::graph::detail
