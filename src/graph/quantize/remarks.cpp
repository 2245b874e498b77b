// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/quantize/remarks.hpp"

#include <map>
#include <set>
#include <tuple>

namespace qk::graph {
namespace {

using kind = plan_note::kind;

/// Returns a sentence without its names and numbers.
std::string outline(const std::string& text) {
    std::string bare;
    bool named = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const auto is_digit = [](char d) { return d >= '0' && d <= '9'; };
        // A quotation mark opens behind no letter: that of "it's" is none.
        if (c == '\'' && (named || i == 0 || text[i - 1] == ' ' || text[i - 1] == '(')) named = !named, bare += named ? "'" : "";
        else if (!named && is_digit(c)) bare += bare.ends_with('0') ? "" : "0";
        else if (!named && !(c == '.' && i + 1 < text.size() && is_digit(text[i + 1]))) bare += c;
    }
    return bare;
}

/// Returns what a subject is, "layer" of "layer 'conv1'"; empty for one without a name.
std::string what_of(const std::string& subject) {
    const std::size_t quote = subject.find(" '");
    return quote == std::string::npos ? "" : subject.substr(0, quote);
}

std::string several(std::size_t count, const std::string& first) {
    const std::string what = what_of(first);
    const std::size_t from = what.size() + 1, end = first.find('\'', from + 1);
    return std::to_string(count) + " " + what + (what.ends_with('s') ? "es" : "s") + " (" + first.substr(from, end + 1 - from) + ", ...)";
}

std::string line_of(const plan_note& n, const std::string& subject, const std::string& text) {
    return (is_warning(n) ? std::string(warning_mark) : "") + name_of(n.what) + ": " + (n.origin.empty() ? "" : n.origin + ": ") + subject +
           ": " + text;
}

/// Notes that share a line.
struct shared_line {
    const plan_note* first = nullptr;
    std::set<std::string> subjects{};  ///< empty: the line is that of tensors between two formats
    bool same_text = true;
};

}  // namespace

bool is_warning(const plan_note& n) {
    using enum plan_note::kind;
    return n.what == unmatched || n.what == contradictory || n.what == unrealised || n.what == unchanged || n.what == destroyed ||
           n.what == requantized || n.what == unused;
}

std::string remark_line(const plan_note& n) { return line_of(n, n.subject, n.text); }

std::vector<std::string> remark_lines(std::span<const plan_note> notes, const widened_tensors& widened) {
    std::map<std::tuple<kind, std::string, std::string, std::string>, std::size_t> places;
    std::vector<shared_line> lines;
    bool between = false;
    for (const plan_note& n : notes) {
        if (n.what == kind::boundary && !widened.empty()) {
            if (!between) lines.push_back({.first = &n});
            between = true;
            continue;
        }
        const std::string what = what_of(n.subject);
        const bool names_matter = what.empty() || n.what == kind::renamed;  // what each became is what a note is about
        const auto [place, is_new] = places.emplace(
            std::tuple{n.what, n.origin, what.empty() ? n.subject : what, names_matter ? n.text : outline(n.text)}, lines.size());
        if (is_new) lines.push_back({.first = &n});
        shared_line& line = lines[place->second];
        if (!line.subjects.insert(n.subject).second) {  // said before, or something else of the same subject
            if (!is_new && line.first->text != n.text) lines.push_back({.first = &n, .subjects = {n.subject}});
            continue;
        }
        line.same_text = line.same_text && line.first->text == n.text;
    }
    std::vector<std::string> all;
    for (const shared_line& l : lines) {
        if (l.subjects.empty()) all.push_back(std::string(name_of(kind::boundary)) + ": " + boundary_line(widened));
        else if (l.subjects.size() == 1 || what_of(l.first->subject).empty()) all.push_back(remark_line(*l.first));
        else
            all.push_back(
                line_of(*l.first, several(l.subjects.size(), l.first->subject), (l.same_text ? "" : "the first: ") + l.first->text));
    }
    return all;
}

}  // namespace qk::graph
