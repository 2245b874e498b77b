// SPDX-License-Identifier: Apache-2.0
// Prints a circuit as C99, SystemVerilog and Python. A word is an unsigned number below 2^width in each: C and Python take what lies above
// away where a sum or a shift can reach it, and SystemVerilog has words of exactly that width on both sides of every operator.
// It is long because each language has a printer, and C its words of more than 64 bits.
#include <algorithm>
#include <set>
#include <stdexcept>

#include "circuit.hpp"

namespace qk::emit {
namespace {

/// How tightly a text binds. Texts inside another get parentheses where they bind less than it needs.
enum rank { atom, binary, conjunction, disjunction, choice };
struct text {
    std::string s;
    rank binds = atom;
};
std::string in_parentheses(const text& t, rank at_most = atom) { return t.binds > at_most ? "(" + t.s + ")" : t.s; }

std::string hexadecimal(std::uint64_t v) {
    std::string s;
    do s.insert(s.begin(), "0123456789abcdef"[v & 15]);
    while ((v >>= 4) != 0);
    return s;
}
/// Masks and codes are read in hexadecimal, counts in decimal.
bool reads_as_count(std::uint64_t v) { return v < 32 || (v < 1000 && (v & (v + 1)) != 0); }

const node& child(const node& n, std::size_t k) { return *n.of[k]; }
bool may_pass(const node& n) {  // can the result of a sum, difference or left shift lie beyond its width?
    const std::uint64_t top = ones(n.width);
    switch (n.what) {
        case gate::sum: return n.width > 63 || child(n, 0).largest + child(n, 1).largest > top;
        case gate::difference: return n.value == 0;
        case gate::left: {
            const std::uint64_t most = child(n, 1).largest;
            return most > 63 || width_of(child(n, 0).largest) + static_cast<int>(most) > 64 || child(n, 0).largest << most > top;
        }
        case gate::product: return n.width > 63 || width_of(child(n, 0).largest) + width_of(child(n, 1).largest) > n.width;
        case gate::invert: return n.width > 1;
        default: return false;
    }
}

/// What the three languages share: operators and parentheses.
class printer {
  public:
    virtual ~printer() = default;
    text print(const node& n) const {
        if (text t; prints_itself(n, t)) return t;
        switch (n.what) {
            case gate::constant: return {constant(n.value, n.width)};
            case gate::name: return {n.name};
            case gate::bits: return bits(n);
            case gate::join: return join(n);
            case gate::extend: return extend(n);
            case gate::lookup: return lookup(n);
            case gate::element: return element(n);
            case gate::call: return called(n);
            case gate::product: return limited(n, operation(n, "*"));
            case gate::quotient: return operation(n, quotient_sign());
            case gate::choose: return choose(n);
            case gate::invert:
                if (n.width == 1) return {words_.not_ + in_parentheses(print(child(n, 0)))};
                return limited(n, {"~" + number(child(n, 0))});
            case gate::both:
                if (n.width == 1) return logical(n, words_.and_, conjunction);
                return operation(n, "&");
            case gate::either:
                if (n.width == 1) return logical(n, words_.or_, disjunction);
                return operation(n, "|");
            case gate::differ: return operation(n, n.width == 1 ? "!=" : "^");
            case gate::sum: return limited(n, operation(n, "+"));
            case gate::difference: return limited(n, operation(n, "-"));
            case gate::left: return limited(n, shifted(n, "<<"));
            case gate::right: return shifted(n, ">>");
            case gate::equal: return operation(n, "==");
            case gate::unequal: return operation(n, "!=");
            case gate::less: return operation(n, "<");
            case gate::at_least: return operation(n, ">=");
            case gate::above: return operation(n, ">");
        }
        throw std::logic_error("a gate without a text");
    }

  protected:
    struct words {
        std::string not_, and_, or_;
    };
    explicit printer(words w) : words_(std::move(w)) {}
    virtual std::string mask(int width) const { return constant(ones(width), width); }
    virtual std::string constant(std::uint64_t v, int width) const = 0;
    virtual text bits(const node& n) const = 0;
    virtual text join(const node& n) const = 0;
    virtual text extend(const node& n) const = 0;
    virtual text lookup(const node& n) const = 0;
    virtual text element(const node& n) const { return {n.name + "[" + print(child(n, 0)).s + "]"}; }
    virtual text choose(const node& n) const = 0;
    virtual const char* quotient_sign() const { return "/"; }
    /// Is true where a language has a text of its own for a gate.
    virtual bool prints_itself(const node&, text&) const { return false; }
    /// Takes away what lies beyond the word's width.
    virtual text limited(const node& n, text t) const = 0;
    /// Returns an operand of arithmetic.
    virtual std::string number(const node& n) const { return in_parentheses(print(n)); }
    virtual void check_shift(const node&) const {}

    std::string operand(const node& n) const { return in_parentheses(print(n)); }
    /// Returns name(words of the gate, more).
    text called(const node& n, const std::string& name, const std::string& more = {}) const {
        std::string s = name + "(";
        for (std::size_t k = 0; k < n.of.size(); ++k) s += (k == 0 ? "" : ", ") + print(child(n, k)).s;
        return {s + more + ")"};
    }

  private:
    text called(const node& n) const { return called(n, n.name); }
    text operation(const node& n, const char* sign) const { return {number(child(n, 0)) + " " + sign + " " + number(child(n, 1)), binary}; }
    text shifted(const node& n, const char* sign) const {
        check_shift(n);
        const node& by = child(n, 1);
        return {number(child(n, 0)) + " " + sign + " " + (by.what == gate::constant ? std::to_string(by.value) : operand(by)), binary};
    }
    text logical(const node& n, const std::string& sign, rank r) const {
        std::string s;
        for (std::size_t k = 0; k < 2; ++k) {
            const text t = print(child(n, k));
            s += (k == 0 ? "" : sign) + in_parentheses(t, t.binds == r ? r : binary);
        }
        return {s, r};
    }
    words words_;
};

class c_printer : public printer {
  public:
    c_printer() : printer({"!", " && ", " || "}) {}
    static const char* type(int width) { return width > 64 ? "wide" : width > 32 ? "uint64_t" : "uint32_t"; }

  protected:
    /// Words of more than 64 bits are structures, and what is done with them are functions (wide_words_in_c).
    bool prints_itself(const node& n, text& t) const override {
        const bool takes = n.what != gate::choose && n.what != gate::call && n.what != gate::element && n.what != gate::lookup &&
                           std::any_of(n.of.begin(), n.of.end(), [](const tree& c) { return c->width > 64; });
        if (n.width <= 64 && !takes) return false;
        switch (n.what) {
            case gate::bits: {
                const std::string name = child(n, 0).name, from = std::to_string(n.value), width = std::to_string(n.width);
                if (n.width > 64) {
                    const std::string moved = n.value == 0 ? name : "wide_right(" + name + ", " + from + ")";
                    t = {static_cast<int>(n.value) + n.width == child(n, 0).width ? moved : "wide_low(" + moved + ", " + width + ")"};
                } else {
                    t = {std::string(n.width <= 32 ? "(uint32_t)" : "") + "wide_bits(" + name + ", " + from + ", " + width + ")",
                         n.width <= 32 ? binary : atom};
                }
                return true;
            }
            case gate::join: {
                const std::string high = "wide_left(" + as_wide(child(n, 0)) + ", " + std::to_string(child(n, 1).width) + ")";
                const bool zero = child(n, 1).what == gate::constant && child(n, 1).value == 0;
                t = {zero ? high : "wide_or(" + high + ", " + as_wide(child(n, 1)) + ")"};
                return true;
            }
            case gate::extend: t = {as_wide(child(n, 0))}; return true;
            case gate::invert: t = {"wide_low(wide_not(" + print(child(n, 0)).s + "), " + std::to_string(n.width) + ")"}; return true;
            case gate::both: t = called(n, "wide_and"); return true;
            case gate::either: t = called(n, "wide_or"); return true;
            case gate::differ: t = called(n, "wide_differ"); return true;
            case gate::sum: t = low(n, called(n, "wide_sum")); return true;
            case gate::difference: t = low(n, called(n, "wide_minus")); return true;
            case gate::product: t = low(n, called(n, "wide_product")); return true;
            case gate::left: t = low(n, called(n, "wide_left")); return true;
            case gate::right: t = called(n, "wide_right"); return true;
            case gate::equal: t = called(n, "wide_is_equal"); return true;
            case gate::unequal: t = {"!" + called(n, "wide_is_equal").s, binary}; return true;
            case gate::less: t = called(n, "wide_is_less"); return true;
            case gate::at_least: t = {"!" + called(n, "wide_is_less").s, binary}; return true;
            case gate::above: t = {"wide_is_less(" + print(child(n, 1)).s + ", " + print(child(n, 0)).s + ")"}; return true;
            default: return false;
        }
    }
    std::string constant(std::uint64_t v, int width) const override {
        if (width > 64) return "wide_of(" + constant(v, 64) + ")";
        const std::string digits = reads_as_count(v) ? std::to_string(v) : "0x" + hexadecimal(v);
        return width > 32 ? "UINT64_C(" + digits + ")" : digits + "u";
    }
    text limited(const node& n, text t) const override {
        if (!may_pass(n) || n.width == 32 || n.width == 64) return t;
        return {in_parentheses(t) + " & " + constant(ones(n.width), n.width), binary};
    }
    text bits(const node& n) const override {
        const node& of = child(n, 0);
        text t = n.value == 0 ? text{of.name} : text{of.name + " >> " + std::to_string(n.value), binary};
        if (static_cast<int>(n.value) + n.width < of.width) t = {in_parentheses(t) + " & " + constant(ones(n.width), of.width), binary};
        return of.width > 32 && n.width <= 32 ? text{"(uint32_t)(" + t.s + ")"} : t;
    }
    text join(const node& n) const override {
        const int low = child(n, 1).width;
        const std::string high = wide(child(n, 0), n.width) + " << " + std::to_string(low);
        if (child(n, 1).what == gate::constant && child(n, 1).value == 0) return {high, binary};
        return {"(" + high + ") | " + number(child(n, 1)), binary};
    }
    text extend(const node& n) const override {
        if (n.width > 32 && child(n, 0).width <= 32) return {wide(child(n, 0), n.width)};
        return {number(child(n, 0))};
    }
    text lookup(const node& n) const override { return {n.name + "[" + print(child(n, 0)).s + "]"}; }
    text choose(const node& n) const override {
        return {in_parentheses(print(child(n, 0)), binary) + " ? " + number(child(n, 1)) + " : " + number(child(n, 2)), choice};
    }
    /// A truth is an int in C; sums and shifts take uint32_t.
    std::string number(const node& n) const override {
        const text t = print(n);
        const bool is_truth = n.width == 1 && t.binds != atom && n.what != gate::bits;
        const bool is_not = n.what == gate::invert && n.width == 1;
        if (is_truth || is_not) return "(uint32_t)(" + t.s + ")";
        return in_parentheses(t);
    }
    void check_shift(const node& n) const override {
        if (child(n, 1).largest >= (child(n, 0).width > 32 ? 64u : 32u)) throw std::logic_error("a shift beyond C's words");
    }

  private:
    std::string as_wide(const node& n) const { return n.width > 64 ? print(n).s : "wide_of(" + print(n).s + ")"; }
    text low(const node& n, text t) const { return may_pass(n) ? text{"wide_low(" + t.s + ", " + std::to_string(n.width) + ")"} : t; }
    std::string wide(const node& n, int width) const {
        if (n.what == gate::constant) return constant(n.value, width);
        return width > 32 && n.width <= 32 ? "(uint64_t)" + operand(n) : number(n);
    }
};

class sv_printer : public printer {
  public:
    sv_printer() : printer({"!", " && ", " || "}) {}
    static std::string part(const std::string& array, const text& place, int width) {
        const std::string w = std::to_string(width);
        return array + "[" + (width == 1 ? place.s : in_parentheses(place) + " * " + w + " +: " + w) + "]";
    }
    static std::string type(int width) { return width == 1 ? "logic" : "logic [" + std::to_string(width - 1) + ":0]"; }

  protected:
    std::string constant(std::uint64_t v, int width) const override {
        return std::to_string(width) + "'" + (reads_as_count(v) ? "d" + std::to_string(v) : "h" + hexadecimal(v));
    }
    text limited(const node&, text t) const override { return t; }
    text bits(const node& n) const override {
        const int top = static_cast<int>(n.value) + n.width - 1;
        return {child(n, 0).name + "[" + std::to_string(top) + (n.width == 1 ? "" : ":" + std::to_string(n.value)) + "]"};
    }
    text join(const node& n) const override { return {"{" + print(child(n, 0)).s + ", " + print(child(n, 1)).s + "}"}; }
    text extend(const node& n) const override {
        return {"{" + std::to_string(n.width - child(n, 0).width) + "'d0, " + print(child(n, 0)).s + "}"};
    }
    text lookup(const node& n) const override {
        return {n.name + "[{" + print(child(n, 0)).s + ", 5'd0} +: " + std::to_string(n.width) + "]"};
    }
    text element(const node& n) const override { return {part(n.name, print(child(n, 0)), n.width)}; }
    text choose(const node& n) const override {
        return {in_parentheses(print(child(n, 0)), binary) + " ? " + operand(child(n, 1)) + " : " + operand(child(n, 2)), choice};
    }
};

class python_printer : public printer {
  public:
    python_printer() : printer({"not ", " and ", " or "}) {}

  protected:
    std::string constant(std::uint64_t v, int) const override { return reads_as_count(v) ? std::to_string(v) : "0x" + hexadecimal(v); }
    text limited(const node& n, text t) const override {
        if (!may_pass(n)) return t;
        return {in_parentheses(t) + " & " + mask(n.width), binary};
    }
    std::string mask(int width) const override {
        return width > 64 ? "((1 << " + std::to_string(width) + ") - 1)" : constant(ones(width), width);
    }
    const char* quotient_sign() const override { return "//"; }
    text bits(const node& n) const override {
        const node& of = child(n, 0);
        text t = n.value == 0 ? text{of.name} : text{of.name + " >> " + std::to_string(n.value), binary};
        if (static_cast<int>(n.value) + n.width < of.width) t = {in_parentheses(t) + " & " + mask(n.width), binary};
        return t;
    }
    text join(const node& n) const override {
        const std::string high = number(child(n, 0)) + " << " + std::to_string(child(n, 1).width);
        if (child(n, 1).what == gate::constant && child(n, 1).value == 0) return {high, binary};
        return {"(" + high + ") | " + number(child(n, 1)), binary};
    }
    text extend(const node& n) const override { return {number(child(n, 0))}; }
    text lookup(const node& n) const override { return {n.name + "[" + print(child(n, 0)).s + "]"}; }
    text choose(const node& n) const override {
        return {operand(child(n, 1)) + " if " + in_parentheses(print(child(n, 0)), binary) + " else " + operand(child(n, 2)), choice};
    }
    std::string number(const node& n) const override {
        const text t = print(n);
        return n.what == gate::invert && n.width == 1 ? "(" + t.s + ")" : in_parentheses(t);
    }
};

/// Prints a choice of choices as a line for each condition.
template <class Line>
std::string cascade(const node& n, const printer& p, Line line) {
    std::string s;
    const node* at = &n;
    for (; at->what == gate::choose; at = at->of[2].get()) s += line(p.print(*at->of[0]), p.print(*at->of[1]), false);
    return s + line(text{}, p.print(*at), true);
}
std::string with_comment(const std::string& line, const std::string& comment, const char* mark) {
    return comment.empty() ? line + "\n" : line + "  " + mark + " " + comment + "\n";
}
std::string table_rows(const table_of_words& t, const char* before, const char* after, bool backwards) {
    std::string s;
    for (std::size_t k = 0; k < t.words.size(); ++k) {
        const std::uint64_t w = t.words[backwards ? t.words.size() - 1 - k : k];
        s += (k % (t.width > 16 ? 10 : 20) == 0 ? "\n    " : " ") + std::string(before) + hexadecimal(w) + after +
             (k + 1 < t.words.size() ? "," : "");
    }
    return s;
}

/// What the lines of a function ask for names.
bool asks(const function& f, const std::string& name) {
    const auto in = [&](const auto& self, const node& n) -> bool {
        return ((n.what == gate::name || n.what == gate::element) && n.name == name) ||
               std::any_of(n.of.begin(), n.of.end(), [&](const tree& t) { return self(self, *t); });
    };
    return in(in, *f.result.get()) || std::any_of(f.lines.begin(), f.lines.end(), [&](const definition& d) {
               return in(in, *d.value.get()) || (d.place.get() != nullptr && in(in, *d.place.get()));
           });
}
/// Calls print(line, depth) for the lines of a function; loops go deeper.
template <class Print>
std::string printed_lines(const function& f, Print print) {
    std::string s;
    int depth = 0;
    for (const definition& d : f.lines) {
        if (d.what == line::end) --depth;
        s += print(d, std::string(static_cast<std::size_t>(depth), '\t'));
        if (d.what == line::loop) ++depth;
    }
    return s;
}
std::string indented(std::string s, const char* unit) {
    for (std::size_t at = 0; (at = s.find('\t', at)) != std::string::npos;) s.replace(at, 1, unit);
    return s;
}

/// What C says of words of more than 64 bits. A part stands in a file that calls it.
struct wide_part {
    const char *name, *text;
};
const wide_part wide_parts[] = {
    {"wide_of", R"(static wide wide_of(uint64_t v)
{
    wide r = {{0}};
    r.w[0] = (uint32_t)v;
    r.w[1] = (uint32_t)(v >> 32);
    return r;
}
)"},
    {"wide_left", R"(static wide wide_left(wide a, uint32_t by)
{
    const uint32_t limbs = by / 32, rest = by % 32;
    wide r = {{0}};
    uint32_t i;
    for (i = limbs; i < @LIMBS; ++i) {
        r.w[i] = a.w[i - limbs] << rest;
        if (rest != 0 && i > limbs) r.w[i] |= a.w[i - limbs - 1] >> (32 - rest);
    }
    return r;
}
)"},
    {"wide_right", R"(static wide wide_right(wide a, uint32_t by)
{
    const uint32_t limbs = by / 32, rest = by % 32;
    wide r = {{0}};
    uint32_t i;
    for (i = 0; i + limbs < @LIMBS; ++i) {
        r.w[i] = a.w[i + limbs] >> rest;
        if (rest != 0 && i + limbs + 1 < @LIMBS) r.w[i] |= a.w[i + limbs + 1] << (32 - rest);
    }
    return r;
}
)"},
    {"wide_low", R"(static wide wide_low(wide a, uint32_t width)
{
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) {
        if (i * 32 >= width) a.w[i] = 0;
        else if (width - i * 32 < 32) a.w[i] &= (1u << (width - i * 32)) - 1u;
    }
    return a;
}
)"},
    {"wide_bits", R"(static uint64_t wide_bits(wide a, uint32_t from, uint32_t width)
{
    const wide r = wide_right(a, from);
    const uint64_t v = (uint64_t)r.w[1] << 32 | r.w[0];
    return width < 64 ? v & ((UINT64_C(1) << width) - 1) : v;
}
)"},
    {"wide_sum", R"(static wide wide_sum(wide a, wide b)
{
    uint64_t carry = 0;
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) {
        carry += (uint64_t)a.w[i] + b.w[i];
        a.w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return a;
}
)"},
    {"wide_minus", R"(static wide wide_minus(wide a, wide b)
{
    uint64_t borrow = 0;
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) {
        const uint64_t rest = (uint64_t)a.w[i] - b.w[i] - borrow;
        a.w[i] = (uint32_t)rest;
        borrow = rest >> 63;
    }
    return a;
}
)"},
    {"wide_product", R"(static wide wide_product(wide a, wide b)
{
    wide r = {{0}};
    uint32_t i, j;
    for (i = 0; i < @LIMBS; ++i) {
        uint64_t carry = 0;
        for (j = 0; i + j < @LIMBS; ++j) {
            carry += (uint64_t)a.w[i] * b.w[j] + r.w[i + j];
            r.w[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    return r;
}
)"},
    {"wide_and", R"(static wide wide_and(wide a, wide b)
{
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) a.w[i] &= b.w[i];
    return a;
}
)"},
    {"wide_or", R"(static wide wide_or(wide a, wide b)
{
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) a.w[i] |= b.w[i];
    return a;
}
)"},
    {"wide_differ", R"(static wide wide_differ(wide a, wide b)
{
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) a.w[i] ^= b.w[i];
    return a;
}
)"},
    {"wide_not", R"(static wide wide_not(wide a)
{
    uint32_t i;
    for (i = 0; i < @LIMBS; ++i) a.w[i] = ~a.w[i];
    return a;
}
)"},
    {"wide_is_equal", R"(static uint32_t wide_is_equal(wide a, wide b)
{
    uint32_t i, differ = 0;
    for (i = 0; i < @LIMBS; ++i) differ |= a.w[i] ^ b.w[i];
    return differ == 0;
}
)"},
    {"wide_is_less", R"(static uint32_t wide_is_less(wide a, wide b)
{
    uint32_t i;
    for (i = @LIMBS; i-- > 0;) {
        if (a.w[i] != b.w[i]) return a.w[i] < b.w[i];
    }
    return 0;
}
)"},
};

}  // namespace

std::string wide_words_in_c(const std::string& functions, int widest) {
    if (widest == 0) return {};
    const std::string limbs = std::to_string((widest + 31) / 32) + "u";
    const auto called = [](const std::string& text, const char* name) { return text.find(std::string(name) + "(") != std::string::npos; };
    std::string s = "/* A whole number of up to " + std::to_string(widest) +
                    " bits, its lowest 32 first. */\ntypedef struct { uint32_t w[" + limbs.substr(0, limbs.size() - 1) + "]; } wide;\n\n";
    for (const wide_part& p : wide_parts) {
        const bool bits = std::string(p.name) == "wide_right" && called(functions, "wide_bits");
        if (!called(functions, p.name) && !bits) continue;
        std::string text = p.text;
        for (std::size_t at = 0; (at = text.find("@LIMBS", at)) != std::string::npos;) text.replace(at, 6, limbs);
        s += text + "\n";
    }
    return s;
}

int widest_word(const function& f) {
    int widest = 0;
    const auto look = [&](const auto& self, const node& n) -> void {
        widest = std::max(widest, n.width);
        for (const tree& t : n.of) self(self, *t);
    };
    for (const definition& d : f.lines) look(look, *d.value.get());
    if (f.returned.empty()) look(look, *f.result.get());
    return widest > 64 ? widest : 0;
}

std::string in_c(const function& f) {
    const c_printer p;
    std::string s = f.comment.empty() ? "" : "/* " + f.comment + " */\n";
    for (const table_of_words& t : f.tables)
        s += "static const uint32_t " + t.name + "[" + std::to_string(t.words.size()) + "] = {" + table_rows(t, "0x", "u", false) + "};\n";
    s += (f.returned.empty() ? std::string(c_printer::type(f.result.width())) : "void") + " " + f.name + "(";
    const std::size_t begins = s.size();
    const auto comma = [&] { return s.size() == begins ? "" : ", "; };
    for (const array_of_words& a : f.arrays)
        s += std::string(comma()) + "const " + c_printer::type(a.width) + " " + a.name + "[" + std::to_string(a.count) + "]";
    for (const word& i : f.inputs) s += comma() + std::string(c_printer::type(i.width())) + " " + i.get()->name;
    for (const definition& d : f.lines) {
        if (d.what == line::array && d.name == f.returned)
            s += comma() + std::string(c_printer::type(d.value.width())) + " " + d.name + "[" + std::to_string(d.count) + "]";
    }
    s += ")\n{\n";
    s += indented(printed_lines(f,
                                [&](const definition& d, const std::string& in) -> std::string {
                                    const node& n = *d.value.get();
                                    const std::string type = c_printer::type(n.width), value = p.print(n).s;
                                    const auto put = [&](const std::string& t) { return with_comment("\t" + in + t, d.comment, "//"); };
                                    switch (d.what) {
                                        case line::define: return put("const " + type + " " + d.name + " = " + value + ";");
                                        case line::variable: return put(type + " " + d.name + " = " + value + ";");
                                        case line::assign: return put(d.name + " = " + value + ";");
                                        case line::array:
                                            if (d.name == f.returned) return {};
                                            return put(type + " " + d.name + "[" + std::to_string(d.count) +
                                                       "] = " + (n.width > 64 ? "{{{0}}};" : "{0};"));
                                        case line::store: return put(d.name + "[" + p.print(*d.place.get()).s + "] = " + value + ";");
                                        case line::loop:
                                            return put("for (uint32_t " + d.name + " = " + value + "; " + d.name + " < " +
                                                       in_parentheses(p.print(*d.place.get()), binary) + "; " +
                                                       (d.count == 1 ? "++" + d.name : d.name + " += " + std::to_string(d.count)) + ") {");
                                        case line::end: return "\t" + in + "}\n";
                                    }
                                    return {};
                                }),
                  "    ");
    for (const word& i : f.inputs) {  // an input that a format does not ask
        if (!asks(f, i.get()->name)) s += "    (void)" + i.get()->name + ";\n";
    }
    if (!f.returned.empty()) return s + "}\n";
    return s + "    return " + cascade(*f.result.get(), p, [](const text& c, const text& v, bool last) {
               return last ? in_parentheses(v, disjunction) + ";\n}\n"
                           : in_parentheses(c, disjunction) + " ? " + in_parentheses(v, binary) + "\n         : ";
           });
}

std::string in_system_verilog(const function& f) {
    const sv_printer p;
    std::string s = f.comment.empty() ? "" : "// " + f.comment + "\n";
    if (f.partial) s += "// verilator lint_off UNUSEDSIGNAL\n";
    for (const table_of_words& t : f.tables)
        s += "localparam logic [" + std::to_string(32 * t.words.size() - 1) + ":0] " + t.name + " = {" + table_rows(t, "32'h", "", true) +
             "};\n";
    s += "function automatic " + sv_printer::type(f.result.width()) + " " + f.name + "(";
    const std::size_t begins = s.size();
    const auto comma = [&] { return s.size() == begins ? "input " : ", input "; };
    for (const array_of_words& a : f.arrays) s += comma() + sv_printer::type(a.width * static_cast<int>(a.count)) + " " + a.name;
    for (const word& i : f.inputs) s += comma() + sv_printer::type(i.width()) + " " + i.get()->name;
    s += ");\n";
    std::set<std::string> declared;
    std::vector<std::pair<std::string, std::string>> by_type;  // one declaration for all words of a width
    for (const definition& d : f.lines) {
        if (d.what == line::assign || d.what == line::store || d.what == line::end || !declared.insert(d.name).second) continue;
        const std::string type =
            d.what == line::loop ? "integer" : sv_printer::type(d.value.width() * (d.what == line::array ? static_cast<int>(d.count) : 1));
        const auto same = std::find_if(by_type.begin(), by_type.end(), [&](const auto& w) { return w.first == type; });
        if (same == by_type.end()) by_type.emplace_back(type, d.name);
        else same->second += ", " + d.name;
    }
    for (const auto& [type, names] : by_type) s += "  " + type + " " + names + ";\n";
    s += indented(printed_lines(f,
                                [&](const definition& d, const std::string& in) -> std::string {
                                    const node& n = *d.value.get();
                                    const std::string value = p.print(n).s;
                                    const auto put = [&](const std::string& t) { return with_comment("\t" + in + t, d.comment, "//"); };
                                    switch (d.what) {
                                        case line::define:
                                        case line::variable:
                                        case line::assign: return put(d.name + " = " + value + ";");
                                        case line::array: return {};
                                        case line::store:
                                            return put(sv_printer::part(d.name, p.print(*d.place.get()), n.width) + " = " + value + ";");
                                        case line::loop:
                                            return put("for (" + d.name + " = " + value + "; " + d.name + " < " +
                                                       in_parentheses(p.print(*d.place.get()), binary) + "; " + d.name + " = " + d.name +
                                                       " + " + std::to_string(d.count) + ") begin");
                                        case line::end: return "\t" + in + "end\n";
                                    }
                                    return {};
                                }),
                  "  ");
    return s + "  " + f.name + " = " +
           cascade(*f.result.get(), p,
                   [](const text& c, const text& v, bool last) {
                       return last ? v.s + ";\nendfunction\n"
                                   : in_parentheses(c, disjunction) + " ? " + in_parentheses(v, binary) + "\n    : ";
                   }) +
           (f.partial ? "// verilator lint_on UNUSEDSIGNAL\n" : "");
}

std::string in_python(const function& f) {
    const python_printer p;
    std::string s;
    for (const table_of_words& t : f.tables) s += t.name + " = (" + table_rows(t, "0x", "", false) + ")\n\n";
    s += "def " + f.name + "(";
    const std::size_t begins = s.size();
    const auto comma = [&] { return s.size() == begins ? "" : ", "; };
    for (const array_of_words& a : f.arrays) s += comma() + a.name;
    for (const word& i : f.inputs) s += comma() + i.get()->name;
    s += "):\n";
    if (!f.comment.empty()) s += "    \"\"\"" + f.comment + "\"\"\"\n";
    s += indented(printed_lines(f,
                                [&](const definition& d, const std::string& in) -> std::string {
                                    const std::string value = p.print(*d.value.get()).s;
                                    const auto put = [&](const std::string& t) { return with_comment("\t" + in + t, d.comment, "#"); };
                                    switch (d.what) {
                                        case line::define:
                                        case line::variable:
                                        case line::assign: return put(d.name + " = " + value);
                                        case line::array: return put(d.name + " = [0] * " + std::to_string(d.count));
                                        case line::store: return put(d.name + "[" + p.print(*d.place.get()).s + "] = " + value);
                                        case line::loop:
                                            return put("for " + d.name + " in range(" + value + ", " + p.print(*d.place.get()).s +
                                                       (d.count == 1 ? "" : ", " + std::to_string(d.count)) + "):");
                                        case line::end: return {};
                                    }
                                    return {};
                                }),
                  "    ");
    const bool many = f.result.get()->what == gate::choose;
    return s + "    return " + (many ? "(" : "") + cascade(*f.result.get(), p, [many](const text& c, const text& v, bool last) {
               return last ? in_parentheses(v, disjunction) + (many ? ")\n" : "\n")
                           : in_parentheses(v, binary) + " if " + in_parentheses(c, disjunction) + " else\n            ";
           });
}

}  // namespace qk::emit
