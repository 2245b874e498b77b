// SPDX-License-Identifier: Apache-2.0
// JSON values that know their place in the file: they are read through a cursor whose errors name file, line and path.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

struct json_document;

/// One value of a document. Copies share the document. Every getter throws "FILE:LINE: PATH: sentence".
class json_cursor {
  public:
    /// Throws error with line and column for malformed text, for text nested more than 100 deep and for a key twice in one object.
    static json_cursor parse(std::string_view text, const std::string& label);
    static json_cursor load(const std::filesystem::path& file);

    const nlohmann::json& value() const { return *value_; }
    /// Returns the value's place: "plan.json:12".
    std::string where() const;
    [[noreturn]] void fail(const std::string& what) const;

    bool is_object() const;
    bool is_array() const;
    bool is_string() const;
    bool is_null() const;
    bool has(std::string_view key) const;

    /// Requires an object with no other keys than these; the error for an unknown key names the nearest.
    void only(std::initializer_list<std::string_view> keys) const;
    json_cursor at(const std::string& key) const;  ///< error if missing
    std::optional<json_cursor> find(const std::string& key) const;
    json_cursor at(std::size_t index) const;
    std::size_t size() const;
    std::vector<std::string> keys() const;

    std::string text() const;
    bool boolean() const;
    std::int64_t integer(std::int64_t lowest, std::int64_t highest) const;
    double number() const;
    std::vector<float> floats() const;           ///< a number, or an array of numbers
    std::vector<std::int64_t> integers() const;  ///< likewise
    /// A string, or an array of strings.
    std::vector<std::string> texts() const;

  private:
    json_cursor(std::shared_ptr<const json_document> d, const nlohmann::json* v, std::string pointer, int line_around);
    std::shared_ptr<const json_document> document_;
    const nlohmann::json* value_;
    std::string pointer_;  ///< for messages: long keys are cut
    int line_;
};

namespace detail {

/// Runs f, and adds the place in the file to the error that f throws.
template <class Function>
auto at_place(const json_cursor& c, const Function& f) {
    try {
        return f();
    } catch (const error& e) {
        c.fail(e.what());
    }
}

}  // namespace detail
}  // namespace qk::graph
