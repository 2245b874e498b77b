// SPDX-License-Identifier: Apache-2.0
// Report pages escape text, load nothing from outside, and nest their elements well.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <vector>

#include "qk/graph/report/html.hpp"

using namespace qk::graph;

namespace {
/// Is true if every element that is opened is closed in order (void elements and <!DOCTYPE> aside).
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
    const std::vector<html_bar> bars{{"conv<1>", 3, "note"}, {"negative", -1}, {"no number", nan}};
    const std::vector<double> edges{-1, 0, 1, 2}, counts{1, 100000, 0};
    const std::vector<html_marker> markers{{"min_max", 1.5}};
    const std::vector<html_series> series{{"front", {{1, 2}, {3, nan}, {4, 5}}}, {"dots", {{2, 3}}, false, {"why"}}};
    page.heading("h")
        .paragraph("p")
        .code("x < y")
        .table(columns, rows)
        .facts(facts)
        .open_details("more")
        .bar_chart("bars", bars, "dB")
        .close_details();
    page.open_grid().histogram("histogram", edges, counts, markers).close_grid().line_chart("line", series, {"cost", "error", true, true});
    page.line_chart("empty", {}, {}).bar_chart("none", {});
    const std::string text = page.text();
    CHECK(well_nested(text));
    CHECK(text.find("a&lt;b&gt;&quot;&#39;") != std::string::npos);
    CHECK(text.find("http") == std::string::npos);
    CHECK(text.find("<script") == std::string::npos);
    CHECK(text.find("=\"nan") == std::string::npos);  // no coordinate is NaN
    CHECK(text.find(":nan") == std::string::npos);
    CHECK(html_bytes(1234567) == "1.177 MiB");
    CHECK(html_number(nan) == "–");
    CHECK(html_number(0.00123456) == "0.001235");
    CHECK(html_number(-9999) == "-9999");
    CHECK(html_number(23630.4) == "23\u202f630");
    CHECK(html_number(-1234567) == "-1\u202f234\u202f567");
    CHECK(html_number(123456) == "123\u202f456");
    CHECK(html_number(-123456) == "-123\u202f456");
    CHECK(html_number(2e7) == "2e+07");
}

TEST_CASE("charts fit a narrow screen: bars are shares of the width, pictures are drawn for 640 pixels and less") {
    const std::vector<html_bar> bars{
        {"a layer with a long name, such as exporters write them/Conv_quantized", 3, "makes 0.1"}, {"b", -1}, {"c", 0.5}};
    const std::vector<html_series> series{{"front", {{1, 2}, {3, 4}}}};
    const std::vector<double> edges{-1, 0, 1}, counts{1, 4};
    const std::string text =
        html_page("h").bar_chart("bars", bars, "dB").line_chart("line", series, {"cost", "error"}).histogram("x", edges, counts, {}).text();
    std::size_t found = 0;
    for (std::size_t i = text.find("<u style=\"left:"); i != std::string::npos; i = text.find("<u style=\"left:", i + 1), ++found) {
        double left = -1, width = -1;
        REQUIRE(std::sscanf(text.c_str() + i, "<u style=\"left:%lf%%;width:%lf%%", &left, &width) == 2);
        CHECK(left >= 0);
        CHECK(left + width <= 100.11);
    }
    CHECK(found == bars.size());
    for (std::size_t i = text.find("viewBox="); i != std::string::npos; i = text.find("viewBox=", i + 1)) {
        double width = 0;
        REQUIRE(std::sscanf(text.c_str() + i, "viewBox=\"0 0 %lf", &width) == 1);
        CHECK(width <= 640);
    }
    CHECK(text.find("@media (max-width:640px)") != std::string::npos);
    CHECK(text.find("min-width:700px") == std::string::npos);
}

TEST_CASE("a histogram keeps its height under many markers, whose labels do not cover each other") {
    const std::vector<double> edges{-1, 0, 1}, counts{1, 4};
    for (const bool together : {true, false}) {
        std::vector<html_marker> markers;
        for (int i = 0; i < 12; ++i) markers.push_back({"method" + std::to_string(i), together ? 0.5 : -1 + i / 5.5, i});
        const std::string text = html_page("h").histogram("x", edges, counts, markers).text();
        // Reads the path of the outline, which starts at the base, and finds the tallest bar.
        double x = 0, base = 0, highest = 1e9, height = 0;
        const std::size_t at = text.find(" d=\"M") + 5;
        REQUIRE(std::sscanf(text.c_str() + at, "%lf %lf", &x, &base) == 2);
        for (std::size_t i = text.find('L', at); i < text.find('"', at); i = text.find('L', i + 1)) {
            double y = 0;
            REQUIRE(std::sscanf(text.c_str() + i + 1, "%lf %lf", &x, &y) == 2);
            CHECK(y <= base);
            highest = std::min(highest, y);
        }
        CHECK(base - highest > 100);
        REQUIRE(std::sscanf(text.c_str() + text.find("viewBox=\"0 0 420 "), "viewBox=\"0 0 420 %lf", &height) == 1);
        CHECK(height > base);
        std::set<std::string> rows;
        for (std::size_t i = text.find("class=\"mark\""); i != std::string::npos; i = text.find("class=\"mark\"", i + 1)) {
            const std::size_t y = text.find(" y=\"", i) + 4;
            rows.insert(text.substr(y, text.find('"', y) - y));
        }
        CHECK(rows.size() <= 12);
        if (together) CHECK(rows.size() == 12);
        else CHECK(rows.size() < 12);
    }
}

TEST_CASE("numbers are right-aligned, whatever their size, and so are the heads of their columns") {
    const std::vector<std::string> columns{"layer", "cost", "error"};
    const std::vector<std::vector<std::string>> rows{{"conv1", html_number(9999), html_number(0.5) + " +- " + html_number(0.1)},
                                                     {"10 000 maniacs", html_number(23630), "–"},
                                                     {"conv3", html_number(std::numeric_limits<double>::infinity()), html_number(2e-7)}};
    const std::string text = html_page("h").table(columns, rows).text();
    for (const char* cell : {">9999<", ">23\u202f630<", ">∞<", ">–<", ">2e-07<", ">0.5 +- 0.1<"})
        CHECK_MESSAGE(text.find(std::string("<td class=\"n\"") + cell) != std::string::npos, cell);
    CHECK(text.find("<td>10 000 maniacs<") != std::string::npos);
    CHECK(text.find("<th>layer</th><th class=\"n\">cost</th><th class=\"n\">error</th>") != std::string::npos);
}

TEST_CASE("labels of a chart's axes have room on a phone, where text is 18 of the picture's 640 units high") {
    for (const auto& [low, high] : {std::pair{131072.0, 190000.0}, {0.0, 1.0}, {1.0e6, 9.9e6}, {123456.0, 123460.0}, {1e-7, 3e-7}}) {
        const std::vector<html_series> series{{"front", {{low, low}, {high, high}}}};
        const std::string text = html_page("h").line_chart("line", series, {"bytes", "error"}).text();
        const auto letters = [](const std::string& s) { return std::ranges::count_if(s, [](char c) { return (c & 0xC0) != 0x80; }); };
        double behind = -1e9;
        int along_x = 0, along_y = 0;
        for (std::size_t i = text.find("<text x=\""); i != std::string::npos; i = text.find("<text x=\"", i + 1)) {
            double x = 0, y = 0;
            char anchor[16] = {}, kind[16] = {};
            if (std::sscanf(text.c_str() + i, "<text x=\"%lf\" y=\"%lf\" text-anchor=\"%15[a-z]\" class=\"%15[a-z]", &x, &y, anchor,
                            kind) != 4)
                continue;
            const std::size_t from = text.find('>', i) + 1;
            const double width = 9.5 * static_cast<double>(letters(text.substr(from, text.find('<', from) - from)));
            if (std::string(anchor) == "end") {
                ++along_y;
                CHECK(x - width > 14 + 9);  // beside the axis's name, which stands upright around x = 14
            } else {
                ++along_x;
                CHECK_MESSAGE(x - width / 2 > behind, text.substr(from, 12));
                behind = x + width / 2;
            }
        }
        CHECK(along_x >= 1);
        CHECK(along_y >= 2);
    }
}
