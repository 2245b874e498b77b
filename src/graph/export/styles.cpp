// SPDX-License-Identifier: Apache-2.0
// The table of styles, by name.
#include "graph/export/style.hpp"
#include "qk/graph/base/names.hpp"

namespace qk::graph {
namespace {

constexpr export_style every_style[] = {
#define QK_STYLE(NAME) export_style(detail::NAME##_style),
#include "graph/export/styles.inc"
#undef QK_STYLE
};

}  // namespace

constinit const export_style export_style::portable(detail::portable_style), export_style::qdq(detail::qdq_style),
    export_style::qoperator(detail::qoperator_style), export_style::qinteger(detail::qinteger_style), export_style::amd(detail::amd_style),
    export_style::nbits(detail::nbits_style);

const char* export_style::name() const { return row_->name; }
const char* export_style::help() const { return row_->help; }

std::span<const export_style> export_styles() { return every_style; }

export_style export_style_from(const std::string& name) {
    std::vector<std::string> names;
    for (const export_style s : every_style) {
        if (name == s.name()) return s;
        names.emplace_back(s.name());
    }
    throw error("unknown export style '" + name + "'; the styles are " + comma_separated(names) + "." + did_you_mean(name, names));
}

}  // namespace qk::graph
