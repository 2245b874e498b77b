// SPDX-License-Identifier: Apache-2.0
// Definitions of json_cursor.hpp: nlohmann's SAX parser over an iterator that counts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "disk/bounded_json.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/base/printable.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/json_cursor.hpp"

namespace qk::graph {

/// A parsed file: the values, and the line of each object, key and string.
struct json_document {
    nlohmann::json root;
    std::string label;
    std::unordered_map<const void*, int> lines;  ///< by identity; numbers and literals inside arrays have their array's line
};

namespace detail {

/// Iterator over text that tells the outside how far the parser has read.
struct counting_iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    const char* at;
    const char** progress;
    reference operator*() const { return *at; }
    counting_iterator& operator++() {
        *progress = ++at;
        return *this;
    }
    counting_iterator operator++(int) {
        const counting_iterator before = *this;
        ++*this;
        return before;
    }
    friend bool operator==(const counting_iterator& a, const counting_iterator& b) { return a.at == b.at; }
};

/// Returns an address that tells a value of a document from the others, and stays when the array that holds it grows.
inline const void* identity(const nlohmann::json& v) {
    if (v.is_object()) return v.get_ptr<const nlohmann::json::object_t*>();
    if (v.is_array()) return v.get_ptr<const nlohmann::json::array_t*>();
    if (v.is_string()) return v.get_ptr<const nlohmann::json::string_t*>();
    return &v;
}

/// Escapes a key for a JSON pointer (RFC 6901), "/" and "~", and cuts a long one: pointers are for messages, and every value below has one.
inline std::string escape_pointer(std::string_view key) {
    constexpr std::size_t most = 100;
    std::string out;
    for (const char c : as_utf8(key.substr(0, most))) c == '~' ? out += "~0" : c == '/' ? out += "~1" : out += c;
    return key.size() > most ? out + "..." : out;
}

/// Builds the values and records the line of each.
class line_parser {
  public:
    using json = nlohmann::json;
    line_parser(json_document& d, const char* text, const char*& progress) : document_(d), counted_(text), progress_(progress) {}

    bool null() { return put(nullptr); }
    bool boolean(bool v) { return put(v); }
    bool number_integer(std::int64_t v) { return put(v); }
    bool number_unsigned(std::uint64_t v) { return put(v); }
    bool number_float(double v, const std::string&) { return put(v); }
    bool string(std::string& v) { return put(std::move(v)); }
    bool start_object(std::size_t) { return open(json::object()); }
    bool start_array(std::size_t) { return open(json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& k) {
        frame& f = stack_.back();
        if (f.value->contains(k)) throw bounded_json::problem("the key '" + k + "' stands twice in one object");
        f.key = k;
        f.key_line = line();
        return true;
    }
    int line() {
        line_ += static_cast<int>(std::count(counted_, progress_, '\n'));
        counted_ = std::max(counted_, progress_);
        return line_;
    }

  private:
    struct frame {
        json* value;
        std::string key;
        int key_line = 0;
    };
    json* place(json v) {
        if (stack_.empty()) return &(document_.root = std::move(v));
        frame& f = stack_.back();
        if (f.value->is_array()) {
            f.value->push_back(std::move(v));
            return &f.value->back();
        }
        return &((*f.value)[f.key] = std::move(v));
    }
    /// Places a value and notes its line: that of its key, if it has one.
    json* noted(json v) {
        json* at = place(std::move(v));
        const bool member = !stack_.empty() && stack_.back().value->is_object();
        if (member || at->is_structured() || at->is_string()) document_.lines[identity(*at)] = member ? stack_.back().key_line : line();
        return at;
    }
    bool put(json v) { return noted(std::move(v)) != nullptr; }
    bool open(json v) {
        // An array's elements are opened one at a time, so the address of the one that is open stays.
        json* at = noted(std::move(v));
        stack_.push_back({at, {}});
        return true;
    }
    bool close() {
        stack_.pop_back();
        return true;
    }

    json_document& document_;
    std::vector<frame> stack_;
    const char* counted_;
    const char*& progress_;
    int line_ = 1;
};
}  // namespace detail

json_cursor::json_cursor(std::shared_ptr<const json_document> d, const nlohmann::json* v, std::string pointer, int line_around)
    : document_(std::move(d)), value_(v), pointer_(std::move(pointer)), line_(line_around) {
    if (const auto found = document_->lines.find(detail::identity(*v)); found != document_->lines.end()) line_ = found->second;
}

bool json_cursor::is_object() const { return value_->is_object(); }
bool json_cursor::is_array() const { return value_->is_array(); }
bool json_cursor::is_string() const { return value_->is_string(); }
bool json_cursor::is_null() const { return value_->is_null(); }
bool json_cursor::has(std::string_view key) const { return value_->is_object() && value_->contains(key); }
std::size_t json_cursor::size() const { return value_->size(); }

json_cursor json_cursor::parse(std::string_view text, const std::string& label) {
    auto document = std::make_shared<json_document>();
    document->label = label;
    const char* reached = text.data();
    detail::line_parser events(*document, text.data(), reached);
    using iterator = detail::counting_iterator;
    try {
        bounded_json::read(iterator{text.data(), &reached}, iterator{text.data() + text.size(), &reached}, events);
    } catch (const bounded_json::problem& e) {
        throw error(label + ":" + std::to_string(events.line()) + ": " + e.what());
    }
    const nlohmann::json* root = &document->root;
    return {std::move(document), root, {}, 1};
}

json_cursor json_cursor::load(const std::filesystem::path& file) { return parse(read_file(file), file.string()); }

std::string json_cursor::where() const { return document_->label + ":" + std::to_string(line_); }
void json_cursor::fail(const std::string& what) const { throw error(where() + ": " + (pointer_.empty() ? "" : pointer_ + ": ") + what); }

void json_cursor::only(std::initializer_list<std::string_view> known) const {
    if (!is_object()) fail("an object is expected, not " + std::string(value_->type_name()));
    for (const auto& [key, v] : value_->items()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        const std::vector<std::string> names(known.begin(), known.end());
        at(key).fail("unknown key '" + key + "'." + did_you_mean(key, names) + " The keys here are " + comma_separated(names));
    }
}
json_cursor json_cursor::at(const std::string& key) const {
    if (!is_object()) fail("an object is expected, not " + std::string(value_->type_name()));
    if (!value_->contains(key)) fail("the key '" + key + "' is missing");
    return {document_, &(*value_)[key], pointer_ + "/" + detail::escape_pointer(key), line_};
}
std::optional<json_cursor> json_cursor::find(const std::string& key) const { return has(key) ? std::optional(at(key)) : std::nullopt; }
json_cursor json_cursor::at(std::size_t index) const {
    if (!is_array()) fail("an array is expected, not " + std::string(value_->type_name()));
    return {document_, &(*value_)[index], pointer_ + "/" + std::to_string(index), line_};
}
std::vector<std::string> json_cursor::keys() const {
    if (!is_object()) fail("an object is expected, not " + std::string(value_->type_name()));
    std::vector<std::string> all;
    for (const auto& [key, v] : value_->items()) all.push_back(key);
    return all;
}
std::string json_cursor::text() const {
    if (!is_string()) fail("a string is expected, not " + std::string(value_->type_name()));
    return value_->get<std::string>();
}
bool json_cursor::boolean() const {
    if (!value_->is_boolean()) fail("true or false is expected, not " + std::string(value_->type_name()));
    return value_->get<bool>();
}
std::int64_t json_cursor::integer(std::int64_t lowest, std::int64_t highest) const {
    if (!value_->is_number_integer()) fail("a whole number is expected, not " + std::string(value_->type_name()));
    const auto v = value_->get<std::int64_t>();
    if (v < lowest || v > highest)
        fail(std::to_string(v) + " is not between " + std::to_string(lowest) + " and " + std::to_string(highest));
    return v;
}
double json_cursor::number() const {
    if (!value_->is_number()) fail("a number is expected, not " + std::string(value_->type_name()));
    const double v = value_->get<double>();
    if (!std::isfinite(v)) fail("the number is not finite");
    return v;
}

/// Returns what read() returns for each element of an array, or for the one value that is no array.
template <class Read>
static auto one_or_more(const json_cursor& c, const Read& read) {
    if (!c.is_array()) return std::vector{read(c)};
    std::vector<decltype(read(c))> all;
    for (std::size_t i = 0; i < c.size(); ++i) all.push_back(read(c.at(i)));
    return all;
}
std::vector<float> json_cursor::floats() const {
    return one_or_more(*this, [](const json_cursor& c) { return static_cast<float>(c.number()); });
}
std::vector<std::int64_t> json_cursor::integers() const {
    constexpr std::int64_t limit = std::int64_t{1} << 53;
    return one_or_more(*this, [](const json_cursor& c) { return c.integer(-limit, limit); });
}
std::vector<std::string> json_cursor::texts() const { return one_or_more(*this, std::mem_fn(&json_cursor::text)); }

}  // namespace qk::graph
