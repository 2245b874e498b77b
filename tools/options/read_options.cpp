// SPDX-License-Identifier: Apache-2.0
// Reads words into variables: first assigns each word to an option, then checks every value, then sets every variable.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "option_table.hpp"
#include "qk/graph/error.hpp"
#include "qk/graph/report.hpp"

namespace qk::tool {
namespace {

using given_values = std::map<const option*, std::vector<std::string>>;

[[noreturn]] void fail(const option_table& table, const std::string& sentence) {
    throw graph::error(fmt::format("{} (see `qk {} --help`)", sentence, table.name()));
}

/// Is true for words that start like an option; "-3" and "-" are values.
bool looks_like_option(const std::string& word) {
    return word.size() > 1 && word[0] == '-' && word.find_first_not_of("0123456789.", 1) != std::string::npos;
}

/// Assigns each word to an option or argument of the table.
class words_to_options {
  public:
    words_to_options(const option_table& table, std::vector<std::string> words) : table_(table), words_(std::move(words)) {
        for (const option& o : table.options())
            if (o.is_argument()) arguments_.push_back(&o);
    }

    given_values sort() {
        bool ended = false;  // "--" was read
        while (at_ < words_.size()) {
            const std::string word = words_[at_++];
            if (ended || !looks_like_option(word)) argument(word);
            else if (word == "--") ended = true;
            else named(word);
        }
        return std::move(given_);
    }

  private:
    void argument(const std::string& word) {
        if (next_ == arguments_.size()) {
            std::string known;
            for (const option* a : arguments_) known += " " + a->name;
            fail(table_,
                 fmt::format("'{}' is one word too many: qk {} takes{}", word, table_.name(), known.empty() ? " options only" : known));
        }
        given_[arguments_[next_]].push_back(word);
        if (!arguments_[next_]->is_list()) ++next_;
    }

    void named(const std::string& word) {
        const bool is_long = word.starts_with("--");
        const std::size_t equals = is_long ? word.find('=') : std::string::npos;
        const std::string name = is_long ? word.substr(0, equals) : word.substr(0, 2);
        const option* o = table_.find(name);
        if (o == nullptr || (!is_long && table_.find("-" + word) != nullptr))
            unknown(word.substr(0, equals));  // "-output" does not mean "-o utput"
        std::optional<std::string> attached;  // "--samples=8", "-oOUT"
        if (equals != std::string::npos) attached = word.substr(equals + 1);
        else if (!is_long && word.size() > 2) attached = word.substr(2);
        if (o->is_flag()) return given_[o].push_back(attached.value_or("true"));
        if (given_.contains(o) && !o->is_list()) fail(table_, name + " is given twice");
        if (!attached && !o->value_alone.empty()) return given_[o].push_back(o->value_alone);
        if (!attached && (at_ == words_.size() || table_.find(words_[at_]) != nullptr))
            fail(table_, fmt::format("{} needs a value, {}", name, o->shown_value()));
        take(*o, attached ? *attached : words_[at_++]);
        if (!o->is_list() || o->is_single) return;
        // A list continues until the next option, but leaves the words that required arguments need.
        while (at_ < words_.size() && !looks_like_option(words_[at_]) && words_.size() - at_ > arguments_missing()) take(*o, words_[at_++]);
    }

    void take(const option& o, const std::string& word) {
        std::size_t begin = 0;
        while (o.separator != 0) {
            const std::size_t end = word.find(o.separator, begin);
            if (end == std::string::npos) break;
            given_[&o].push_back(word.substr(begin, end - begin));
            begin = end + 1;
        }
        given_[&o].push_back(word.substr(begin));
    }

    std::size_t arguments_missing() const {
        std::size_t n = 0;
        for (std::size_t i = next_; i < arguments_.size(); ++i) n += arguments_[i]->is_required && !given_.contains(arguments_[i]);
        return n;
    }

    [[noreturn]] void unknown(const std::string& name) const {
        std::vector<std::string> known;
        for (const option& o : table_.options())
            if (!o.is_argument()) known.push_back(o.name.substr(o.name.find_first_not_of('-')));
        std::string near;
        for (const std::string& n : graph::nearest_names(name.substr(std::min(name.find_first_not_of('-'), name.size())), known))
            near += (near.empty() ? " Did you mean --" : " or --") + n;
        fail(table_, fmt::format("qk {} has no option {}.{}", table_.name(), name, near.empty() ? "" : near + "?"));
    }

    const option_table& table_;
    std::vector<std::string> words_;
    std::vector<const option*> arguments_;
    std::size_t at_ = 0, next_ = 0;
    given_values given_;
};

/// Returns the number that the whole word spells; nullopt if it is none.
template <class T>
std::optional<T> number_in(std::string_view word) {
    if (word.starts_with('+')) word.remove_prefix(1);
    T value{};
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || code != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
}

template <class T>
T number(const option_table& table, const option& o, const std::string& word) {
    const std::optional<T> value = number_in<T>(word);
    const double as_double = value ? static_cast<double>(*value) : 0;
    const bool fits = value && !std::isnan(as_double) && (!o.least || as_double >= *o.least) && (!o.most || as_double <= *o.most);
    if (fits) return *value;
    const char* kind = std::is_floating_point_v<T> ? "number" : "whole number";
    std::string range;
    if (o.most) range = fmt::format(" from {:g} to {:g}", *o.least, *o.most);
    else if (o.least) range = fmt::format(" of at least {:g}", *o.least);
    else if (std::is_unsigned_v<T>) range = " from 0 to 2^64 - 1";
    fail(table, fmt::format("{} '{}' is not a {}{}{}{}", o.name, word, kind, range, o.advice.empty() ? "" : "; ", o.advice));
}

/// Checks the values of an option and, if `store`, sets its variable.
void set(const option_table& table, const option& o, const std::vector<std::string>& values, bool store) {
    if (o.only_words)
        for (const std::string& v : values)
            if (std::find(o.words.begin(), o.words.end(), v) == o.words.end())
                fail(table,
                     fmt::format("{} '{}' is none of {}.{}", o.name, v, graph::comma_separated(o.words), graph::did_you_mean(v, o.words)));
    std::string last = values.back();
    if (!o.unit.empty()) {
        const bool there = last.ends_with(o.unit);
        if (there) last.resize(last.size() - o.unit.size());
        if (store) *o.has_unit = there;
    }
    const auto assign = [&]<class T>(T* to) {
        if constexpr (std::is_same_v<T, bool>) {
            if (last != "true" && last != "false") fail(table, fmt::format("{} takes no value; leave '{}' out", o.name, last));
            if (store) *to = last == "true";
        } else if constexpr (std::is_same_v<T, std::string>) {
            if (store) *to = last;
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            if (store) *to = values;
        } else if constexpr (requires { typename T::value_type; }) {
            const auto n = number<typename T::value_type>(table, o, last);
            if (store) *to = n;
        } else {
            const auto n = number<T>(table, o, last);
            if (store) *to = n;
        }
    };
    if (const auto* take = std::get_if<std::function<void(double)>>(&o.to)) {
        const double n = number<double>(table, o, last);
        if (store) (*take)(n);
        return;
    }
    std::visit(
        [&](const auto& to) {
            if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(to)>>) assign(to);
        },
        o.to);
}

}  // namespace

std::vector<const option*> read_options(const option_table& table, std::vector<std::string> words) {
    const given_values given = words_to_options(table, std::move(words)).sort();
    const auto is_spared = [&](const option& o) {
        for (const option& argument : table.options())
            if (argument.is_argument()) {
                const auto values = given.find(&argument);
                return values != given.end() && !values->second.empty() && o.spared(values->second.front());
            }
        return false;
    };
    for (const option& o : table.options())
        if (o.is_required && !given.contains(&o) && !(o.spared && is_spared(o)))
            fail(table, fmt::format("{} is required", o.is_argument() ? o.name : o.name + " " + o.shown_value()));
    for (const bool store : {false, true})
        for (const option& o : table.options())
            if (const auto values = given.find(&o); values != given.end()) set(table, o, values->second, store);
    std::vector<const option*> named;
    for (const option& o : table.options())
        if (given.contains(&o)) named.push_back(&o);
    return named;
}

void option_table::check_input(const std::vector<const option*>& given) const {
    if (!find_input_) return;
    const given_input input = find_input_();
    if (!kinds_.has(input.kind))
        fail(*this, fmt::format("{}, and qk {} is for {}{}", input.says, name_, kind_words(kinds_),
                                input.kind == input_kind::checkpoint
                                    ? "; qk inspect, lint, convert, compare, sensitivity and search take checkpoints"
                                    : ""));
    for (const option* o : given)
        if (!o->kinds.has(input.kind))
            fail(*this, fmt::format("{}, for which qk {} does not read {}: that is for {}; {}", input.says, name_, o->name,
                                    kind_words(o->kinds), o->instead.empty() ? "leave it out" : o->instead));
}

}  // namespace qk::tool
