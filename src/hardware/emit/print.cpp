// SPDX-License-Identifier: Apache-2.0
// Prints a circuit as C99, SystemVerilog and Python. A word is an unsigned number below 2^width in each: C and Python take what lies above
// away where a sum or a shift can reach it, and SystemVerilog has words of exactly that width on both sides of every operator.
#include <algorithm>
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
        case gate::invert: return n.width > 1;
        default: return false;
    }
}

/// What the three languages share: operators and parentheses.
class printer {
  public:
    virtual ~printer() = default;
    text print(const node& n) const {
        switch (n.what) {
            case gate::constant: return {constant(n.value, n.width)};
            case gate::name: return {n.name};
            case gate::bits: return bits(n);
            case gate::join: return join(n);
            case gate::extend: return extend(n);
            case gate::lookup: return lookup(n);
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
    virtual std::string constant(std::uint64_t v, int width) const = 0;
    virtual text bits(const node& n) const = 0;
    virtual text join(const node& n) const = 0;
    virtual text extend(const node& n) const = 0;
    virtual text lookup(const node& n) const = 0;
    virtual text choose(const node& n) const = 0;
    /// Takes away what lies beyond the word's width.
    virtual text limited(const node& n, text t) const = 0;
    /// Returns an operand of arithmetic.
    virtual std::string number(const node& n) const { return in_parentheses(print(n)); }
    virtual void check_shift(const node&) const {}

    std::string operand(const node& n) const { return in_parentheses(print(n)); }

  private:
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
    static const char* type(int width) {
        if (width > 64) throw std::logic_error("C has no word of " + std::to_string(width) + " bits");
        return width > 32 ? "uint64_t" : "uint32_t";
    }

  protected:
    std::string constant(std::uint64_t v, int width) const override {
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
    std::string wide(const node& n, int width) const {
        if (n.what == gate::constant) return constant(n.value, width);
        return width > 32 && n.width <= 32 ? "(uint64_t)" + operand(n) : number(n);
    }
};

class sv_printer : public printer {
  public:
    sv_printer() : printer({"!", " && ", " || "}) {}
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
        return {in_parentheses(t) + " & " + constant(ones(n.width), n.width), binary};
    }
    text bits(const node& n) const override {
        const node& of = child(n, 0);
        text t = n.value == 0 ? text{of.name} : text{of.name + " >> " + std::to_string(n.value), binary};
        if (static_cast<int>(n.value) + n.width < of.width) t = {in_parentheses(t) + " & " + constant(ones(n.width), n.width), binary};
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

}  // namespace

std::string in_c(const function& f) {
    const c_printer p;
    std::string s = f.comment.empty() ? "" : "/* " + f.comment + " */\n";
    for (const table_of_words& t : f.tables)
        s += "static const uint32_t " + t.name + "[" + std::to_string(t.words.size()) + "] = {" + table_rows(t, "0x", "u", false) + "};\n";
    s += std::string(c_printer::type(f.result.width())) + " " + f.name + "(";
    for (const word& i : f.inputs)
        s += (&i == &f.inputs.front() ? "" : ", ") + std::string(c_printer::type(i.width())) + " " + i.get()->name;
    s += ")\n{\n";
    for (const definition& d : f.lines) {
        const node& n = *d.value.get();
        s +=
            with_comment("    const " + std::string(c_printer::type(n.width)) + " " + d.name + " = " + p.print(n).s + ";", d.comment, "//");
    }
    for (const word& i : f.inputs) {  // an input that a format does not ask
        bool asked = false;
        const auto ask = [&](const auto& self, const node& n) -> void {
            asked = asked || (n.what == gate::name && n.name == i.get()->name);
            for (const tree& t : n.of) self(self, *t);
        };
        for (const definition& d : f.lines) ask(ask, *d.value.get());
        ask(ask, *f.result.get());
        if (!asked) s += "    (void)" + i.get()->name + ";\n";
    }
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
    for (const word& i : f.inputs)
        s += (&i == &f.inputs.front() ? "input " : ", input ") + sv_printer::type(i.width()) + " " + i.get()->name;
    s += ");\n";
    std::vector<std::pair<int, std::string>> by_width;  // one declaration for all words of a width
    for (const definition& d : f.lines) {
        const auto same = std::find_if(by_width.begin(), by_width.end(), [&](const auto& w) { return w.first == d.value.width(); });
        if (same == by_width.end()) by_width.emplace_back(d.value.width(), d.name);
        else same->second += ", " + d.name;
    }
    for (const auto& [width, names] : by_width) s += "  " + sv_printer::type(width) + " " + names + ";\n";
    for (const definition& d : f.lines) s += with_comment("  " + d.name + " = " + p.print(*d.value.get()).s + ";", d.comment, "//");
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
    for (const word& i : f.inputs) s += (&i == &f.inputs.front() ? "" : ", ") + i.get()->name;
    s += "):\n";
    if (!f.comment.empty()) s += "    \"\"\"" + f.comment + "\"\"\"\n";
    for (const definition& d : f.lines) s += with_comment("    " + d.name + " = " + p.print(*d.value.get()).s, d.comment, "#");
    const bool many = f.result.get()->what == gate::choose;
    return s + "    return " + (many ? "(" : "") + cascade(*f.result.get(), p, [many](const text& c, const text& v, bool last) {
               return last ? in_parentheses(v, disjunction) + (many ? ")\n" : "\n")
                           : in_parentheses(v, binary) + " if " + in_parentheses(c, disjunction) + " else\n            ";
           });
}

}  // namespace qk::emit
