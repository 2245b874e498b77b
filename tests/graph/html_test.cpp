// SPDX-License-Identifier: Apache-2.0
// Report pages: escaped, self-contained, well nested.
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "qk/graph/html.hpp"

using namespace qk::graph;

namespace {
/// Every element that is opened is closed in order (void elements and <!DOCTYPE> aside).
bool well_nested(const std::string& page) {
    std::vector<std::string> open;
    for (std::size_t i = page.find('<'); i != std::string::npos; i = page.find('<', i + 1)) {
        const std::size_t end = page.find('>', i);
        const std::string tag = page.substr(i + 1, end - i - 1);
        const std::string name = tag.substr(0, tag.find_first_of(" \n"));
        if (name == "!DOCTYPE" || name == "meta" || tag.back() == '/') continue;
        if (name[0] != '/') open.push_back(name);
        else if (open.empty() || "/" + open.back() != name) return false;
        else open.pop_back();
    }
    return open.empty();
}
}  // namespace

TEST_CASE("a page with every kind of part is well nested and needs nothing from outside") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    html_page page("int8 & <friends>");
    const std::vector<std::string> columns{"tensor", "dB"};
    const std::vector<std::vector<std::string>> rows{{"a<b>\"'", "12.5"}};
    const std::vector<std::pair<std::string, std::string>> facts{{"size", html_bytes(1234567)}};
    const std::vector<html_bar> bars{{"conv<1>", 3, "note"}, {"negative", -1}, {"nan", nan}};
    const std::vector<double> edges{-1, 0, 1, 2}, counts{1, 100000, 0};
    const std::vector<html_marker> markers{{"min_max", 1.5}};
    const std::vector<html_series> series{{"front", {{1, 2}, {3, nan}, {4, 5}}}, {"dots", {{2, 3}}, false, {"why"}}};
    page.heading("h").paragraph("p").code("x < y").table(columns, rows).facts(facts).open_details("more").bar_chart("bars", bars, "dB").close_details();
    page.open_grid().histogram("histogram", edges, counts, markers).close_grid().line_chart("line", series, {"cost", "error", true, true});
    page.line_chart("empty", {}, {}).bar_chart("none", {});
    const std::string text = page.text();
    CHECK(well_nested(text));
    CHECK(text.find("a&lt;b&gt;&quot;&#39;") != std::string::npos);
    CHECK(text.find("http") == std::string::npos);
    CHECK(text.find("<script") == std::string::npos);
    CHECK(text.find("=\"nan") == std::string::npos);  // no coordinate
    CHECK(html_bytes(1234567) == "1.177 MiB");
    CHECK(html_number(nan) == "–");
}
