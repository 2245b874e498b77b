// SPDX-License-Identifier: Apache-2.0
// Reads a GGUF header, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), of either byte order. Counts and
// lengths are compared with the bytes that are left before anything is made of them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "parts.hpp"
#include "planned.hpp"

namespace qk::checkpoint {
namespace {

enum class kv : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Reads fields of either byte order; every read is checked.
class gguf_cursor {
  public:
    gguf_cursor(std::span<const std::byte> bytes, const std::string& label) : bytes_(bytes), label_(label) {}

    [[noreturn]] void fail(const std::string& why) const { throw error(label_ + ": " + why); }
    std::size_t at() const { return at_; }
    std::size_t left() const { return bytes_.size() - at_; }
    void swap(bool yes) { swapped_ = yes; }
    bool swapped() const { return swapped_; }
    void skip(std::uint64_t n, const std::string& what) {
        if (n > left()) fail(what + " ends after byte " + std::to_string(bytes_.size()) + ", where the file ends");
        at_ += n;
    }
    std::uint64_t number(int width, const std::string& what) {
        const std::size_t begin = at_;
        skip(static_cast<std::uint64_t>(width), what);
        std::uint64_t v = 0;
        for (int i = 0; i < width; ++i) {
            const auto byte = std::to_integer<std::uint64_t>(bytes_[begin + static_cast<std::size_t>(swapped_ ? i : width - 1 - i)]);
            v = v << 8 | byte;
        }
        return v;
    }
    std::string_view text(const std::string& what) {
        const std::uint64_t length = number(8, what);
        if (length > left())
            fail(what + " has a length of " + std::to_string(length) + " bytes, and " + std::to_string(left()) + " are left");
        const std::string_view s(reinterpret_cast<const char*>(bytes_.data() + at_), length);
        at_ += length;
        return s;
    }

  private:
    std::span<const std::byte> bytes_;
    std::string label_;
    std::size_t at_ = 0;
    bool swapped_ = false;
};

int width_of(kv type) {
    switch (type) {
        case kv::u8:
        case kv::i8:
        case kv::boolean: return 1;
        case kv::u16:
        case kv::i16: return 2;
        case kv::u32:
        case kv::i32:
        case kv::f32: return 4;
        case kv::u64:
        case kv::i64:
        case kv::f64: return 8;
        default: return 0;
    }
}

void skip_value(gguf_cursor& in, std::uint64_t type, const std::string& what, int depth) {
    if (type > static_cast<std::uint64_t>(kv::f64)) in.fail(what + " has the unknown value type " + std::to_string(type));
    const auto t = static_cast<kv>(type);
    if (t == kv::string) return void(in.text(what));
    if (t != kv::array) return in.skip(static_cast<std::uint64_t>(width_of(t)), what);
    if (depth == 4) in.fail(what + " is an array nested too deeply");
    const std::uint64_t of = in.number(4, what), count = in.number(8, what);
    if (of > static_cast<std::uint64_t>(kv::f64)) in.fail(what + " is an array of the unknown value type " + std::to_string(of));
    const auto element = static_cast<kv>(of);
    const std::uint64_t least = element == kv::string ? 8 : element == kv::array ? 12 : static_cast<std::uint64_t>(width_of(element));
    if (count > in.left() / least) in.fail(what + " is an array of " + std::to_string(count) + " values, for which the file is too short");
    if (element != kv::string && element != kv::array) return in.skip(count * least, what);
    for (std::uint64_t i = 0; i < count; ++i) skip_value(in, of, what, depth + 1);
}

/// Returns a whole number that a key holds.
std::uint64_t whole_number(gguf_cursor in, std::uint64_t type, const std::string& what) {
    const auto t = static_cast<kv>(type);
    if (type > static_cast<std::uint64_t>(kv::f64) || width_of(t) == 0 || t == kv::f32 || t == kv::f64 || t == kv::boolean)
        in.fail(what + " is not a whole number");
    return in.number(width_of(t), what);
}

struct tensor_info {
    std::string name;
    std::vector<std::uint64_t> shape;
    ggml_type type{};
    std::uint64_t offset = 0, bytes = 0;
};

tensor_info read_info(gguf_cursor& in, std::uint64_t number) {
    tensor_info t;
    t.name = in.text("the name of tensor " + std::to_string(number));
    const std::string what = "tensor " + shown(t.name);
    const std::uint64_t dimensions = in.number(4, what);
    if (dimensions > 4) in.fail(what + " has " + std::to_string(dimensions) + " dimensions; GGUF has at most 4");
    for (std::uint64_t d = 0; d < dimensions; ++d) t.shape.push_back(in.number(8, what));
    const std::uint64_t type = in.number(4, what);
    t.offset = in.number(8, what);
    if (type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38))
        in.fail(what + " has type " + std::to_string(type) + ", which ggml has removed; convert the file with the program that wrote it");
    t.type = static_cast<ggml_type>(type);
    const ggml_facts f = facts_of(t.type);
    if (type > 0xffffffffu || f.values == 0) in.fail(what + " has the unknown type " + std::to_string(type));
    std::ranges::reverse(t.shape);  // GGUF names the fastest dimension first
    const auto elements = product_of(t.shape);
    if (!elements || *elements > (std::uint64_t{1} << 58)) in.fail(what + ": shape " + text_of(t.shape) + " has too many elements");
    if (std::ranges::find(t.shape, 0u) != t.shape.end()) in.fail(what + ": shape " + text_of(t.shape) + " has a dimension of 0");
    const std::uint64_t row = t.shape.empty() ? 1 : t.shape.back();
    if (row % f.values != 0)
        in.fail(what + ": rows of " + std::to_string(row) + " values are no whole blocks of " + std::string(f.name) + " (" +
                std::to_string(f.values) + " values)");
    t.bytes = *elements / f.values * f.bytes;
    return t;
}

/// Puts the tensors' places into `c`, each checked against the others.
void place(const std::vector<tensor_info>& infos, std::span<const std::byte> data, gguf_cursor& in, checkpoint& c) {
    std::vector<const tensor_info*> order;
    for (const tensor_info& t : infos) order.push_back(&t);
    std::ranges::stable_sort(order, {}, [](const tensor_info* t) { return t->offset; });
    std::uint64_t end = 0;
    for (const tensor_info* t : order) {
        const std::string what = "tensor " + shown(t->name);
        if (t->offset % c.alignment != 0)
            in.fail(what + " begins at byte " + std::to_string(t->offset) + ", which is no multiple of the alignment " +
                    std::to_string(c.alignment));
        if (t->offset > data.size() || t->bytes > data.size() - t->offset)
            in.fail(what + " needs " + std::to_string(t->bytes) + " bytes from " + std::to_string(t->offset) + " on; the data has " +
                    std::to_string(data.size()));
        if (t->offset < end) in.fail(what + " overlaps the tensor before it at byte " + std::to_string(t->offset));
        end = t->offset + t->bytes;
    }
    const std::size_t file = c.paths.empty() ? 0 : c.paths.size() - 1;
    for (const tensor_info& t : infos)
        c.tensors.push_back({.name = t.name,
                             .type = std::string(facts_of(t.type).name),
                             .shape = t.shape,
                             .data = data.subspan(t.offset, t.bytes),
                             .file = file,
                             .swapped = in.swapped()});
}

}  // namespace

std::string key_values_with(const checkpoint& c, const changed_keys& changes, std::uint64_t& count) {
    gguf_cursor in(c.key_values, c.path.string());
    in.swap(c.big_endian);
    std::string kept;
    count = 0;
    const auto put = [&](std::uint64_t v, int width) {
        for (int i = 0; i < width; ++i) kept += static_cast<char>(v >> (8 * (c.big_endian ? width - 1 - i : i)) & 255);
    };
    const auto put_number = [&](const std::string& key, std::optional<std::uint32_t> number) {
        if (!number) return;
        put(key.size(), 8);
        kept += key;
        put(static_cast<std::uint32_t>(kv::u32), 4), put(*number, 4);
        ++count;
    };
    std::map<std::string, std::optional<std::uint32_t>> left = changes.numbers;
    for (std::uint64_t k = 0; k < c.key_value_count; ++k) {
        const std::size_t begin = in.at();
        const std::string_view key = in.text("key");
        const std::uint64_t type = in.number(4, "key");
        skip_value(in, type, "key", 0);
        if (changes.without_split && (key == "split.no" || key == "split.count" || key == "split.tensors.count")) continue;
        if (const auto other = left.find(std::string(key)); other != left.end()) {
            put_number(other->first, other->second);
            left.erase(other);
            continue;
        }
        kept.append(reinterpret_cast<const char*>(c.key_values.data()) + begin, in.at() - begin);
        ++count;
    }
    for (const auto& [key, number] : left) put_number(key, number);
    return kept;
}

std::optional<ggml_type> ggml_type_named(std::string_view name) {
    for (std::uint32_t t = 0; t < 64; ++t)
        if (const ggml_facts f = facts_of(static_cast<ggml_type>(t)); f.values != 0 && f.name == name) return static_cast<ggml_type>(t);
    return std::nullopt;
}

split_place read_gguf(std::span<const std::byte> bytes, const std::string& label, checkpoint& c) {
    gguf_cursor in(bytes, label);
    if (bytes.empty()) in.fail("is empty");
    if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0) in.fail("does not begin with GGUF");
    in.skip(4, "the header");
    std::uint64_t version = in.number(4, "the header");
    if ((version & 0xffff) == 0 && version != 0) {  // a small number in the other byte order
        in.swap(true);
        version = __builtin_bswap32(static_cast<std::uint32_t>(version));
    }
    if (version != 2 && version != 3) in.fail("has GGUF version " + std::to_string(version) + "; 2 and 3 are read");
    const std::uint64_t tensors = in.number(8, "the header"), keys = in.number(8, "the header");
    if (keys > in.left() / 13) in.fail("claims " + std::to_string(keys) + " keys, for which it is too short");
    const std::size_t begin = in.at();
    split_place split;
    std::uint64_t alignment = 32;
    std::set<std::string, std::less<>> seen;
    for (std::uint64_t k = 0; k < keys; ++k) {
        const std::string_view key = in.text("key " + std::to_string(k));
        const std::string what = "key " + shown(key);
        const std::uint64_t type = in.number(4, what);
        if (!seen.insert(std::string(key)).second) in.fail(what + " is there twice");
        if (key == "general.alignment") alignment = whole_number(in, type, what);
        if (key == "split.no") split.number = whole_number(in, type, what);
        if (key == "split.count") split.count = whole_number(in, type, what);
        if (key == "split.tensors.count") split.tensors = whole_number(in, type, what);
        skip_value(in, type, what, 0);
    }
    if (!std::has_single_bit(alignment) || alignment > 1u << 30)
        in.fail("general.alignment is " + std::to_string(alignment) + " and no power of two");
    const std::span<const std::byte> key_values = bytes.subspan(begin, in.at() - begin);
    if (tensors > in.left() / 24) in.fail("claims " + std::to_string(tensors) + " tensors, for which it is too short");
    c.alignment = static_cast<std::uint32_t>(alignment);
    std::vector<tensor_info> infos;
    std::set<std::string, std::less<>> names;
    for (const stored_tensor& t : c.tensors) names.insert(t.name);
    for (std::uint64_t t = 0; t < tensors; ++t) {
        infos.push_back(read_info(in, t));
        if (!names.insert(infos.back().name).second) in.fail("two tensors are named " + shown(infos.back().name));
    }
    const std::uint64_t data = divide_up(in.at(), alignment) * alignment;
    place(infos, data <= bytes.size() ? bytes.subspan(data) : std::span<const std::byte>{}, in, c);
    if (c.paths.size() <= 1) {
        c.key_values = key_values, c.key_value_count = keys;
        c.version = static_cast<std::uint32_t>(version), c.big_endian = in.swapped();
    }
    return split;
}

}  // namespace qk::checkpoint
