// SPDX-License-Identifier: Apache-2.0
// Reads a safetensors header: 8 bytes of length, a JSON object, then the tensors without gaps
// (https://huggingface.co/docs/safetensors). Every rule of the owners' reader is checked before anything is kept.
#include <algorithm>
#include <cstring>
#include <set>

#include "disk/bounded_json.hpp"
#include "parts.hpp"

namespace qk::checkpoint {
namespace {

struct type_bits {
    std::string_view name;
    unsigned bits;
    bool is_float;
};
constexpr type_bits safetensors_types[] = {{"BOOL", 8, false},   {"F4", 4, true},          {"F6_E2M3", 6, true},     {"F6_E3M2", 6, true},
                                           {"U8", 8, false},     {"I8", 8, false},         {"F8_E5M2", 8, true},     {"F8_E4M3", 8, true},
                                           {"F8_E8M0", 8, true}, {"F8_E4M3FNUZ", 8, true}, {"F8_E5M2FNUZ", 8, true}, {"I16", 16, false},
                                           {"U16", 16, false},   {"F16", 16, true},        {"BF16", 16, true},       {"I32", 32, false},
                                           {"U32", 32, false},   {"F32", 32, true},        {"C64", 64, false},       {"F64", 64, true},
                                           {"I64", 64, false},   {"U64", 64, false}};

constexpr std::uint64_t longest_header = 100'000'000;  // the owners' reader refuses longer ones
constexpr std::size_t most_dimensions = 64;

/// Takes the header's JSON as it is parsed: no tree is built, and duplicate keys and wrong types are seen.
class header_reader {
  public:
    struct entry {
        std::string name, type;
        std::vector<std::uint64_t> shape, offsets;
        bool has_type = false, has_shape = false, has_offsets = false;
    };
    std::vector<entry> entries;
    std::string problem, metadata;

    bool null() { return unexpected("null"); }
    bool boolean(bool) { return unexpected("a truth value"); }
    bool number_float(double, const std::string& text) { return unexpected("the number " + text); }
    bool number_integer(std::int64_t v) { return unexpected("the number " + std::to_string(v)); }
    bool number_unsigned(std::uint64_t v) {
        if (depth_ != 3 || list_ == nullptr) return unexpected("the number " + std::to_string(v));
        if (list_->size() >= most_dimensions) return fail(at() + " has more than 64 numbers");
        list_->push_back(v);
        return true;
    }
    bool string(std::string& text) {
        if (depth_ == 2 && in_metadata_) return add_metadata(text);
        if (depth_ != 2 || key_ != "dtype") return unexpected("a string");
        entries.back().type = text, entries.back().has_type = true;
        return true;
    }
    bool start_object(std::size_t) {
        if (++depth_ == 1) return true;
        if (depth_ > 2 || in_list_) return unexpected("an object");
        in_metadata_ = key_ == "__metadata__";
        if (in_metadata_) return true;
        if (entries.size() >= 10'000'000) return fail("has more than ten million tensors");
        entries.emplace_back().name = key_;
        seen_.clear();
        return true;
    }
    bool end_object() {
        if (depth_-- == 2 && !in_metadata_) {
            const entry& e = entries.back();
            const char* missing = !e.has_type ? "dtype" : !e.has_shape ? "shape" : !e.has_offsets ? "data_offsets" : nullptr;
            if (missing != nullptr) return fail("tensor " + shown(e.name) + " has no " + missing);
        }
        in_metadata_ = false;
        return true;
    }
    bool key(std::string& text) {
        key_ = text;
        if (depth_ == 1) {
            if (!names_.insert(text).second) return fail("the name " + shown(text) + " is there twice");
        } else if (!in_metadata_) {
            if (text != "dtype" && text != "shape" && text != "data_offsets") return fail(at() + " is none of dtype, shape, data_offsets");
            if (!seen_.insert(text).second) return fail(at() + " is there twice");
        }
        return true;
    }
    bool start_array(std::size_t) {
        if (depth_ != 2 || in_metadata_ || in_list_ || (key_ != "shape" && key_ != "data_offsets")) return unexpected("a list");
        entry& e = entries.back();
        list_ = key_ == "shape" ? &e.shape : &e.offsets;
        (key_ == "shape" ? e.has_shape : e.has_offsets) = true;
        in_list_ = true;
        ++depth_;
        return true;
    }
    bool end_array() {
        if (!in_list_) return true;
        in_list_ = false, list_ = nullptr;
        --depth_;
        return true;
    }

  private:
    bool fail(std::string why) {
        problem = std::move(why);
        return false;
    }
    std::string at() const {
        if (depth_ <= 1 || entries.empty() || in_metadata_) return shown(key_);
        return "tensor " + shown(entries.back().name) + ": " + shown(key_);
    }
    bool unexpected(const std::string& what) {
        if (depth_ == 0) return fail("the header is " + what + " and no object");
        if (in_metadata_) return fail("__metadata__ holds strings, and " + shown(key_) + " is " + what);
        return fail(at() + " is " + what + "; a tensor has a dtype, and lists of whole numbers as shape and data_offsets");
    }
    bool add_metadata(const std::string& value) {
        metadata += (metadata.empty() ? "" : ",") + nlohmann::json(key_).dump() + ":" + nlohmann::json(value).dump();
        return true;
    }

    int depth_ = 0;
    bool in_metadata_ = false, in_list_ = false;
    std::string key_;
    std::vector<std::uint64_t>* list_ = nullptr;
    std::set<std::string> names_, seen_;
};

std::string_view header_of(std::span<const std::byte> bytes, const std::string& label) {
    if (bytes.size() < 8)
        throw error(label + ": " + std::to_string(bytes.size()) + " bytes; a safetensors file begins with 8 that hold its header's length");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    if (length > longest_header) throw error(label + ": a header of " + std::to_string(length) + " bytes; the format allows 100 million");
    if (length > bytes.size() - 8)
        throw error(label + ": the header has " + std::to_string(length) + " bytes, the file only " + std::to_string(bytes.size() - 8) +
                    " after the length");
    const std::string_view text(reinterpret_cast<const char*>(bytes.data() + 8), length);
    if (text.empty() || text.front() != '{') throw error(label + ": the header does not begin with {");
    return text;
}

/// Checks one entry against its type, and returns its bytes.
void check_entry(const header_reader::entry& e, std::uint64_t size, const std::string& label) {
    const auto fail = [&](const std::string& why) { throw error(label + ": tensor " + shown(e.name) + ": " + why); };
    const unsigned bits = bits_of_type(e.type);
    if (bits == 0) fail("dtype " + shown(e.type) + " is unknown");
    if (e.offsets.size() != 2) fail("data_offsets has " + std::to_string(e.offsets.size()) + " numbers, not begin and end");
    if (e.offsets[1] < e.offsets[0]) fail("data_offsets end before they begin");
    if (e.offsets[1] > size) fail("its data ends at byte " + std::to_string(e.offsets[1]) + ", the file's data at " + std::to_string(size));
    const auto elements = product_of(e.shape);
    if (!elements || *elements > (std::uint64_t{1} << 58)) fail("shape " + text_of(e.shape) + " has too many elements");
    if (*elements * bits % 8 != 0) fail(text_of(e.shape) + " of " + e.type + " does not end at a byte");
    const std::uint64_t needed = *elements * bits / 8;
    if (needed != e.offsets[1] - e.offsets[0])
        fail(text_of(e.shape) + " of " + e.type + " needs " + std::to_string(needed) + " bytes and has " +
             std::to_string(e.offsets[1] - e.offsets[0]));
}

}  // namespace

unsigned bits_of_type(std::string_view type) {
    for (const type_bits& t : safetensors_types)
        if (t.name == type) return t.bits;
    return 0;
}
bool is_float_type(std::string_view type) {
    for (const type_bits& t : safetensors_types)
        if (t.name == type) return t.is_float;
    return false;
}

void read_safetensors(std::span<const std::byte> bytes, const std::string& label, checkpoint& c) {
    const std::string_view text = header_of(bytes, label);
    header_reader reader;
    try {
        if (!bounded_json::read(text.begin(), text.end(), reader)) throw error(label + ": " + reader.problem);
    } catch (const bounded_json::problem& e) {
        throw error(label + ": the header is " + e.what());
    }
    const std::span<const std::byte> data = bytes.subspan(8 + text.size());
    for (const auto& e : reader.entries) check_entry(e, data.size(), label);
    std::vector<const header_reader::entry*> order;
    for (const auto& e : reader.entries) order.push_back(&e);
    std::ranges::stable_sort(order, [](const auto* a, const auto* b) { return a->offsets < b->offsets; });
    std::uint64_t end = 0;
    for (const auto* e : order) {
        if (e->offsets[0] < end)
            throw error(label + ": tensor " + shown(e->name) + " overlaps the one before it at byte " + std::to_string(e->offsets[0]) +
                        " of the data");
        if (e->offsets[0] > end)
            throw error(label + ": the bytes from " + std::to_string(end) + " to " + std::to_string(e->offsets[0]) +
                        " belong to no tensor");
        end = e->offsets[1];
    }
    if (end != data.size()) throw error(label + ": " + std::to_string(data.size() - end) + " bytes after the last tensor");
    const std::size_t file = c.paths.empty() ? 0 : c.paths.size() - 1;
    for (const auto* e : order)
        c.tensors.push_back({.name = e->name,
                             .type = e->type,
                             .shape = e->shape,
                             .data = data.subspan(e->offsets[0], e->offsets[1] - e->offsets[0]),
                             .file = file});
    if (c.metadata.empty()) c.metadata = reader.metadata;
}

nlohmann::json parse_json(std::string_view text, const std::string& label) {
    try {
        return bounded_json::parse(text);
    } catch (const bounded_json::problem& e) {
        throw error(label + ": " + e.what());
    }
}

}  // namespace qk::checkpoint
