// SPDX-License-Identifier: Apache-2.0
// Writes reports in words.
#include "qk/dot/text.hpp"
#include <utility>

#include "qk/compare/compare.hpp"
#include "qk/compare/dot.hpp"

namespace qk::compare {
namespace {

/// Returns "explains every difference" or "explains 12 of 40 differences".
std::string share(const cause& k, const report& r) {
    if (k.explains == r.mismatches) return r.mismatches == 1 ? "explains the difference" : "explains every difference";
    return "explains " + std::to_string(k.explains) + " of " + std::to_string(r.mismatches) + " differences";
}
/// Returns where a mistake is made, or else where its differences are.
std::string place_of(const cause& k) { return (k.restricted ? "only " : "") + to_text(k.where); }

/// Returns what a cause among others explains: what nothing else explains, and what it explains without the others.
std::string share_among(const cause& k, const report& r) {
    if (k.explains == 0) return "keeps right " + std::to_string(k.keeps) + " values that the others alone would change";
    if (k.alone == 0) return share(k, r) + ", none without the others";
    if (k.explains == r.mismatches && k.alone == r.mismatches) return share(k, r);
    return share(k, r) + " (" + std::to_string(k.alone) + " alone)";
}

std::string no_cause(const report& r) {
    std::string s = r.mismatches == 1 ? "no known mistake explains the difference\n" : "no known mistake explains it\n";
    if (!r.nearest) return s;
    if (r.nearest->explains == r.mismatches && r.nearest->makes == 0)  // it is too little to be called a cause
        return s + "  " +
               (r.mismatches == 1 ? "one mistake would give it, by chance perhaps: " : "one mistake would give all, by chance perhaps: ") +
               r.nearest->sentence + "\n    " + place_of(*r.nearest) + "\n";
    s += "  the nearest: " + r.nearest->sentence + "\n    " + place_of(*r.nearest) + "; " + share(*r.nearest, r);
    if (r.nearest->makes != 0) s += ", and would make " + std::to_string(r.nearest->makes) + " that the device does not make";
    return s + "\n";
}

std::string causes_of(const report& r) {
    if (r.causes.empty()) return no_cause(r);
    if (r.causes.size() == 1) {
        const cause& k = r.causes.front();
        std::string s = "likely cause: " + k.sentence + "\n  " + place_of(k) + "; " + share(k, r);
        s += r.unexplained == 0 ? "\n" : ", leaves " + std::to_string(r.unexplained) + "\n";
        for (std::size_t n = 0; n < std::min<std::size_t>(2, r.alternatives.size()); ++n)
            s += "or: " + r.alternatives[n] + " (explains every difference, too)\n";
        return s;
    }
    const std::string left =
        "they explain " + std::to_string(r.mismatches - r.unexplained) + " of " + std::to_string(r.mismatches) + " differences";
    std::string s = "likely causes, together (" + (r.unexplained == 0 ? "they explain every difference" : left) + "):\n";
    for (std::size_t n = 0; n < r.causes.size(); ++n) {
        const cause& k = r.causes[n];
        s += "  " + std::to_string(n + 1) + ". " + k.sentence + "\n     " + place_of(k) + "; " + share_among(k, r) + "\n";
    }
    return s;
}

/// Returns the value of a key that a text leaves out.
std::string default_of(std::string_view key, const accumulator& a) {
    if (key == "partial") return std::string(register_text(a.result).view());
    if (key == "partial-round") return std::string(to_text(a.round));
    if (key == "c") return a.result == fp64 ? "fp64" : "fp32";
    constexpr std::pair<std::string_view, const char*> words[] = {
        {"lanes", "1"},       {"bundle", "1"},  {"place", "inside"}, {"cut", "toward-zero"}, {"join-addend", "24"},
        {"join-cut", "down"}, {"fused", "1"},   {"result", "fp32"},  {"round", "half-even"}, {"flush-inputs", "none"},
        {"overflow", "ieee"}, {"zero", "ieee"}, {"nan", "quiet"},    {"width", "32"}};
    for (const auto& [name, word] : words) {
        if (name == key) return word;
    }
    return "0";
}

}  // namespace

std::string to_text(const report& r) {
    if (r.mismatches == 0) return "0 of " + std::to_string(r.values) + " values differ\n";
    std::string s = causes_of(r) + "\n" + std::to_string(r.mismatches) + " of " + std::to_string(r.values) +
                    (r.mismatches == 1 ? " values differs" : " values differ");
    if (r.coverage.blocks != 0) s += ", in " + std::to_string(r.blocks_touched) + " of " + std::to_string(r.coverage.blocks) + " blocks";
    s += "\n";
    for (const location& w : r.where) s += "  " + to_text(w, r.mismatches) + "\n";
    return s;
}

std::string difference_between(const accumulator& device, const accumulator& expected) {
    std::string s;
    const auto value = [](const accumulator_key& k, const accumulator& a) {
        const auto said = k.print(a);
        return said.empty() ? default_of(k.name, a) : std::string(said.view());
    };
    for (const accumulator_key& k : accumulator_keys) {
        const std::string here = value(k, device), there = value(k, expected);
        if (here == there) continue;
        s += (s.empty() ? "" : ", ") + std::string(k.name) + "=" + here + " where " + there + " is expected";
    }
    return s;
}

}  // namespace qk::compare
