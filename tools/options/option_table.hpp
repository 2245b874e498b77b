// SPDX-License-Identifier: Apache-2.0
// The options of a verb as a table, from which parsing, --help, shell completion and the errors for typing mistakes are made.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace qk::tool {

/// Destination of a value. A flag is a bool; a list takes several values; a function is called with a number.
using destination = std::variant<bool*, std::string*, int*, double*, std::uint64_t*, std::optional<int>*, std::optional<double>*,
                                 std::optional<std::uint64_t>*, std::vector<std::string>*, std::function<void(double)>>;

/// What a verb is given, where some of its options are for one kind alone.
enum class input_kind : unsigned {
    model = 1,        ///< an ONNX model
    array = 2,        ///< a .npy
    words = 4,        ///< a .hex or .mem
    packed = 8,       ///< an .npz of codes
    checkpoint = 16,  ///< .safetensors, index.json, .gguf
    format = 32,      ///< a format by its name: what a converter converts to
    decoder = 64,     ///< a format by its name, from codes to values
    pairs = 128,      ///< two formats whose codes are multiplied
    device = 256,     ///< a unit that multiplies and adds
    answers = 512,    ///< what such a unit answered, in a file
};
/// Some kinds; none means all that a verb takes.
struct input_kinds {
    unsigned bits = 0;
    constexpr input_kinds() = default;
    constexpr input_kinds(input_kind k) : bits(static_cast<unsigned>(k)) {}
    constexpr bool has(input_kind k) const { return bits == 0 || (bits & static_cast<unsigned>(k)) != 0; }
    constexpr bool operator==(const input_kinds&) const = default;
    friend constexpr input_kinds operator|(input_kinds a, input_kinds b) {
        a.bits |= b.bits;
        return a;
    }
};
constexpr input_kinds operator|(input_kind a, input_kind b) { return input_kinds(a) | input_kinds(b); }

/// The input that a verb was given: its kind, and the words that say so, as "m.gguf is a checkpoint".
struct given_input {
    input_kind kind;
    std::string says;
};

/// One option, or an argument without a dash. The functions add a fact and return the option, so that a declaration reads as one sentence.
struct option {
    std::string short_name, name;  ///< "-o" (or "") and "--output"; for an argument "MODEL"
    destination to;
    std::string text;                ///< what --help says
    std::string section;             ///< heading in --help
    std::string value_name;          ///< name of its value in --help; empty: by its type
    std::vector<std::string> words;  ///< words that completion offers
    bool only_words = false;         ///< other words are an error
    bool is_required = false, is_common = false, is_single = false;
    bool is_input = false, is_output = false;        ///< it names files that the verb reads, or writes
    std::string value_alone;                         ///< its value where none is attached with '='; empty: it needs one
    char separator = 0;                              ///< separates a list's values within one word; 0: none
    std::function<bool(const std::string&)> spared;  ///< whether it is not required after all, by the verb's first argument
    std::optional<double> least, most;               ///< bounds of a number, inclusive
    std::string advice;                              ///< what to do instead of giving a number out of bounds
    std::string unit;                                ///< that may stand behind a number; `has_unit` says whether it does
    bool* has_unit = nullptr;
    input_kinds kinds;    ///< of input that it is read for
    std::string instead;  ///< what to do for other kinds

    option& type_name(std::string shown) { return value_name = std::move(shown), *this; }
    option& required(bool yes = true) { return is_required = yes, *this; }
    option& unless(std::function<bool(const std::string&)> first_argument) { return spared = std::move(first_argument), *this; }
    option& common() { return is_common = true, *this; }  ///< --help lists it first
    option& one_of(std::vector<std::string> all) { return words = std::move(all), only_words = true, *this; }
    option& suggest(std::vector<std::string> some) { return words = std::move(some), *this; }
    option& alone(std::string value) { return value_alone = std::move(value), *this; }  ///< "--strict" and "--strict=all"
    option& delimiter(char c) { return separator = c, *this; }
    option& one_each() { return is_single = true, *this; }  ///< each use of a list option takes one value
    /// `more` ends the error for other numbers: "leave it out to use all of them".
    option& at_least(double lowest, std::string more = "") { return least = lowest, advice = std::move(more), *this; }
    option& between(double lowest, double highest, std::string more = "") {
        return least = lowest, most = highest, advice = std::move(more), *this;
    }
    option& with_unit(std::string word, bool& is_there) { return unit = std::move(word), has_unit = &is_there, *this; }  ///< "4.7bpw"
    /// With an input of another kind the option is an error, which ends with `other_kinds`: what to do there.
    option& only_for(input_kinds some, std::string other_kinds = "") { return kinds = some, instead = std::move(other_kinds), *this; }
    /// Adds a kind to those that option_table::only_for has set.
    option& also_for(input_kinds some) { return kinds = kinds.bits == 0 ? kinds : kinds | some, *this; }
    option& reads() { return is_input = true, *this; }    ///< '-' is standard input
    option& writes() { return is_output = true, *this; }  ///< '-' is standard output

    bool is_argument() const { return name.front() != '-'; }
    bool is_flag() const { return std::holds_alternative<bool*>(to); }
    bool takes_next_word() const { return !is_flag() && value_alone.empty(); }
    bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(to); }
    bool is_number() const { return !is_flag() && !is_list() && !std::holds_alternative<std::string*>(to); }
    /// Returns "TEXT", "N", "X" or the name that type_name() set; empty for a flag.
    std::string shown_value() const;
};

/// A verb: its options in the order of --help, and its work.
class option_table {
  public:
    option_table(std::string name, std::string summary) : name_(std::move(name)), summary_(std::move(summary)) {}

    /// `names` is like "MODEL", "--labels" or "-o,--output".
    template <class T>
    option& add_option(const std::string& names, T& variable, std::string text) {
        return add(names, &variable, std::move(text));
    }
    option& add_function(const std::string& names, std::function<void(double)> take, std::string text) {
        return add(names, std::move(take), std::move(text));
    }
    option& add_flag(const std::string& names, bool& variable, std::string text) { return add(names, &variable, std::move(text)); }
    /// Sets the heading of options added from now on; "" is the general one.
    void section(std::string title) { section_ = std::move(title); }
    /// Says which kinds of input the verb takes, and finds the kind of the one that it was given once the variables are filled.
    void takes(input_kinds all, std::function<given_input()> find) { kinds_ = all, find_input_ = std::move(find); }
    /// Sets what options added from now on are for (option::only_for); none: whatever the verb takes.
    void only_for(input_kinds some) { added_for_ = some; }
    /// Sets the text that --help ends with: examples.
    void footer(std::string text) { footer_ = std::move(text); }
    /// Sets the function that does the work once the variables are filled.
    void callback(std::function<void()> work) { work_ = std::move(work); }

    const std::string& name() const { return name_; }
    const std::string& summary() const { return summary_; }
    const std::string& footer() const { return footer_; }
    const std::deque<option>& options() const { return options_; }
    input_kinds kinds() const { return kinds_; }
    option& at(const std::string& name);  ///< an option that has been added, to say more about it
    /// Throws qk::graph::error where one of `given` is not read for the kind of input that the verb was given.
    void check_input(const std::vector<const option*>& given) const;
    const option* find(const std::string& name) const;  ///< finds an option by either of its names; nullptr: none
    void work() const { work_(); }

  private:
    option& add(const std::string& names, destination to, std::string text);

    std::string name_, summary_, footer_, section_;
    std::deque<option> options_;  // a deque: additions must not move options that callers refer to
    std::function<void()> work_;
    input_kinds kinds_, added_for_;
    std::function<given_input()> find_input_;
};

/// Reads `words` into the variables of `table`, and returns the options that they name. Throws qk::graph::error with a sentence that names
/// the option; no variable has changed then.
std::vector<const option*> read_options(const option_table& table, std::vector<std::string> words);

/// Returns the kinds as --help names them: "models and checkpoints".
std::string kind_words(input_kinds kinds);

/// Returns the page that `qk VERB --help` prints.
std::string help_of(const option_table& table, const std::string& program);

}  // namespace qk::tool
