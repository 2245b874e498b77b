// SPDX-License-Identifier: Apache-2.0
// One self-contained HTML page with tables and plots as inline SVG: no script, no network, light and dark.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qk::graph {

/// Returns text made safe for HTML content and attribute values.
std::string html_escape(std::string_view text);
/// Returns a number as people read it: 4 significant digits, no trailing zeros; all digits of the whole part below 10^7; "–" for NaN, "∞".
std::string html_number(double value);
/// Returns 1234567 bytes as "1.18 MiB".
std::string html_bytes(double bytes);

struct html_bar {
    std::string label;
    double value = 0;
    std::string note{};  ///< shown when the pointer rests on it, and behind the value
    int series = 0;      ///< colour
};
struct html_series {
    std::string name;
    std::vector<std::pair<double, double>> points;
    bool line = true;                  ///< false: dots only
    std::vector<std::string> notes{};  ///< one for each point, shown when the pointer rests on it
};
/// A vertical line in a histogram, with a name at its top.
struct html_marker {
    std::string label;
    double at = 0;
    int series = 1;
};
struct html_axes {
    std::string x, y;
    bool log_x = false, log_y = false;
};

/// Builds a page from top to bottom; every text is escaped here.
class html_page {
  public:
    explicit html_page(std::string title);

    html_page& heading(std::string_view text, int level = 2);
    html_page& paragraph(std::string_view text);
    html_page& code(std::string_view text);
    /// Adds a table. Cells that look like numbers are right-aligned. Long tables scroll.
    html_page& table(std::span<const std::string> columns, std::span<const std::vector<std::string>> rows);
    /// Shows short facts side by side: {"size", "1.2 MiB"}, ...
    html_page& facts(std::span<const std::pair<std::string, std::string>> items);
    /// Draws horizontal bars, one a line, labels left. Negative values go left.
    html_page& bar_chart(std::string_view title, std::span<const html_bar> bars, std::string_view unit = {});
    /// counts[i] lies between edges[i] and edges[i + 1]; the height is logarithmic when the counts span more than three decades.
    html_page& histogram(std::string_view title, std::span<const double> edges, std::span<const double> counts,
                         std::span<const html_marker> markers = {});
    html_page& line_chart(std::string_view title, std::span<const html_series> series, const html_axes& axes);
    /// Opens a part that is folded unless `open`; close_details() ends it.
    html_page& open_details(std::string_view summary, bool open = false);
    html_page& close_details();
    /// Plots between these stand side by side where the window is wide enough.
    html_page& open_grid();
    html_page& close_grid();

    std::string text() const;

  private:
    html_page& add(const std::string& markup);

    std::string title_, body_;
};

}  // namespace qk::graph
