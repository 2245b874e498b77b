// SPDX-License-Identifier: Apache-2.0
#include "support/remarks.hpp"

#include "support/console.hpp"

namespace qk::tool {

void print_remarks(const graph::quantize_report& report, bool all) {
    using kind = graph::plan_note::kind;
    bool between = false;  // the line for tensors between two formats has been printed
    for (const graph::plan_note& n : report.notes) {
        if (n.what == kind::boundary && !report.widened.empty()) {
            if (!between) print(stderr, "boundary: {}\n", graph::boundary_line(report.widened));
            between = true;
            continue;
        }
        if (all || graph::is_violation(n) || n.what == kind::renamed || n.what == kind::unchanged || n.what == kind::unused ||
            n.what == kind::requantized)
            print(stderr, "{}: {}{}: {}\n", graph::name_of(n.what), n.origin.empty() ? "" : n.origin + ": ", n.subject, n.text);
    }
}

}  // namespace qk::tool
