// SPDX-License-Identifier: Apache-2.0
// Reads and appends the cache of a search.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "disk/bounded_json.hpp"
#include "graph/search/cache.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/json_text.hpp"

namespace qk::graph {
namespace detail {

/// Writes a number so that reading it back is exact, NaN and infinities included.
inline std::string exact_text(double v) {
    char text[48];
    std::snprintf(text, sizeof text, "%a", v);
    return text;
}

inline std::string digits_of(const assignment& a) {
    constexpr const char* digits = "0123456789abcdefghijklmnopqrstuvwxyz";
    std::string s;
    for (const std::uint8_t o : a) s += digits[o];
    return s;
}

inline assignment assignment_of(const std::string& s) {
    assignment a;
    for (const char c : s) a.push_back(static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10));
    return a;
}

}  // namespace detail

search_cache::search_cache(std::filesystem::path file, std::string key, const ranks& together)
    : file_(std::move(file)), key_(std::move(key)) {
    if (file_.empty()) return;
    if (together.first()) read();
    else file_.clear();
    if (together.alone()) return;
    std::string lines;
    for (const auto& [a, s] : known_) lines += line_of(a, s);
    std::istringstream shared(together.from_first(lines));
    for (std::string line; std::getline(shared, line);) add_line(line);
}

void search_cache::read() {
    std::string line;
    bool torn = false;
    append_to_file(file_, "");  // makes it where there is none
    file_stream in(file_);
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        torn = in.eof();  // the line has no line end
        if (add_line(line)) continue;
        // Ignores what a crash left of a line. But a file that begins with anything else belongs to somebody else.
        if (number == 1 && !torn && !line.starts_with("{\"key\":"))
            throw error("'" + file_.string() + "' is not a search cache; name another file with --cache");
    }
    if (torn) append_to_file(file_, "\n");
}

bool search_cache::add_line(const std::string& line) {
    nlohmann::json json;
    try {
        json = bounded_json::parse(line);
    } catch (const bounded_json::problem&) {
        return false;
    }
    if (!json.is_object()) return false;
    for (const char* name : {"key", "choice", "metric", "error"})
        if (!json.contains(name) || !json[name].is_string()) return false;
    if (json["key"] == key_)
        known_[detail::assignment_of(json["choice"])] = {std::strtod(json["metric"].get<std::string>().c_str(), nullptr),
                                                         std::strtod(json["error"].get<std::string>().c_str(), nullptr)};
    return true;
}

std::string search_cache::line_of(const assignment& a, const score& s) const {
    const nlohmann::ordered_json line{
        {"key", key_}, {"choice", detail::digits_of(a)}, {"metric", detail::exact_text(s.metric)}, {"error", detail::exact_text(s.error)}};
    return json_text(line) + "\n";
}

std::optional<score> search_cache::find(const assignment& a) const {
    const auto i = known_.find(a);
    return i == known_.end() ? std::nullopt : std::optional(i->second);
}

void search_cache::add(const assignment& a, const score& s) {
    known_[a] = s;
    if (file_.empty()) return;
    append_to_file(file_, line_of(a, s));
}

search_run::evaluate_function search_cache::around(search_run::evaluate_function measure) {
    return [this, measure = std::move(measure)](std::span<const assignment> candidates) {
        std::vector<assignment> missing;
        for (const assignment& a : candidates) {
            if (!find(a)) missing.push_back(a);
        }
        if (!missing.empty()) {
            const std::vector<score> scores = measure(missing);
            for (std::size_t i = 0; i < missing.size(); ++i) add(missing[i], scores[i]);
        }
        std::vector<score> result;
        for (const assignment& a : candidates) result.push_back(*find(a));
        return result;
    };
}

}  // namespace qk::graph
