// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "qk/graph/base/printable.hpp"
#include "qk/graph/report/html.hpp"

namespace qk::graph {

namespace detail {
inline constexpr std::string_view html_style = R"(
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dee6;--page:#fff;--card:#f6f8fa;--s0:#2f6fb3;--s1:#d1602e;--s2:#3a8f5c;--s3:#8a57b0;--s4:#b58a1b;--s5:#4a9aa5}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#384252;--page:#14181f;--card:#1d232c;--s0:#6aa9e9;--s1:#ee8a5b;--s2:#6cc290;--s3:#bd92df;--s4:#dcb650;--s5:#7fcbd5}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:1.5rem;overflow-wrap:anywhere;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page)}
h1{font-size:1.6rem;margin:.2em 0}h2{font-size:1.2rem;margin:1.8em 0 .5em;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1.2em 0 .4em}
p{max-width:75ch}pre{background:var(--card);padding:.7rem;white-space:pre-wrap;border-radius:6px;font-size:13px}
.scroll{overflow:auto;max-height:32rem;border:1px solid var(--line);border-radius:6px}table{border-collapse:collapse;font-size:13px;width:100%}
th{position:sticky;top:0;background:var(--card);text-align:left}th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap;overflow-wrap:normal;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.w{white-space:normal;overflow-wrap:anywhere;min-width:15rem}
.facts{display:flex;flex-wrap:wrap;gap:.6rem;margin:.8rem 0}.facts div{background:var(--card);border-radius:6px;padding:.5rem .9rem}.facts b{display:block;font-size:1.15rem}.facts span{color:var(--soft);font-size:12px}
figure{margin:.8rem 0;min-width:0}figcaption{font-weight:600;font-size:13px;margin-bottom:.2rem}svg{width:100%;height:auto;display:block;overflow:visible}svg.plot{max-width:860px}
.bars{display:grid;grid-template-columns:fit-content(22rem) minmax(6rem,1fr) fit-content(24rem);gap:0 .5rem;align-items:center;font-size:12px;line-height:1.35}.bar{display:contents}.bar b{font-weight:400;text-align:right}.bar em{font-style:normal;color:var(--soft)}
.bar i{position:relative;height:13px}.bar u{position:absolute;top:0;bottom:0;border-radius:2px;min-width:1px;print-color-adjust:exact;-webkit-print-color-adjust:exact}.bar s{position:absolute;top:-3px;bottom:-3px;border-left:1px solid var(--line)}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:12px}.key u{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:.4em;print-color-adjust:exact;-webkit-print-color-adjust:exact}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}svg text.soft{fill:var(--soft)}svg text.mark{font-size:10px;paint-order:stroke;stroke:var(--page);stroke-width:3px}svg .axis{stroke:var(--line);fill:none}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));gap:.4rem 1.4rem}details{margin:.5rem 0}summary{cursor:pointer;font-weight:600}
@media print{.scroll{max-height:none}}
@media (max-width:640px){body{padding:.8rem}.bars{display:block}.bar{display:flex;flex-wrap:wrap;gap:0 .6rem;margin-bottom:.45rem}.bar b{text-align:left}.bar em{order:1}.bar i{order:2;flex:0 0 100%;height:9px}.bar s{top:0;bottom:0}svg.plot text{font-size:18px}td.w{min-width:9rem}}
)";

inline std::string html_colour(int series) { return "var(--s" + std::to_string(((series % 6) + 6) % 6) + ")"; }

/// Writes a coordinate: short, never in exponent form.
inline std::string at(double v) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.1f", std::isfinite(v) ? std::clamp(v, -1e6, 1e6) : 0.0);
    return buffer;
}

/// Returns about `count` round numbers that cover [lo, hi].
inline std::vector<double> html_ticks(double lo, double hi, int count) {
    if (!(hi > lo)) return {lo};
    const double raw = (hi - lo) / count, power = std::pow(10.0, std::floor(std::log10(raw)));
    const double step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
    std::vector<double> all;
    for (double v = std::ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-6 && all.size() < 20; v += step)
        all.push_back(std::fabs(v) < step * 1e-9 ? 0 : v);
    return all;
}

/// Is true for what html_number writes, its thin spaces, dash and infinity included, and for shares, lists and errors of numbers.
inline bool looks_numeric(std::string_view cell) {
    bool any = false;
    for (std::size_t i = 0; i < cell.size();) {
        const std::string_view rest = cell.substr(i);
        if (rest.starts_with("\u202f")) i += std::string_view("\u202f").size();
        else if (rest.starts_with("–")) any = true, i += std::string_view("–").size();
        else if (rest.starts_with("∞")) any = true, i += std::string_view("∞").size();
        else if (std::string_view("0123456789.+-eE%, ").find(cell[i]) != std::string_view::npos)
            any = any || (cell[i] >= '0' && cell[i] <= '9'), ++i;
        else return false;
    }
    return any;
}

/// Returns how wide a label of a plot is at most, in its units: on a phone text is 18 of them high.
inline double label_width(std::string_view text) {
    const auto letters = std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    return 10 * static_cast<double>(letters);
}

/// Returns as many ticks, at most about `count`, as their labels leave room for.
inline std::vector<double> ticks_that_fit(double lo, double hi, int count, double width, const std::function<std::string(double)>& label) {
    std::vector<double> ticks;
    for (; count > 0; --count) {
        ticks = html_ticks(lo, hi, count);
        double sum = 0;
        for (const double t : ticks) sum += label_width(label(t)) + 12;
        if (sum <= width) break;
    }
    return ticks;
}

inline std::string svg_text(double x, double y, std::string_view text, const char* anchor, const char* kind = "") {
    return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + anchor + "\"" +
           (*kind ? " class=\"" + std::string(kind) + "\"" : "") + ">" + html_escape(text) + "</text>";
}
inline std::string svg_title(std::string_view text) { return text.empty() ? "" : "<title>" + html_escape(text) + "</title>"; }
inline std::string svg_line(double x0, double y0, double x1, double y1, const std::string& style) {
    return "<line x1=\"" + at(x0) + "\" y1=\"" + at(y0) + "\" x2=\"" + at(x1) + "\" y2=\"" + at(y1) + "\" " + style + "/>";
}
}  // namespace detail

namespace {
/// Escapes text whose control characters are already spelled out.
std::string escape_markup(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&#39;"; break;
            default: out += c;
        }
    }
    return out;
}
}  // namespace

std::string html_escape(std::string_view text) { return escape_markup(printable(text)); }

std::string html_number(double v) {
    if (std::isnan(v)) return "–";
    if (std::isinf(v)) return v > 0 ? "∞" : "-∞";
    char buffer[40];
    const bool large = std::fabs(v) >= 9999.5 && std::fabs(v) < 1e7;  // 23630 is written as 23 630, not as 2.363e+04
    std::snprintf(buffer, sizeof buffer, large ? "%.0f" : "%.4g", v);
    std::string text = buffer;
    if (large)
        for (std::size_t at = text.size(); at > (v < 0 ? 4u : 3u); at -= 3) text.insert(at - 3, "\u202f");
    return text;
}
std::string html_bytes(double b) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (b >= 1024 && u < 4) b /= 1024, ++u;
    return html_number(b) + " " + units[u];
}

html_page& html_page::add(const std::string& markup) {
    body_ += markup;
    return *this;
}

html_page::html_page(std::string title) : title_(std::move(title)) { body_ = "<h1>" + html_escape(title_) + "</h1>\n"; }

html_page& html_page::heading(std::string_view text, int level) {
    const std::string tag = "h" + std::to_string(std::clamp(level, 2, 4));
    return add("<" + tag + ">" + html_escape(text) + "</" + tag + ">\n");
}
html_page& html_page::paragraph(std::string_view text) { return add("<p>" + html_escape(text) + "</p>\n"); }
html_page& html_page::code(std::string_view text) { return add("<pre>" + escape_markup(printable(text, "\n")) + "</pre>\n"); }
html_page& html_page::table(std::span<const std::string> columns, std::span<const std::vector<std::string>> rows) {
    body_ += "<div class=\"scroll\"><table><thead><tr>";
    for (std::size_t c = 0; c < columns.size(); ++c) {
        const bool numbers =
            !rows.empty() && std::ranges::all_of(rows, [&](const auto& r) { return c >= r.size() || detail::looks_numeric(r[c]); });
        body_ += (numbers ? "<th class=\"n\">" : "<th>") + html_escape(columns[c]) + "</th>";
    }
    body_ += "</tr></thead><tbody>\n";
    for (const auto& row : rows) {
        body_ += "<tr>";
        for (const std::string& cell : row)
            body_ += (detail::looks_numeric(cell) ? "<td class=\"n\">"
                      : cell.size() > 40          ? "<td class=\"w\">"
                                                  : "<td>") +
                     html_escape(cell) + "</td>";
        body_ += "</tr>\n";
    }
    return add("</tbody></table></div>\n");
}
html_page& html_page::facts(std::span<const std::pair<std::string, std::string>> items) {
    body_ += "<div class=\"facts\">";
    for (const auto& [name, value] : items) body_ += "<div><b>" + html_escape(value) + "</b><span>" + html_escape(name) + "</span></div>";
    return add("</div>\n");
}

html_page& html_page::bar_chart(std::string_view title, std::span<const html_bar> bars, std::string_view unit) {
    double lo = 0, hi = 0;
    for (const html_bar& b : bars)
        if (std::isfinite(b.value)) lo = std::min(lo, b.value), hi = std::max(hi, b.value);
    if (hi == lo) hi = lo + 1;
    const auto per_cent = [&](double v) { return 100 * (v - lo) / (hi - lo); };
    const auto style = [&](double from, double length) {
        return "left:" + detail::at(from) + "%" + (length < 0 ? "" : ";width:" + detail::at(length) + "%");
    };
    // Elements instead of a picture: on a narrow screen a bar moves below its label.
    body_ += "<figure><figcaption>" + html_escape(title) + "</figcaption><div class=\"bars\">";
    for (const html_bar& b : bars) {
        const double v = std::isfinite(b.value) ? b.value : b.value > 0 ? hi : lo;
        const double x0 = per_cent(std::min(v, 0.0)), x1 = per_cent(std::max(v, 0.0));
        const std::string value = html_number(b.value) + (unit.empty() ? "" : " " + std::string(unit));
        body_ += "<div class=\"bar\" title=\"" + html_escape(b.label + ": " + value + (b.note.empty() ? "" : " – " + b.note)) + "\"><b>" +
                 html_escape(b.label) + "</b><i><s style=\"" + style(per_cent(0), -1) + "\"></s><u style=\"" + style(x0, x1 - x0) +
                 ";background:" + detail::html_colour(b.series) + "\"></u></i><em>" +
                 html_escape(value + (b.note.empty() ? "" : "  " + b.note)) + "</em></div>\n";
    }
    return add("</div></figure>\n");
}

html_page& html_page::histogram(std::string_view title, std::span<const double> edges, std::span<const double> counts,
                                std::span<const html_marker> markers) {
    if (counts.empty() || edges.size() != counts.size() + 1) return *this;
    double most = 0, least = 0;
    for (const double c : counts) {
        most = std::max(most, c);
        if (c > 0) least = least == 0 ? c : std::min(least, c);
    }
    const bool logarithmic = least > 0 && most / least > 1000;
    const auto height_of = [&](double c) {
        if (!(c > 0)) return 0.0;
        return logarithmic ? std::log10(c / least * 1.5) / std::log10(most / least * 1.5) : c / std::max(most, 1e-300);
    };
    const double lo = edges.front(), hi = edges.back(), width = 420;
    const auto x_of = [&](double v) { return 6 + (v - lo) / (hi > lo ? hi - lo : 1) * (width - 12); };
    // Labels of markers stand in rows above the bars, each in the first row where no other label is in its way.
    std::vector<std::vector<std::pair<double, double>>> rows;
    std::vector<std::size_t> row_of;
    for (const html_marker& m : markers) {
        const double x = x_of(std::clamp(m.at, lo, hi)), length = 5.6 * static_cast<double>(m.label.size()) + 8;
        const std::pair<double, double> place = x > width / 2 ? std::pair{x - length, x} : std::pair{x, x + length};
        std::size_t r = 0;
        const auto taken = [&](const auto& other) { return place.first < other.second && other.first < place.second; };
        while (r < rows.size() && std::any_of(rows[r].begin(), rows[r].end(), taken)) ++r;
        if (r == rows.size()) rows.emplace_back();
        rows[r].push_back(place);
        row_of.push_back(r);
    }
    const double top = 14 + 11.0 * static_cast<double>(rows.size()), base = top + 112;
    body_ += "<figure><figcaption>" + html_escape(title) + (logarithmic ? " <span style=\"font-weight:400\">(log counts)</span>" : "") +
             "</figcaption><svg viewBox=\"0 0 420 " + detail::at(base + 22) + "\" role=\"img\"><path fill=\"" + detail::html_colour(0) +
             "\" d=\"M" + detail::at(x_of(lo)) + " " + detail::at(base);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::string y = detail::at(base - height_of(counts[i]) * (base - top));
        body_ += "L" + detail::at(x_of(edges[i])) + " " + y + "L" + detail::at(x_of(edges[i + 1])) + " " + y;
    }
    body_ += "L" + detail::at(x_of(hi)) + " " + detail::at(base) + "Z\"/>" + detail::svg_line(6, base, width - 6, base, "class=\"axis\"");
    for (const double t : detail::html_ticks(lo, hi, 5)) body_ += detail::svg_text(x_of(t), base + 14, html_number(t), "middle", "soft");
    std::string labels;  // above all lines
    for (std::size_t i = 0; i < markers.size(); ++i) {
        const html_marker& m = markers[i];
        const double x = x_of(std::clamp(m.at, lo, hi)), y = 10 + 11.0 * static_cast<double>(row_of[i]);
        const std::string what = detail::svg_title(m.label + ": " + html_number(m.at)), colour = detail::html_colour(m.series);
        body_ += "<g>" + what + detail::svg_line(x, y, x, base, "stroke=\"" + colour + "\" stroke-width=\"1.2\" stroke-dasharray=\"3 2\"") +
                 "</g>";
        const bool leftward = x > width / 2;
        labels += "<g>" + what + "<text class=\"mark\" x=\"" + detail::at(x + (leftward ? -3 : 3)) + "\" y=\"" + detail::at(y + 4) +
                  "\" text-anchor=\"" + (leftward ? "end" : "start") + "\" style=\"fill:" + colour + "\">" + html_escape(m.label) +
                  "</text></g>";
    }
    body_ += labels;
    return add("</svg></figure>\n");
}

html_page& html_page::line_chart(std::string_view title, std::span<const html_series> series, const html_axes& axes) {
    const auto fx = [&](double v) { return axes.log_x ? std::log10(std::max(v, 1e-30)) : v; };
    const auto fy = [&](double v) { return axes.log_y ? std::log10(std::max(v, 1e-30)) : v; };
    double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
    bool any = false;
    for (const html_series& s : series)
        for (const auto& [px, py] : s.points) {
            if (!std::isfinite(px) || !std::isfinite(py)) continue;
            const double x = fx(px), y = fy(py);
            x0 = any ? std::min(x0, x) : x, x1 = any ? std::max(x1, x) : x;
            y0 = any ? std::min(y0, y) : y, y1 = any ? std::max(y1, y) : y;
            any = true;
        }
    if (!any) return paragraph(std::string(title) + ": nothing to draw");
    const double mx = x1 > x0 ? (x1 - x0) * 0.04 : 1, my = y1 > y0 ? (y1 - y0) * 0.06 : 1;
    x0 -= mx, x1 += mx, y0 -= my, y1 += my;
    const auto label_x = [&](double t) { return html_number(axes.log_x ? std::pow(10, t) : t); };
    const auto label_y = [&](double t) { return html_number(axes.log_y ? std::pow(10, t) : t); };
    double left = 100;  // room for the axis's name, which stands upright, and for the labels beside it
    for (const double t : detail::html_ticks(y0, y1, 6)) left = std::max(left, 30 + detail::label_width(label_y(t)));
    const double right = 625, top = 10, base = 340;
    const auto sx = [&](double v) { return left + (v - x0) / (x1 - x0) * (right - left); };
    const auto sy = [&](double v) { return base - (v - y0) / (y1 - y0) * (base - top); };
    body_ += "<figure><figcaption>" + html_escape(title) + "</figcaption><svg class=\"plot\" viewBox=\"0 0 640 390\" role=\"img\">";
    for (const double t : detail::ticks_that_fit(x0, x1, 5, right - left, label_x))
        body_ +=
            detail::svg_line(sx(t), top, sx(t), base, "class=\"axis\"") + detail::svg_text(sx(t), base + 18, label_x(t), "middle", "soft");
    for (const double t : detail::html_ticks(y0, y1, 6))
        body_ += detail::svg_line(left, sy(t), right, sy(t), "class=\"axis\"") +
                 detail::svg_text(left - 6, sy(t) + 4, label_y(t), "end", "soft");
    body_ += detail::svg_text((left + right) / 2, base + 42, axes.x, "middle");
    body_ += "<text x=\"14\" y=\"" + detail::at((top + base) / 2) + "\" text-anchor=\"middle\" transform=\"rotate(-90 14 " +
             detail::at((top + base) / 2) + ")\">" + html_escape(axes.y) + "</text>";
    int number = 0;
    std::string legend;
    for (const html_series& s : series) {
        const std::string colour = detail::html_colour(number++);
        std::string path;
        for (const auto& [px, py] : s.points)
            if (std::isfinite(px) && std::isfinite(py))
                path += (path.empty() ? "M" : "L") + detail::at(sx(fx(px))) + " " + detail::at(sy(fy(py)));
        if (s.line && !path.empty()) body_ += "<path fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"1.8\" d=\"" + path + "\"/>";
        for (std::size_t i = 0; i < s.points.size(); ++i) {
            const auto& [px, py] = s.points[i];
            if (!std::isfinite(px) || !std::isfinite(py)) continue;
            body_ += "<circle cx=\"" + detail::at(sx(fx(px))) + "\" cy=\"" + detail::at(sy(fy(py))) + "\" r=\"" + (s.line ? "2.6" : "4") +
                     "\" fill=\"" + colour + "\">" +
                     detail::svg_title((s.name.empty() ? "" : s.name + ": ") + html_number(px) + ", " + html_number(py) +
                                       (i < s.notes.size() && !s.notes[i].empty() ? " – " + s.notes[i] : "")) +
                     "</circle>";
        }
        if (!s.name.empty()) legend += "<span><u style=\"background:" + colour + "\"></u>" + html_escape(s.name) + "</span>";
    }
    return add("</svg><div class=\"key\">" + legend + "</div></figure>\n");
}

html_page& html_page::open_details(std::string_view summary, bool open) {
    return add(std::string(open ? "<details open>" : "<details>") + "<summary>" + html_escape(summary) + "</summary>\n");
}
html_page& html_page::close_details() { return add("</details>\n"); }
html_page& html_page::open_grid() { return add("<div class=\"grid\">\n"); }
html_page& html_page::close_grid() { return add("</div>\n"); }

std::string html_page::text() const {
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
           "content=\"width=device-width,initial-scale=1\"><title>" +
           html_escape(title_) + "</title><style>" + std::string(detail::html_style) + "</style></head><body>\n" + body_ +
           "</body></html>\n";
}

}  // namespace qk::graph
