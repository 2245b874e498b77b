// SPDX-License-Identifier: Apache-2.0
// The help page of a verb: its arguments, the common options, the others under their headings, the examples.
#include <fmt/format.h>

#include <algorithm>

#include "option_table.hpp"
#include "qk/graph/report.hpp"

namespace qk::tool {
namespace {

constexpr std::size_t column = 30, line_width = 110;

/// Breaks `text` into lines of at most `line_width` characters; lines after the first begin at `column`.
std::string wrapped(const std::string& text) {
    std::string page;
    std::size_t at = column;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (at > column && at + 1 + (end - begin) > line_width) {
            page += "\n" + std::string(column, ' ');
            at = column;
        }
        if (at > column) page += ' ', ++at;
        page.append(text, begin, end - begin);
        at += end - begin;
        begin = end + 1;
    }
    return page;
}

/// `verb_takes`: the kinds of input of the option's verb.
std::string row(const option& o, input_kinds verb_takes) {
    std::string head = "  " + (o.short_name.empty() ? o.name : o.short_name + ", " + o.name);
    if (!o.is_argument() && o.takes_next_word()) head += " " + o.shown_value();
    if (o.is_list()) head += " ...";
    std::string text = o.text;
    if (o.is_required && !o.is_argument()) text = "(required) " + text;
    if (!o.is_required && o.is_argument()) text += " (may be left out)";
    if (o.kinds.bits != 0 && !(o.kinds == verb_takes)) text = "[" + kind_words(o.kinds) + "] " + text;
    if (o.only_words) text += ": " + graph::comma_separated(o.words);
    head += head.size() + 2 > column ? "\n" + std::string(column, ' ') : std::string(column - head.size(), ' ');
    return head + wrapped(text) + "\n";
}

}  // namespace

std::string help_of(const option_table& table, const std::string& program) {
    std::string usage = fmt::format("{}\n\nUsage: {} {}", table.summary(), program, table.name()), arguments, common;
    std::vector<std::pair<std::string, std::string>> sections{{"", ""}};
    for (const option& o : table.options()) {
        if (o.is_argument()) {
            usage += " " + (o.is_required ? o.name : "[" + o.name + "]") + (o.is_list() ? " ..." : "");
            arguments += row(o, table.kinds());
        } else if (o.is_common) {
            common += row(o, table.kinds());
        } else {
            const auto same = [&](const auto& s) { return s.first == o.section; };
            auto place = std::find_if(sections.begin(), sections.end(), same);
            if (place == sections.end()) place = sections.insert(place, {o.section, ""});
            place->second += row(o, table.kinds());
        }
    }
    std::string page = usage + " [OPTIONS]\n";
    if (!arguments.empty()) page += "\n" + arguments;
    if (!common.empty()) page += "\nCommon options:\n" + common;
    std::rotate(sections.begin(), sections.begin() + 1, sections.end());  // the general section comes last, with --help
    sections.back().second += "  -h, --help                  this page\n";
    for (const auto& [title, rows] : sections)
        page += fmt::format("\n{}:\n{}",
                            !title.empty()                           ? title
                            : common.empty() && sections.size() == 1 ? "Options"
                                                                     : "Other options",
                            rows);
    return page + (table.footer().empty() ? "" : "\n" + table.footer() + "\n");
}

}  // namespace qk::tool
