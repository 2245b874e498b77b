// SPDX-License-Identifier: Apache-2.0
#include "support/remarks.hpp"

#include <iterator>

#include "qk/graph/quantize/remarks.hpp"
#include "support/console.hpp"

namespace qk::tool {

std::size_t print_remarks(const graph::quantize_report& report, bool all) {
    using kind = graph::plan_note::kind;
    std::vector<graph::plan_note> said;
    std::ranges::copy_if(report.notes, std::back_inserter(said), [&](const graph::plan_note& n) {
        return all || graph::is_violation(n) || graph::is_warning(n) || n.what == kind::renamed ||
               (n.what == kind::boundary && !report.widened.empty());
    });
    const std::vector<std::string> lines = graph::remark_lines(said, report.widened);
    for (const std::string& line : lines) print(stderr, "{}\n", line);
    return lines.size();
}

}  // namespace qk::tool
