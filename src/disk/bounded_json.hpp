// SPDX-License-Identifier: Apache-2.0
// The one way by which qk parses JSON that comes from outside: a bound on how deep it is nested, and sentences without a library's words.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace qk::bounded_json {

/// What people write is ten deep at most. Without a bound the parser's stacks, and whatever walks a value, grow with the file's brackets.
inline constexpr std::size_t deepest = 100;

/// What is wrong with a text; whoever reads it adds the file, and the line where it knows it.
struct problem : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail_nested() { throw problem("it is nested more than " + std::to_string(deepest) + " deep"); }

/// Returns the parser's sentence without its own name, and with what it quotes of the text cut.
inline std::string sentence_of(const nlohmann::detail::exception& e) {
    constexpr std::size_t most = 300;
    std::string text = e.what();
    if (const std::size_t end = text.find("] "); text.starts_with("[json.") && end != std::string::npos) text.erase(0, end + 2);
    constexpr int beyond_double = 406;
    if (const std::size_t from = text.find('\''); e.id == beyond_double && from != std::string::npos) {
        const std::string number = text.substr(from + 1, text.rfind('\'') - from - 1);
        return "the number " + (number.size() > 60 ? number.substr(0, 60) + "..." : number) + " is beyond what a 64-bit float holds";
    }
    if (text.size() <= most) return text;
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // no half of a UTF-8 character
    return text.substr(0, end) + "...";
}

/// Passes a parser's events on to `Events`, which has nlohmann's SAX interface but for parse_error(), and counts how deep they are nested.
template <class Events>
class counted_events {
  public:
    using json = nlohmann::json;
    using number_integer_t = json::number_integer_t;
    using number_unsigned_t = json::number_unsigned_t;
    using number_float_t = json::number_float_t;
    using string_t = json::string_t;
    using binary_t = json::binary_t;

    explicit counted_events(Events& to) : to_(to) {}
    bool null() { return to_.null(); }
    bool boolean(bool v) { return to_.boolean(v); }
    bool number_integer(number_integer_t v) { return to_.number_integer(v); }
    bool number_unsigned(number_unsigned_t v) { return to_.number_unsigned(v); }
    bool number_float(number_float_t v, const string_t& text) { return to_.number_float(v, text); }
    bool string(string_t& v) { return to_.string(v); }
    bool binary(binary_t&) { return false; }  // JSON as text has none
    bool key(string_t& k) { return to_.key(k); }
    bool start_object(std::size_t n) { return open(), to_.start_object(n); }
    bool start_array(std::size_t n) { return open(), to_.start_array(n); }
    bool end_object() { return --depth_, to_.end_object(); }
    bool end_array() { return --depth_, to_.end_array(); }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) {
        throw problem("not JSON: " + sentence_of(e));
    }

  private:
    void open() {
        if (++depth_ > deepest) fail_nested();
    }
    Events& to_;
    std::size_t depth_ = 0;
};

/// Parses text for `events`; returns false where an event did, and throws problem for text that is no JSON or nested too deep.
template <class Iterator, class Events>
bool read(Iterator begin, Iterator end, Events& events) {
    counted_events<Events> counted(events);
    return nlohmann::json::sax_parse(begin, end, &counted);
}

/// Returns the value that the text holds. Throws problem.
template <class Json = nlohmann::json>
Json parse(std::string_view text) {
    const auto shallow = [](int depth, typename Json::parse_event_t event, Json&) {
        const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
        if (opens && static_cast<std::size_t>(depth) >= deepest) fail_nested();
        return true;
    };
    try {
        return Json::parse(text.begin(), text.end(), shallow);
    } catch (const nlohmann::json::exception& e) {
        throw problem("not JSON: " + sentence_of(e));
    }
}

}  // namespace qk::bounded_json
