// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/quantize/plan_arrays.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "disk/output_file.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/files/zip.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph {
namespace {

/// Moves the long lists of quantizers into arrays, and puts references to them into the quantizers' JSON.
class list_mover {
  public:
    list_mover(std::string file, std::vector<named_tensor>& arrays) : file_(std::move(file)), arrays_(&arrays) {}

    static bool is_long(const quantizer& q) { return q.scale.size() > longest_list(q) || q.zero_point.size() > longest_list(q); }
    /// Replaces long lists by one value, so that JSON of the quantizer is short until move() writes the references.
    static void shorten(quantizer& q) {
        if (q.scale.size() > longest_list(q)) q.scale.assign(1, 1.0f);
        if (q.zero_point.size() > longest_list(q)) q.zero_point.assign(1, 0);
    }
    void move(const quantizer& q, nlohmann::ordered_json& json) {
        if (q.scale.size() > longest_list(q)) json["scale"] = put(make_tensor<float>({static_cast<std::int64_t>(q.scale.size())}, q.scale));
        if (q.zero_point.size() > longest_list(q)) json["zero_point"] = put(narrow(q.zero_point));
    }

    static bool is_long(const moved_values& m) { return m.place.size() > longest_moved; }
    void move(const moved_values& m, nlohmann::ordered_json& json) {
        json["place"] = put(narrow(m.place));
        json["value"] = put(make_tensor<float>({static_cast<std::int64_t>(m.value.size())}, m.value));
    }

    static bool is_long(const scaled_channels& s) { return s.factors.size() > longest_moved; }
    void move(const scaled_channels& s, nlohmann::ordered_json& json) {
        json["factors"] = put(make_tensor<float>({static_cast<std::int64_t>(s.factors.size())}, s.factors));
    }

  private:
    static constexpr std::size_t longest_moved = 1024;
    nlohmann::ordered_json put(tensor t) {
        const std::string name = std::to_string(arrays_->size());
        arrays_->push_back({name, std::move(t)});
        return {{"file", file_}, {"array", name}};
    }
    template <class T>
    static tensor as(const std::vector<std::int64_t>& v) {
        tensor t(type_of<T>, {static_cast<std::int64_t>(v.size())});
        std::transform(v.begin(), v.end(), t.as<T>().begin(), [](std::int64_t z) { return static_cast<T>(z); });
        return t;
    }
    /// Stores zero points in the smallest of uint8, int32 and int64 that holds them all.
    static tensor narrow(const std::vector<std::int64_t>& v) {
        const auto [low, high] = std::minmax_element(v.begin(), v.end());
        if (*low >= 0 && *high <= 255) return as<std::uint8_t>(v);
        if (*low >= std::numeric_limits<std::int32_t>::min() && *high <= std::numeric_limits<std::int32_t>::max())
            return as<std::int32_t>(v);
        return as<std::int64_t>(v);
    }

    std::string file_;
    std::vector<named_tensor>* arrays_;
};

}  // namespace

std::string plan_text(const precision_plan& plan, const std::string& file, std::vector<named_tensor>& arrays) {
    list_mover mover(file, arrays);
    precision_plan rest = plan;
    for (auto& [name, q] : rest.tensors) mover.shorten(q);
    for (auto& [e, q] : rest.edges) mover.shorten(q);
    for (auto& [name, moved] : rest.moved)
        if (mover.is_long(moved)) moved = {};
    for (scaled_channels& one : rest.scaled)
        if (mover.is_long(one)) one.factors.clear();
    nlohmann::ordered_json json = to_json(rest);
    for (std::size_t i = 0; i < plan.scaled.size(); ++i)
        if (mover.is_long(plan.scaled[i])) mover.move(plan.scaled[i], json["scaled"][i]);
    for (const auto& [name, moved] : plan.moved)
        if (mover.is_long(moved)) mover.move(moved, json["moved"][name]);
    for (const auto& [name, q] : plan.tensors)
        if (mover.is_long(q)) mover.move(q, json["tensors"][name]);
    std::size_t at = 0;
    for (const auto& [e, q] : plan.edges) {
        if (mover.is_long(q)) mover.move(q, json["edges"][at]["quantizer"]);
        ++at;
    }
    return json_text(json, 1) + "\n";
}

void save_plan(const precision_plan& plan, output_set& out, const std::filesystem::path& file) {
    // No file can lie beside a pipe: its JSON holds the lists.
    std::filesystem::path beside = file;
    beside += ".npz";
    std::vector<named_tensor> arrays;
    const std::string text =
        disk::destination_of(file).stream ? json_text(to_json(plan), 1) + "\n" : plan_text(plan, beside.filename().string(), arrays);
    out.write(file, text);
    if (arrays.empty()) return;
    std::vector<zip_entry> entries;
    for (named_tensor& a : arrays) {
        entries.push_back({a.name + ".npy", to_npy(a.value)});
        a.value = {};
    }
    out.write(beside, zip(entries, beside.string()));
}

namespace detail {

const tensor& plan_arrays::at(const json_cursor& c) {
    c.only({"file", "array"});
    const std::filesystem::path name = c.at("file").text();
    if (name.empty() || name != name.filename() || name == "..")
        c.at("file").fail("arrays of a plan lie beside it: a name without folders");
    const std::string where = c.where(), document = where.substr(0, where.rfind(':'));
    const std::filesystem::path file = std::filesystem::path(document).parent_path() / name;
    const auto [held, is_new] = files_.try_emplace(file);
    if (is_new)
        for (named_tensor& t : at_place(c, [&] { return read_npz(file); })) held->second[t.name] = std::move(t.value);
    const auto found = held->second.find(c.at("array").text());
    if (found == held->second.end()) c.at("array").fail("'" + file.string() + "' has no such array");
    return found->second;
}

}  // namespace detail
}  // namespace qk::graph
