// SPDX-License-Identifier: Apache-2.0
// Bins as a table that is filled once and then counted, and their names.
#include "qk/compare/bins.hpp"

#include <algorithm>
#include <initializer_list>

namespace qk::compare {
namespace {

std::uint64_t key_of(bin_kind kind, int a, int b, int c, int d) {
    const auto part = [](int v, int bits) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(v + (1 << (bits - 2)))); };
    return (((static_cast<std::uint64_t>(kind) << 18 | part(a, 18)) << 18 | part(b, 18)) << 8 | part(c, 8)) << 2 |
           static_cast<std::uint64_t>(d & 3);
}
std::size_t slot_of(std::uint64_t key, std::size_t slots) {
    return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> 32) & (slots - 1);
}

}  // namespace

void bin_table::grow() {
    slots_.assign(std::max<std::size_t>(256, 4 * slots_.size()), 0);
    for (std::size_t k = 0; k < keys_.size(); ++k) {
        std::size_t at = slot_of(keys_[k], slots_.size());
        while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = static_cast<std::uint32_t>(k + 1);
    }
}

void bin_table::hit(bin_kind kind, int a, int b, int c, int d) {
    const std::uint64_t key = key_of(kind, a, b, c, d);
    if (slots_.size() < 2 * keys_.size() + 2) grow();
    std::size_t at = slot_of(key, slots_.size());
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
        const std::size_t k = slots_[at] - 1;
        if (keys_[k] != key) continue;
        ++bins_[k].hits;
        return;
    }
    if (frozen_) return;
    bins_.push_back({kind, a, b, c, d, 0});
    keys_.push_back(key);
    stimuli_.push_back(case_);
    slots_[at] = static_cast<std::uint32_t>(bins_.size());
}

void bin_table::freeze() {
    for (bin& b : bins_) b.hits = 0;
    frozen_ = true;
}

const char* name_of(bin_kind k) {
    constexpr const char* names[] = {"inputs",
                                     "NaN payloads",
                                     "results",
                                     "binades of results",
                                     "rounding",
                                     "carries of rounding",
                                     "middles of a table",
                                     "largest by lane",
                                     "NaN by lane",
                                     "Inf by lane",
                                     "blocks of zeros",
                                     "scales",
                                     "codes",
                                     "codes by lane",
                                     "scale codes",
                                     "shift codes",
                                     "pairs",
                                     "distances",
                                     "distances of C",
                                     "cancellations",
                                     "carries of sums",
                                     "ties of sums",
                                     "sums",
                                     "bits of sums",
                                     "NaN, Inf and zero",
                                     "NaN and Inf by place",
                                     "lowest and highest codes",
                                     "subnormal operands",
                                     "scales of operands"};
    static_assert(std::size(names) == static_cast<std::size_t>(bin_kind::count));
    return names[static_cast<int>(k)];
}

namespace {

using std::to_string;

std::string choice(int k, std::initializer_list<const char*> words) {
    return k >= 0 && static_cast<std::size_t>(k) < words.size() ? words.begin()[k] : to_string(k);
}
std::string distance_text(int d, const char* of) {
    return d == 0 ? std::string("beside ") + of : to_string(std::abs(d)) + (d < 0 ? " binades below " : " binades above ") + of;
}

std::string rounding_name(const bin& b) {
    const int pattern = b.b >> 2;
    const std::string bit = to_string(b.c);
    return "shift " + to_string(b.a) + ((b.b & 2) != 0 ? ", subnormal: " : ": ") +
           (pattern == 0   ? "a tie"
            : pattern == 1 ? "a tie and sticky bit " + bit + " alone"
            : pattern == 2 ? "a tie less sticky bit " + bit
                           : "sticky bit " + bit + " alone") +
           ", above an " + ((b.b & 1) != 0 ? "odd" : "even") + " number";
}
std::string converter_name(const bin& b) {
    switch (b.kind) {
        case bin_kind::input: return choice(b.a, {"zero", "a subnormal float32", "a normal number", "the largest float32", "Inf"});
        case bin_kind::nan_payload:
            return "NaN with payload " + choice(b.a, {"above the cut alone", "below the cut alone", "of all ones",
                                                      "in the lowest bit alone", "in the highest bit alone", "on both sides of the cut"});
        case bin_kind::result:
            return "the result is " +
                   choice(b.a, {"the zero of a zero", "zero, not exact", "subnormal", "the largest number", "Inf", "NaN"});
        case bin_kind::binade: return "the result's element lies in the binade of 2^" + to_string(b.a);
        case bin_kind::rounding: return rounding_name(b);
        case bin_kind::carry:
            return choice(b.b, {"just below a tie", "a tie", "just above a tie"}) + ", rounding up " +
                   choice(b.a,
                          {"carries into the exponent", "makes a normal number", "makes the largest number", "passes the largest number"});
        case bin_kind::between:
            return choice(b.b, {"below", "at", "above"}) + " the middle of numbers " + to_string(b.a) + " and " + to_string(b.a + 1);
        case bin_kind::largest_at: return "the block's largest value is in lane " + to_string(b.a);
        case bin_kind::nan_at: return "NaN in lane " + to_string(b.a);
        case bin_kind::infinity_at: return "Inf in lane " + to_string(b.a);
        case bin_kind::zeros: return "a block of zeros";
        case bin_kind::scale:
            return b.b == scale_as_exponent ? "the block's scale is 2^" + to_string(b.a)
                                            : "scale " + to_string(b.a) + " of those that occur";
        default: return {};
    }
}
std::string decoder_name(const bin& b) {
    switch (b.kind) {
        case bin_kind::code: return "code " + to_string(b.a) + choice(b.b, {"", ", mantissa 0", ", mantissa of ones"});
        case bin_kind::code_at: return "code " + to_string(b.b) + " in lane " + to_string(b.a);
        case bin_kind::scale_code: return "scale code " + to_string(b.a) + choice(b.b, {"", " with a zero", " with the largest element"});
        case bin_kind::shift_code: return "shift " + to_string(b.a) + " is " + to_string(b.b);
        case bin_kind::pair: return "codes " + to_string(b.a) + " and " + to_string(b.b);
        default: return {};
    }
}
std::string dot_name(const bin& b) {
    switch (b.kind) {
        case bin_kind::distance: return "product " + to_string(b.a) + ": " + distance_text(-b.b, "the largest");
        case bin_kind::addend: return "C: " + distance_text(b.a, "the largest product");
        case bin_kind::cancels: return b.b != 0 ? "the terms cancel" : "the terms cancel by " + to_string(b.a) + " bits";
        case bin_kind::carries: return "the sum carries by " + to_string(b.a) + " bits";
        case bin_kind::sum_tie:
            return std::string("the sum is ") + choice(b.a, {"just below a tie", "a tie", "just above a tie"}) +
                   " of the result, above an " + (b.b != 0 ? "odd" : "even") + " number";
        case bin_kind::sum: return "the sum is " + choice(b.a, {"zero", "subnormal", "a normal number", "beyond the largest number"});
        case bin_kind::whole_sum: return "the sum has " + to_string(b.a) + " bits";
        case bin_kind::special:
            return choice(b.a, {"NaN meets zeros alone", "Inf meets zeros alone", "Inf less Inf", "NaN among products",
                                "Inf in C against one among the products", "NaN in C", "Inf"}) +
                   choice(b.b, {"", ", in a", ", in b"});
        case bin_kind::special_at: return choice(b.b, {"NaN of a", "NaN of b", "Inf of a", "Inf of b"}) + " in place " + to_string(b.a);
        case bin_kind::ends:
            return "a: " + choice(b.a, {"all lowest codes", "all highest codes", "both ends"}) +
                   ", b: " + choice(b.b, {"all lowest codes", "all highest codes", "both ends"});
        case bin_kind::subnormal:
            return choice(b.a, {"", "subnormal numbers in a", "subnormal numbers in b", "subnormal numbers in a and b", "C is subnormal"});
        case bin_kind::operand_scale: return std::string("scale code ") + to_string(b.b) + " of " + choice(b.a, {"a", "b"});
        default: return {};
    }
}

}  // namespace

std::string name_of(const bin& b) {
    std::string s = b.kind <= bin_kind::scale ? converter_name(b) : b.kind <= bin_kind::pair ? decoder_name(b) : dot_name(b);
    constexpr bin_kind signless[] = {bin_kind::between, bin_kind::nan_at, bin_kind::zeros, bin_kind::scale};
    const bool has_sign =
        (b.kind <= bin_kind::scale && std::find(std::begin(signless), std::end(signless), b.kind) == std::end(signless)) ||
        b.kind == bin_kind::sum_tie || b.kind == bin_kind::sum || b.kind == bin_kind::whole_sum;
    if (has_sign) s += b.d != 0 ? ", negative" : ", positive";
    return s;
}

}  // namespace qk::compare
