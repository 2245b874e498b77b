// SPDX-License-Identifier: Apache-2.0
#include "dot_mistakes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "dot_operands.hpp"
#include "dot_questions.hpp"

namespace qk::compare {
namespace {

/// Returns the first of the accumulators that gives every answer to these questions. Most fail at one of the first.
std::optional<accumulator> first_that_fits(const dot_task& task, const std::vector<dot_case>& asked,
                                           const std::vector<answered_case>& cases, const std::vector<accumulator>& bases) {
    std::vector<std::optional<questions>> packed(asked.size());
    for (const accumulator& by : bases) {
        if (!check(by).empty() || !check_operands(task.a, task.b, by).empty()) continue;
        bool all = true;
        for (std::size_t k = 0; k < asked.size() && all; ++k) {
            if (!packed[k]) packed[k].emplace(task, asked[k]);
            for (std::size_t i = 0; i < packed[k]->size() && all; ++i) all = same_answer(task, by, packed[k]->answer(by, i), cases[k].d[i]);
        }
        if (all) return by;
    }
    return std::nullopt;
}

/// A mistake in what is asked: the unit answers another question rightly.
struct other_question {
    std::string sentence;
    std::function<void(dot_case&)> change;
};

std::vector<other_question> other_questions(const dot_task& task) {
    std::vector<other_question> all;
    const operand_codes a(task.a), b(task.b), c(is_integer_format(task.a) ? task.a : qk::format(task.c));
    if (task.has_c) all.push_back({"C is ignored", [none = no_addend(task)](dot_case& q) { std::fill(q.c.begin(), q.c.end(), none); }});
    if (task.has_c && !is_integer_format(task.a)) {
        all.push_back({"C is ignored, and the sum begins with +0", [](dot_case& q) { std::fill(q.c.begin(), q.c.end(), 0); }});
        all.push_back({"the sign of C is inverted", [sign = no_addend(task)](dot_case& q) {
                           for (std::uint64_t& v : q.c) v ^= sign;
                       }});
        all.push_back({"subnormal numbers of C are zero", [c, sign = no_addend(task)](dot_case& q) {
                           for (std::uint64_t& v : q.c)
                               if (c.decoded(v).subnormal) v &= sign;
                       }});
    }
    const auto flushed = [](const operand_codes& o, std::vector<std::uint64_t> dot_case::*part) {
        return [o, part](dot_case& q) {
            for (std::uint64_t& v : q.*part)
                if (const term t = o.decoded(v); t.subnormal) v = o.zero(t.negative());
        };
    };
    all.push_back({"subnormal numbers of a are zero, those of b are not", flushed(a, &dot_case::a)});
    all.push_back({"subnormal numbers of b are zero, those of a are not", flushed(b, &dot_case::b)});
    const auto without = [&](std::size_t from, std::size_t to) {
        return [from, to, zero = a.zero(), k = task.k](dot_case& q) {
            for (std::size_t i = 0; i < q.a.size(); ++i)
                if (i % k >= from && i % k < to) q.a[i] = zero;
        };
    };
    if (task.k > 1) {
        all.push_back({"the last product is left out", without(task.k - 1, task.k)});
        all.push_back({"the first product is left out", without(0, 1)});
        for (std::size_t n = 2; n <= task.k / 2 && n <= 32; n *= 2)
            all.push_back({"the last " + std::to_string(n) + " products are left out", without(task.k - n, task.k)});
    }
    return all;
}

/// Returns the float32 product of two elements; nullopt where it is none.
std::optional<float> product_of(const term& a, const term& b) {
    if (a.nan || b.nan || (a.infinite && b.zero()) || (b.infinite && a.zero())) return std::numeric_limits<float>::quiet_NaN();
    const bool negative = a.negative() != b.negative();
    if (a.infinite || b.infinite) return negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    if (std::abs(a.significand) >= 1 << 26 || std::abs(b.significand) >= 1 << 26) return std::nullopt;
    const double v = std::ldexp(static_cast<double>(a.significand * b.significand), a.exponent + b.exponent);
    const auto f = static_cast<float>(v);
    return static_cast<double>(f) == v ? std::optional(f) : std::nullopt;
}

/// The products of every question as float32 rows under a column of ones: a unit that changes products is one that is asked for others.
class product_cases {
  public:
    product_cases(const dot_task& task, const std::vector<answered_case>& cases) : task_(task) {
        task_.a = task_.b = fp32;
        const operand_codes of_a(task.a), of_b(task.b);
        if (of_a.block != 0 || of_b.block != 0) return;
        for (const answered_case& c : cases) {
            const auto [m, n, k] = c.asked->shape;
            dot_case q{{m * n, 1, k}, {}, std::vector<std::uint64_t>(k, std::bit_cast<std::uint32_t>(1.0f)), c.asked->c, {}, {}};
            for (std::size_t i = 0; i < m; ++i) {
                for (std::size_t j = 0; j < n; ++j) {
                    for (std::size_t l = 0; l < k; ++l) {
                        const term a = of_a.decoded(c.asked->a[i * k + l]), b = of_b.decoded(c.asked->b[l * n + j]);
                        const auto p = product_of(a, b);
                        if (!p) return;
                        const bool sign = (signed_zero(of_a, c.asked->a[i * k + l]) || a.negative()) !=
                                          (signed_zero(of_b, c.asked->b[l * n + j]) || b.negative());
                        q.a.push_back(std::bit_cast<std::uint32_t>(*p == 0 ? std::copysign(0.0f, sign ? -1.0f : 1.0f) : *p));
                        zero_.push_back(a.zero() || b.zero());
                    }
                }
            }
            rows_.push_back(std::move(q));
        }
        there_ = true;
    }
    bool there() const { return there_; }
    const dot_task& task() const { return task_; }
    /// Returns the cases with every product changed: change(product, one of its factors is zero).
    template <class Change>
    std::vector<dot_case> changed(Change change) const {
        std::vector<dot_case> all = rows_;
        std::size_t at = 0;
        for (dot_case& q : all)
            for (std::uint64_t& v : q.a)
                v = std::bit_cast<std::uint32_t>(change(std::bit_cast<float>(static_cast<std::uint32_t>(v)), zero_[at++] != 0));
        return all;
    }

  private:
    static bool signed_zero(const operand_codes& o, std::uint64_t code) { return code != 0 && code == o.zero(true); }
    dot_task task_;
    std::vector<dot_case> rows_;
    std::vector<char> zero_;
    bool there_ = false;
};

float cut_to(float p, int unit, bool down) {
    if (!std::isfinite(p)) return p;
    const double steps = std::ldexp(static_cast<double>(p), -unit);
    return static_cast<float>(std::ldexp(down ? std::floor(steps) : std::trunc(steps), unit));
}
float rounded_to(float p, int bits) {
    if (!std::isfinite(p) || p == 0) return p;
    const double step = std::ldexp(1.0, std::ilogb(p) - bits + 1);
    return static_cast<float>(std::nearbyint(static_cast<double>(p) / step) * step);
}

/// Sums of integers in registers that are narrower for a group than for the whole.
std::optional<std::string> narrow_groups(const dot_task& task, const std::vector<answered_case>& cases) {
    const operand_codes of_a(task.a), of_b(task.b);
    const auto held = [](std::int64_t v, int width, bool wraps) {
        const std::int64_t half = std::int64_t{1} << (width - 1);
        return wraps ? ((v + half) & (2 * half - 1)) - half : std::clamp(v, -half, half - 1);
    };
    for (std::size_t group = 2; group <= task.k; group *= 2) {
        for (int width = 30; width >= 9; --width) {
            for (const bool wraps : {true, false}) {
                bool all = true, matters = false;
                for (const answered_case& c : cases) {
                    const auto [m, n, k] = c.asked->shape;
                    for (std::size_t q = 0; q < m * n && all; ++q) {
                        std::int64_t sum = static_cast<std::int64_t>(c.asked->c[q]);
                        for (std::size_t g = 0; g < k; g += group) {
                            std::int64_t part = 0;
                            for (std::size_t l = g; l < std::min(k, g + group); ++l)
                                part += of_a.decoded(c.asked->a[q / n * k + l]).significand *
                                        of_b.decoded(c.asked->b[l * n + q % n]).significand;
                            const std::int64_t kept = held(part, width, wraps);
                            matters |= kept != part;
                            sum += kept;
                        }
                        all = ((static_cast<std::uint64_t>(sum) ^ c.d[q]) & 0xffffffffu) == 0;
                    }
                }
                if (all && matters)
                    return "the sum of each " + std::to_string(group) + " products " + (wraps ? "wraps" : "saturates") + " at " +
                           std::to_string(width) + " bits";
            }
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<explained_answers> find_dot_mistake(const dot_task& task, const std::vector<answered_case>& cases,
                                                  const std::vector<accumulator>& bases) {
    if (cases.empty() || bases.empty()) return std::nullopt;
    const std::uint64_t first = cases[0].d[0];
    if (std::all_of(cases.begin(), cases.end(), [&](const answered_case& c) {
            return std::all_of(c.d.begin(), c.d.end(), [&](std::uint64_t v) { return v == first; });
        }))
        return explained_answers{"every answer is the same, whatever the operands", bases[0]};
    const auto tried = [&](const dot_task& as, const std::string& sentence,
                           const std::vector<dot_case>& asked) -> std::optional<explained_answers> {
        if (const auto by = first_that_fits(as, asked, cases, bases)) return explained_answers{sentence, *by};
        return std::nullopt;
    };
    for (const other_question& other : other_questions(task)) {
        std::vector<dot_case> asked;
        for (const answered_case& c : cases) {
            asked.push_back(*c.asked);
            other.change(asked.back());
        }
        if (auto found = tried(task, other.sentence, asked)) return found;
    }
    if (is_integer_format(task.a)) {
        if (task.d_bits != 32) return std::nullopt;
        if (const auto sentence = narrow_groups(task, cases)) return explained_answers{*sentence, bases[0]};
        return std::nullopt;
    }
    const product_cases products(task, cases);
    if (!products.there()) return std::nullopt;
    if (auto found = tried(products.task(), "a factor of 0 gives 0, also where the other one is NaN or Inf",
                           products.changed([](float p, bool zero) { return zero ? p == p ? p : 0.0f : p; })))
        return found;
    for (int unit = -40; unit <= 0; ++unit) {
        for (const bool down : {false, true}) {
            if (auto found = tried(products.task(),
                                   std::string("products are cut to a unit of 2^") + std::to_string(unit) + (down ? ", downwards" : ""),
                                   products.changed([&](float p, bool) { return cut_to(p, unit, down); })))
                return found;
        }
    }
    for (int bits = 3; bits <= 16; ++bits) {
        if (auto found = tried(products.task(), "products are rounded to " + std::to_string(bits) + " significant bits",
                               products.changed([&](float p, bool) { return rounded_to(p, bits); })))
            return found;
    }
    return std::nullopt;
}

}  // namespace qk::compare
