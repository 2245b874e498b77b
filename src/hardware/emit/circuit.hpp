// SPDX-License-Identifier: Apache-2.0
// What `qk emit` prints: functions over words, as trees of gates. A word has a width and a largest value; every gate takes words of the
// widths that its line says, so that each language can print it without a rule of its own for widths.
//
// A function of many operands has arrays, loops with constant bounds and words that are assigned anew, beside those that are defined once.
//
// The functions below fold constants and leave out what a largest value decides (a comparison that is always true, a shift by 0). So a
// function is described once, for every format, and its text has only what the format needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qk::emit {

enum class gate : std::uint8_t {
    constant,    ///< `value`
    name,        ///< an input of the function or a word that it defined
    bits,        ///< `width` bits of a name, from bit `value` on
    join,        ///< two words, the first above the second
    extend,      ///< zeros above a word
    invert,      ///< every bit of a word; of one bit: not
    both,        ///< and, of equal widths
    either,      ///< or
    differ,      ///< exclusive or
    sum,         ///< modulo 2^width, of equal widths
    difference,  ///< likewise
    left,        ///< a word shifted by another of any width, modulo 2^width
    right,
    equal,  ///< comparisons of equal widths, without a sign: one bit
    unequal,
    less,
    at_least,
    above,
    choose,    ///< if the first (one bit) is 1 the second, else the third
    lookup,    ///< the word of the table `name` at an index
    product,   ///< modulo 2^width, of equal widths
    quotient,  ///< of a place by a constant, without the rest: which block it is in
    element,   ///< a word of the array `name` at a place
    call,      ///< the function `name` of words
};

struct node;
using tree = std::shared_ptr<const node>;

struct node {
    gate what = gate::constant;
    int width = 1;
    std::uint64_t largest = 0;  ///< no value is above it
    std::uint64_t value = 0;
    std::string name;
    std::vector<tree> of;
};

constexpr std::uint64_t ones(int width) { return width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1; }

/// A word of a circuit. Operators take words of equal widths; an operand that is a number becomes a constant of the other's width.
class word {
  public:
    word() = default;
    explicit word(tree t) : tree_(std::move(t)) {}
    const tree& get() const { return tree_; }
    int width() const { return tree_->width; }
    std::uint64_t largest() const { return tree_->largest; }
    bool is_constant() const { return tree_->what == gate::constant; }
    bool is(std::uint64_t v) const { return is_constant() && tree_->value == v; }

  private:
    tree tree_;
};

word constant(std::uint64_t value, int width);
word extend(const word& a, int width);  ///< to a width that is not smaller
word bits(const word& name, int from, int width);
word join(const word& high, const word& low);
word choose(const word& condition, const word& yes, const word& no);
word operator!(const word& a);  ///< of one bit
word operator&(const word& a, const word& b);
word operator|(const word& a, const word& b);
word operator^(const word& a, const word& b);
word operator+(const word& a, const word& b);
word operator*(const word& a, const word& b);
word operator-(const word& a, const word& b);
word operator<<(const word& a, const word& by);
word operator>>(const word& a, const word& by);
word operator==(const word& a, const word& b);
word operator!=(const word& a, const word& b);
word operator<(const word& a, const word& b);
word operator>=(const word& a, const word& b);
word operator>(const word& a, const word& b);
/// Returns a - b for words of which b is never above a.
word lessened(const word& a, const word& b);
/// Returns a word that is known to have no value above `most`.
word bounded(const word& a, std::uint64_t most);
/// Returns the smallest width that holds a value.
int width_of(std::uint64_t value);
/// Returns a word that is defined elsewhere: of a loop, or of a variable.
word named_word(const std::string& as, int width, std::uint64_t largest);
/// Returns what a function returns, `width` bits.
word call(const std::string& function, int width, const std::vector<word>& of);
/// Returns the number of the block of `size` that has a place.
word block_at(const word& place, std::uint64_t size);
/// Returns minus a word, modulo 2^width.
inline word minus(const word& a) { return constant(0, a.width()) - a; }

inline word number(std::uint64_t v, const word& like) { return constant(v, like.width()); }
inline word operator+(const word& a, std::uint64_t v) { return a + number(v, a); }
inline word operator==(const word& a, std::uint64_t v) { return a == number(v, a); }
inline word operator!=(const word& a, std::uint64_t v) { return a != number(v, a); }
inline word operator<(const word& a, std::uint64_t v) { return a < number(v, a); }
inline word operator>=(const word& a, std::uint64_t v) { return a >= number(v, a); }
inline word operator>(const word& a, std::uint64_t v) { return a > number(v, a); }

/// What a line does. A loop ends at the `end` that belongs to it.
enum class line : std::uint8_t { define, variable, assign, array, store, loop, end };
struct definition {
    std::string name;
    word value;  ///< loop: where it begins; store: what; array: a word of its width
    std::string comment;
    line what = line::define;
    word place{};             ///< store: where; loop: the first place that is not visited any more
    std::uint64_t count = 1;  ///< array: words; loop: steps
};
/// An input of many words, all of one width.
struct array_of_words {
    std::string name;
    int width = 0;
    std::uint64_t count = 0;
};
struct table_of_words {
    std::string name;
    int width = 0;
    std::vector<std::uint64_t> words;
};

/// A function over words, without a state.
struct function {
    std::string name, comment;
    bool partial = false;                ///< some bits of its words are asked by nothing (drop_unused finds it)
    std::vector<word> inputs;            ///< names
    std::vector<array_of_words> arrays;  ///< inputs, too; the words behind them
    std::vector<table_of_words> tables;
    std::vector<definition> lines;
    word result;
    std::string returned;  ///< the array that is the result; in C the caller gives it

    word input(const std::string& as, int width);
    /// Defines a word by a name, which then stands for it; constants and names need none. A name that is taken gets a suffix.
    word let(const std::string& as, const word& value, const std::string& comment = {});
    word lookup(const std::string& table, const word& index) const;

    /// Adds an array to the inputs; returns its name.
    std::string input_array(const std::string& as, int width, std::uint64_t count);
    /// Makes a word that may be assigned anew.
    word variable(const std::string& as, const word& begins);
    void assign(const word& variable, const word& value, const std::string& comment = {});
    /// Makes an array of the function's own, whose words have no value yet.
    std::string array(const std::string& as, int width, std::uint64_t count);
    /// Makes an array that the function returns; returns() says at last how many words it has.
    std::string returned_array(const std::string& as, int width);
    void returns(std::uint64_t count);
    void store(const std::string& array, const word& place, const word& value);
    word at(const std::string& array, const word& place) const;
    /// Begins a loop over places from `first` to before `end`, and returns the place; end_loop() ends the latest one.
    word loop(const std::string& as, const word& first, const word& end, std::uint64_t step = 1);
    void end_loop();

  private:
    std::string free_name(const std::string& as) const;
};

/// Drops definitions that nothing uses, and finds whether every bit of the others is asked.
void drop_unused(function& f);

/// Returns the parts of C that functions with words of more than 64 bits need, for a text that has these functions; empty where none does.
std::string wide_words_in_c(const std::string& functions, int widest);
/// Returns the largest width among words of more than 64 bits, 0 without them.
int widest_word(const function& f);
std::string in_c(const function& f);
std::string in_system_verilog(const function& f);
std::string in_python(const function& f);

}  // namespace qk::emit
