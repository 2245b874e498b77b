// SPDX-License-Identifier: Apache-2.0
// Calibration files as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "qk/graph/calibrate/calibration_text.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/json_cursor.hpp"
#include "qk/graph/files/json_text.hpp"

namespace qk::graph {

namespace detail {
/// Returns the counts without the zeros at their end.
inline nlohmann::ordered_json trimmed(const std::vector<std::uint64_t>& counts) {
    const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::uint64_t n) { return n != 0; });
    return std::vector<std::uint64_t>(counts.begin(), last.base());
}
inline std::vector<std::uint64_t> read_counts(const json_cursor& c) {
    if (!c.is_array()) c.fail("an array of counts is expected");
    std::vector<std::uint64_t> counts;
    counts.reserve(c.size());
    for (const auto& v : c.value()) {
        if (!v.is_number_unsigned()) c.fail("counts are whole numbers from 0");
        counts.push_back(v.get<std::uint64_t>());
    }
    return counts;
}
inline value_range read_range(const json_cursor& c) {
    const std::vector<float> r = c.floats();
    if (r.size() != 2) c.fail("a range is [lowest, highest]");
    return {r[0], r[1]};
}
}  // namespace detail

std::string calibration_text(const calibration& c) {
    using json = nlohmann::ordered_json;
    // One tensor at a time becomes JSON: as values, all histograms together would take sixteen times their text.
    std::string text = "{\"qk\":\"calibration\",\"version\":1,\"samples\":" + std::to_string(c.samples) + ",\"tensors\":{";
    bool first = true;
    for (const auto& [name, s] : c.tensors) {
        json t{{"shape", s.shape}, {"range", {s.range.lo, s.range.hi}}, {"count", s.count}};
        if (s.not_finite > 0) t["not_finite"] = s.not_finite;
        if (s.nan > 0) t["nan"] = s.nan, t["nan_sample"] = s.nan_sample;
        if (s.averaged) t["average"] = {s.average.lo, s.average.hi};
        if (!s.histogram.empty())
            t["histogram"] = {{"exponent", s.histogram.exponent()},
                              {"positive", detail::trimmed(s.histogram.positive())},
                              {"negative", detail::trimmed(s.histogram.negative())}};
        text += (first ? "" : ",") + json_text(json(name)) + ":" + json_text(t);
        first = false;
    }
    return text + "}}\n";
}

void save_calibration(const calibration& c, const std::filesystem::path& file) { write_file(file, calibration_text(c)); }

calibration load_calibration(const std::filesystem::path& file) {
    constexpr std::int64_t many = std::int64_t{1} << 53;
    const json_cursor c = json_cursor::load(file);
    if (!c.is_object() || !c.has("qk") || c.at("qk").value() != "calibration") c.fail("this is no calibration file of `qk calibrate -o`");
    c.only({"qk", "version", "samples", "tensors"});
    c.at("version").integer(1, 1);
    calibration result;
    result.samples = static_cast<std::size_t>(c.at("samples").integer(0, many));
    const json_cursor tensors = c.at("tensors");
    for (const std::string& name : tensors.keys()) {
        const json_cursor t = tensors.at(name);
        t.only({"shape", "range", "count", "not_finite", "nan", "nan_sample", "average", "histogram"});
        tensor_statistics& s = result.tensors[name];
        s.shape = t.at("shape").integers();
        s.range = detail::read_range(t.at("range"));
        s.count = static_cast<std::uint64_t>(t.at("count").integer(0, many));
        if (const auto v = t.find("not_finite")) s.not_finite = static_cast<std::uint64_t>(v->integer(0, many));
        if (const auto v = t.find("nan")) s.nan = static_cast<std::uint64_t>(v->integer(0, many));
        if (const auto v = t.find("nan_sample")) s.nan_sample = static_cast<std::uint64_t>(v->integer(0, many));
        if (const auto v = t.find("average")) s.average = detail::read_range(*v), s.averaged = true;
        if (const auto h = t.find("histogram")) {
            h->only({"exponent", "positive", "negative"});
            const int exponent = static_cast<int>(h->at("exponent").integer(-149, 128));
            const std::vector<std::uint64_t> positive = detail::read_counts(h->at("positive")),
                                             negative = detail::read_counts(h->at("negative"));
            if (positive.size() > magnitude_histogram::bins || negative.size() > magnitude_histogram::bins)
                h->fail("a histogram has at most " + std::to_string(magnitude_histogram::bins) + " bins");
            s.histogram = magnitude_histogram::restore(exponent, positive, negative);
        }
    }
    return result;
}

bool is_calibration_file(const std::filesystem::path& file) {
    file_stream in(file);
    char c = 0;
    while (in.get(c))
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c == '{';
    return false;
}

}  // namespace qk::graph
