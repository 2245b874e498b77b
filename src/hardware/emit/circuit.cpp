// SPDX-License-Identifier: Apache-2.0
#include "circuit.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <stdexcept>

namespace qk::emit {
namespace {

constexpr std::uint64_t unknown = ~std::uint64_t{0};

word made(gate what, int width, std::uint64_t largest, std::vector<word> of) {
    node n{what, width, std::min(largest, ones(width)), 0, {}, {}};
    for (word& w : of) n.of.push_back(w.get());
    return word(std::make_shared<const node>(std::move(n)));
}
word truth(bool yes) { return constant(yes ? 1 : 0, 1); }
word compared(gate what, const word& a, const word& b) { return made(what, 1, 1, {a, b}); }

std::uint64_t value(const word& w) { return w.get()->value; }
bool constants(const word& a, const word& b) { return a.is_constant() && b.is_constant() && a.width() <= 64; }
void same_width(const word& a, const word& b) {
    if (a.width() != b.width())
        throw std::logic_error("a gate with words of " + std::to_string(a.width()) + " and " + std::to_string(b.width()) + " bits");
}
/// Returns the largest value of a word of the same number of significant bits.
std::uint64_t filled(std::uint64_t v) { return v == 0 ? 0 : ones(static_cast<int>(std::bit_width(v))); }

void collect(const tree& t, std::set<std::string>& names) {
    if (t->what == gate::name || t->what == gate::lookup || t->what == gate::element) names.insert(t->name);
    for (const tree& child : t->of) collect(child, names);
}

/// Notes which bits of names a tree asks.
void ask(const tree& t, std::map<std::string, std::uint64_t>& asked) {
    if (t->what == gate::name) asked[t->name] = ~std::uint64_t{0};
    if (t->what == gate::bits) asked[t->of[0]->name] |= t->value < 64 ? ones(t->width) << t->value : 0;
    else
        for (const tree& child : t->of) ask(child, asked);
}

}  // namespace

int width_of(std::uint64_t v) { return v == 0 ? 1 : static_cast<int>(std::bit_width(v)); }

word constant(std::uint64_t v, int width) {
    if (v > ones(width)) throw std::logic_error("a constant that its word does not hold");
    return word(std::make_shared<const node>(node{gate::constant, width, v, v, {}, {}}));
}

word extend(const word& a, int width) {
    if (a.width() == width) return a;
    if (a.width() > width) throw std::logic_error("a word is not extended to fewer bits");
    return a.is_constant() ? constant(value(a), width) : made(gate::extend, width, a.width() > 64 ? unknown : a.largest(), {a});
}

word bits(const word& a, int from, int width) {
    if (from == 0 && width == a.width()) return a;
    if (a.is_constant()) return constant((value(a) >> from) & ones(width), width);
    if (a.get()->what != gate::name || from + width > a.width())
        throw std::logic_error("bits are taken of names alone, and of bits that they have");
    node n{
        gate::bits, width,    a.width() > 64 ? ones(width) : std::min(a.largest() >> from, ones(width)), static_cast<std::uint64_t>(from),
        {},         {a.get()}};
    return word(std::make_shared<const node>(std::move(n)));
}

word join(const word& high, const word& low) {
    const int width = high.width() + low.width();
    if (constants(high, low) && width <= 64) return constant(value(high) << low.width() | value(low), width);
    if (high.is(0)) return extend(low, width);
    return made(gate::join, width, width > 64 ? unknown : high.largest() << low.width() | filled(low.largest()), {high, low});
}

word choose(const word& condition, const word& yes, const word& no) {
    same_width(yes, no);
    if (condition.is_constant()) return value(condition) != 0 ? yes : no;
    if (constants(yes, no) && value(yes) == value(no)) return yes;
    if (yes.width() == 1 && yes.is(1) && no.is(0)) return condition;
    if (yes.width() == 1 && yes.is(0) && no.is(1)) return !condition;
    return made(gate::choose, yes.width(), std::max(yes.largest(), no.largest()), {condition, yes, no});
}

word operator!(const word& a) {
    if (a.width() != 1)
        return a.is_constant() ? constant(~value(a) & ones(a.width()), a.width()) : made(gate::invert, a.width(), unknown, {a});
    if (a.is_constant()) return truth(value(a) == 0);
    const node& n = *a.get();
    if (n.what == gate::invert) return word(n.of[0]);
    if (n.what == gate::equal) return compared(gate::unequal, word(n.of[0]), word(n.of[1]));
    if (n.what == gate::unequal) return compared(gate::equal, word(n.of[0]), word(n.of[1]));
    return made(gate::invert, 1, 1, {a});
}

word operator&(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant(value(a) & value(b), a.width());
    if (a.is(0) || b.is(0)) return constant(0, a.width());
    if (a.width() <= 64 && a.is(ones(a.width()))) return b;
    if (b.width() <= 64 && b.is(ones(b.width()))) return a;
    return made(gate::both, a.width(), std::min(filled(a.largest()), filled(b.largest())), {a, b});
}
word operator|(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant(value(a) | value(b), a.width());
    if (a.is(0)) return b;
    if (b.is(0)) return a;
    if (a.width() == 1 && (a.is(1) || b.is(1))) return truth(true);
    return made(gate::either, a.width(), filled(a.largest() | b.largest()), {a, b});
}
word operator^(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant(value(a) ^ value(b), a.width());
    if (a.is(0)) return b;
    if (b.is(0)) return a;
    if (a.width() == 1 && a.is(1)) return !b;
    if (a.width() == 1 && b.is(1)) return !a;
    return made(gate::differ, a.width(), filled(a.largest() | b.largest()), {a, b});
}

word operator+(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant((value(a) + value(b)) & ones(a.width()), a.width());
    if (a.is(0)) return b;
    if (b.is(0)) return a;
    const std::uint64_t most = a.largest() + b.largest();
    return made(gate::sum, a.width(), most < a.largest() || most > ones(a.width()) ? unknown : most, {a, b});
}
word operator*(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b) && a.width() <= 32) return constant((value(a) * value(b)) & ones(a.width()), a.width());
    if (a.is(0) || b.is(0)) return constant(0, a.width());
    if (a.is(1)) return b;
    if (b.is(1)) return a;
    const bool fits = width_of(a.largest()) + width_of(b.largest()) <= 64 && a.width() <= 64;
    return made(gate::product, a.width(), fits ? a.largest() * b.largest() : unknown, {a, b});
}
word operator-(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant((value(a) - value(b)) & ones(a.width()), a.width());
    if (b.is(0)) return a;
    return made(gate::difference, a.width(), unknown, {a, b});
}
word lessened(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return constant(value(a) - value(b), a.width());
    if (b.is(0)) return a;
    node n{gate::difference,  a.width(), b.is_constant() ? a.largest() - value(b) : a.largest(), 1, {},
           {a.get(), b.get()}};  // value 1: no borrow
    return word(std::make_shared<const node>(std::move(n)));
}

word bounded(const word& a, std::uint64_t most) {
    if (a.largest() <= most) return a;
    node n = *a.get();
    n.largest = most;
    return word(std::make_shared<const node>(std::move(n)));
}

word operator<<(const word& a, const word& by) {
    if (constants(a, by) && value(by) < 64) return constant((value(a) << value(by)) & ones(a.width()), a.width());
    if (by.is(0) || a.is(0)) return a;
    const auto most = static_cast<int>(std::min<std::uint64_t>(by.largest(), 64));
    const bool fits = width_of(a.largest()) + most <= 64 && a.largest() << most <= ones(a.width());
    return made(gate::left, a.width(), fits ? a.largest() << most : unknown, {a, by});
}
word operator>>(const word& a, const word& by) {
    if (constants(a, by)) return constant(value(by) < 64 ? value(a) >> value(by) : 0, a.width());
    if (by.is(0) || a.is(0)) return a;
    if (by.is_constant() && a.width() <= 64) return made(gate::right, a.width(), value(by) < 64 ? a.largest() >> value(by) : 0, {a, by});
    return made(gate::right, a.width(), a.largest(), {a, by});
}

word operator==(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return truth(value(a) == value(b));
    if (b.is_constant() && value(b) > a.largest()) return truth(false);
    if (a.width() == 1 && b.is_constant()) return value(b) != 0 ? a : !a;
    return compared(gate::equal, a, b);
}
word operator!=(const word& a, const word& b) { return !(a == b); }
word operator<(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return truth(value(a) < value(b));
    if (b.is_constant() && a.largest() < value(b)) return truth(true);
    if (b.is(0)) return truth(false);
    return compared(gate::less, a, b);
}
word operator>=(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return truth(value(a) >= value(b));
    if (b.is_constant() && a.largest() < value(b)) return truth(false);
    if (b.is(0)) return truth(true);
    return compared(gate::at_least, a, b);
}
word operator>(const word& a, const word& b) {
    same_width(a, b);
    if (constants(a, b)) return truth(value(a) > value(b));
    if (b.is_constant() && a.largest() <= value(b)) return truth(false);
    return compared(gate::above, a, b);
}

word named_word(const std::string& as, int width, std::uint64_t largest) {
    return word(std::make_shared<const node>(node{gate::name, width, std::min(largest, ones(width)), 0, as, {}}));
}
word call(const std::string& function, int width, const std::vector<word>& of) {
    node n{gate::call, width, ones(width), 0, function, {}};
    for (const word& w : of) n.of.push_back(w.get());
    return word(std::make_shared<const node>(std::move(n)));
}
word block_at(const word& place, std::uint64_t size) {
    if (place.is_constant()) return constant(value(place) / size, place.width());
    return made(gate::quotient, place.width(), place.largest() / size, {place, constant(size, place.width())});
}

word function::input(const std::string& as, int width) {
    inputs.emplace_back(std::make_shared<const node>(node{gate::name, width, ones(width), 0, as, {}}));
    return inputs.back();
}

std::string function::free_name(const std::string& as) const {
    const auto taken = [this](const std::string& n) {
        return std::any_of(inputs.begin(), inputs.end(), [&](const word& i) { return i.get()->name == n; }) ||
               std::any_of(arrays.begin(), arrays.end(), [&](const array_of_words& a) { return a.name == n; }) ||
               std::any_of(lines.begin(), lines.end(), [&](const definition& d) { return d.name == n; });
    };
    std::string other = as;
    for (int n = 2; taken(other); ++n) other = as + "_again" + (n == 2 ? "" : std::to_string(n));
    return other;
}

word function::let(const std::string& as, const word& value, const std::string& why) {
    if (value.is_constant() || value.get()->what == gate::name) return value;
    const std::string own = free_name(as);
    lines.push_back({own, value, why, line::define, {}});
    return named_word(own, value.width(), value.largest());
}

std::string function::input_array(const std::string& as, int width, std::uint64_t count) {
    arrays.push_back({as, width, count});
    return as;
}
word function::variable(const std::string& as, const word& begins) {
    const std::string own = free_name(as);
    lines.push_back({own, begins, {}, line::variable, {}});
    return named_word(own, begins.width(), unknown);
}
void function::assign(const word& variable, const word& value, const std::string& why) {
    same_width(variable, value);
    lines.push_back({variable.get()->name, value, why, line::assign, {}});
}
std::string function::array(const std::string& as, int width, std::uint64_t count) {
    const std::string own = free_name(as);
    lines.push_back({own, constant(0, width), {}, line::array, {}, count});
    return own;
}
std::string function::returned_array(const std::string& as, int width) { return returned = array(as, width, 0); }
void function::returns(std::uint64_t count) {
    const auto own = std::find_if(lines.begin(), lines.end(), [&](const definition& d) { return d.name == returned; });
    own->count = count;
    result = named_word(returned, own->value.width() * static_cast<int>(count), unknown);
}
void function::store(const std::string& array, const word& place, const word& value) {
    lines.push_back({array, value, {}, line::store, place});
}
word function::at(const std::string& array, const word& place) const {
    int width = 0;
    for (const array_of_words& a : arrays) width = a.name == array ? a.width : width;
    for (const definition& d : lines) width = d.what == line::array && d.name == array ? d.value.width() : width;
    return word(std::make_shared<const node>(node{gate::element, width, ones(width), 0, array, {place.get()}}));
}
word function::loop(const std::string& as, const word& first, const word& end, std::uint64_t step) {
    int open = 0;  // loops around this one
    bool inside = false;
    for (auto d = lines.rbegin(); d != lines.rend(); ++d) {
        open += d->what == line::end ? 1 : 0;
        if (d->what == line::loop && open-- == 0) open = 0, inside = inside || d->name == as;
    }
    const bool known = std::any_of(lines.begin(), lines.end(), [&](const definition& d) { return d.what == line::loop && d.name == as; });
    const std::string own = known && !inside ? as : free_name(as);  // a loop that ended has given its name back
    lines.push_back({own, first, {}, line::loop, end, step});
    return named_word(own, first.width(), unknown);
}
void function::end_loop() { lines.push_back({"", constant(0, 1), {}, line::end, {}}); }

word function::lookup(const std::string& table, const word& index) const {
    for (const table_of_words& t : tables) {
        if (t.name == table)
            return word(std::make_shared<const node>(node{gate::lookup, t.width, ones(t.width), t.words.size(), table, {index.get()}}));
    }
    throw std::logic_error("no table " + table);
}

void drop_unused(function& f) {
    std::set<std::string> used;
    collect(f.result.get(), used);
    for (const definition& d : f.lines) {  // what happens in loops stays
        if (d.what == line::define || d.what == line::end) continue;
        collect(d.value.get(), used);
        if (d.what == line::store || d.what == line::loop) collect(d.place.get(), used);
    }
    for (std::size_t k = f.lines.size(); k-- > 0;) {
        if (f.lines[k].what != line::define || used.contains(f.lines[k].name)) collect(f.lines[k].value.get(), used);
        else f.lines.erase(f.lines.begin() + static_cast<std::ptrdiff_t>(k));
    }
    std::map<std::string, std::uint64_t> asked;
    ask(f.result.get(), asked);
    for (const definition& d : f.lines) {
        ask(d.value.get(), asked);
        if (d.place.get() != nullptr) ask(d.place.get(), asked);
    }
    const auto part = [&](const std::string& name, int width) { return width > 64 || (~asked[name] & ones(width)) != 0; };
    f.partial = false;
    for (const word& i : f.inputs) f.partial = f.partial || part(i.get()->name, i.width());
    for (const definition& d : f.lines)
        f.partial = f.partial || ((d.what == line::define || d.what == line::variable) && part(d.name, d.value.width()));
    std::erase_if(f.tables, [&](const table_of_words& t) { return !used.contains(t.name); });
}

}  // namespace qk::emit
