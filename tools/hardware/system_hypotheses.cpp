// SPDX-License-Identifier: Apache-2.0
#include "hardware/system_hypotheses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "qk/compare/conversion.hpp"
#include "qk/formats/parse.hpp"
#include "qk/systems.hpp"

namespace qk::tool {
namespace {

constexpr std::size_t most_values = std::size_t{1} << 22;  ///< some rules search their scales

/// Is a rule one for such a format? Names begin alike: mxfp4 and mxfp4_rounded, int4 and int4_g128_asym. Of integers all rules with as
/// many bits are asked.
bool is_kin(const qk::format& f, const systems::rule& rule) {
    if (const integer* whole = std::get_if<integer>(&f)) {
        const std::string bits = std::to_string(whole->bits);
        const std::string_view n = rule.format;
        return n.find("int" + bits) != n.npos || n.find("sym" + bits) != n.npos || n.starts_with("affine" + bits) ||
               n.starts_with("q" + bits);
    }
    const std::string name = std::string(to_text(f).view());
    return rule.format.starts_with(name.substr(0, name.find_first_of("_:")));
}

}  // namespace

std::vector<system_agreement> systems_like(const qk::format& f, const graph::tensor& x, std::span<const float> device,
                                           std::size_t mismatches) {
    std::vector<system_agreement> found;
    if (x.rank() == 0 || x.size() == 0 || x.size() > most_values || mismatches == 0) return found;
    const auto columns = static_cast<std::size_t>(x.dim(x.rank() - 1));
    const systems::input matrix{.values = x.as<float>(), .rows = x.size() / columns, .columns = columns};
    for (const systems::rule& rule : systems::rules()) {
        if (!is_kin(f, rule)) continue;
        try {
            const systems::result made = rule.convert(matrix);
            if (made.shape != std::vector{matrix.rows, columns}) continue;
            std::size_t differ = 0;
            for (std::size_t i = 0; i < device.size(); ++i) differ += !compare::same_value(made.values[i], device[i]);
            found.push_back({rule.name(), std::string(rule.how), std::string(rule.source), differ});
        } catch (const std::invalid_argument&) {  // the system refuses such columns
        }
    }
    std::ranges::stable_sort(found, {}, &system_agreement::differ);
    const bool any = !found.empty() && found[0].differ == 0;
    std::erase_if(found, [&](const system_agreement& s) { return any ? s.differ != 0 : s.differ >= mismatches / 10; });
    if (!any && found.size() > 1) found.resize(1);
    return found;
}

std::string to_text(const std::vector<system_agreement>& found, std::size_t values) {
    std::string text;
    for (const system_agreement& s : found)
        text += s.differ == 0
                    ? fmt::format("this is what {} does, in all {} values: {}\n", s.name, values, s.how)
                    : fmt::format("nearest is what {} does, which differs in {} of {} values: {}\n", s.name, s.differ, values, s.how);
    return text;
}

}  // namespace qk::tool
