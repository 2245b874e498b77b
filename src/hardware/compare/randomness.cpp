// SPDX-License-Identifier: Apache-2.0
#include "qk/compare/randomness.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "diagnose.hpp"

namespace qk::compare {
namespace {

constexpr double convincing = 1e-6;  ///< suspicions with a larger probability of an error are not raised

/// A value between two numbers: how far it lies above the one that is nearer to zero, in steps, and where the device went.
struct draw {
    std::size_t at;
    double fraction;
    bool away;
    bool to_even, half_away;  ///< does rounding half-even, or half away, go away from zero, too?
};

class random_tests {
  public:
    random_tests(const conversion& c, std::vector<draw> draws, std::size_t size)
        : bits_(c.how.stochastic_bits), draws_(std::move(draws)), size_(size) {}

    std::vector<random_suspicion> run() {
        fixed(
            "it truncates: no value goes away from zero", [](const draw& d) { return !d.away; }, [](double f) { return 1 - f; });
        fixed(
            "every value goes away from zero", [](const draw& d) { return d.away; }, [](double f) { return f; });
        fixed(
            "it rounds half-even", [](const draw& d) { return d.away == d.to_even; }, [](double f) { return std::max(f, 1 - f); });
        fixed(
            "it rounds half-away", [](const draw& d) { return d.away == d.half_away; }, [](double f) { return std::max(f, 1 - f); });
        if (found_.empty()) {
            short_words();
            shared_words();
            repeated_words();
            bias();
        }
        for (random_suspicion& s : found_) s.error = std::min(1.0, s.error * static_cast<double>(tests_));
        std::erase_if(found_, [](const random_suspicion& s) { return s.error > convincing; });
        return found_;
    }

  private:
    void raise(std::string sentence, double error) { found_.push_back({std::move(sentence), error}); }

    /// Raises a suspicion where every value is rounded as `same` says, which has probability(fraction) by chance.
    template <class Same, class Probability>
    void fixed(const char* sentence, Same same, Probability probability) {
        ++tests_;
        double log = 0;
        for (const draw& d : draws_) {
            if (!same(d)) return;
            log += std::log(std::max(probability(d.fraction), 1e-300));
        }
        if (!draws_.empty() && std::exp(log) < convincing) raise(sentence, std::exp(log));
    }
    void bias() {
        ++tests_;
        double sum = 0, variance = 0, away = 0;
        for (const draw& d : draws_) {
            sum += d.fraction;
            variance += d.fraction * (1 - d.fraction);
            away += d.away ? 1 : 0;
        }
        if (variance == 0) return;
        const double error = std::erfc(std::fabs(away - sum) / std::sqrt(2 * variance));
        if (error > convincing) return;
        char text[160];
        std::snprintf(text, sizeof text, "its random words are biased: %.2f %% of the values go away from zero where %.2f %% should",
                      100 * away / static_cast<double>(draws_.size()), 100 * sum / static_cast<double>(draws_.size()));
        raise(text, error);
    }
    /// Words of n bits never round up what lies less than 2^-n of a step above a number.
    void short_words() {
        for (int n = 1; n < std::min(bits_, 24); ++n) {
            ++tests_;
            double log = 0;
            bool possible = true;
            for (const draw& d : draws_) {
                if (d.fraction >= std::ldexp(1.0, -n)) continue;
                possible = possible && !d.away;
                log += std::log1p(-d.fraction);
            }
            if (!possible) continue;
            if (std::exp(log) < convincing)
                raise("its random words have " + std::to_string(n) + (n == 1 ? " bit" : " bits") + ": what lies less than 2^-" +
                          std::to_string(n) + " of a step above a number never goes up",
                      std::exp(log));
            return;
        }
    }
    /// With one word for both, the value that lies higher above its number goes up if the other does.
    static bool same_word_possible(const draw& a, const draw& b) {
        const draw &low = a.fraction < b.fraction ? a : b, &high = a.fraction < b.fraction ? b : a;
        return !(low.away && !high.away);
    }
    /// Returns the log of the probability that values `distance` apart look as if they shared a word, or 1 if some do not. Pairs stand in
    /// groups of 2 * distance values, so that none shares a value with another.
    double log_of_pairs(std::size_t distance) const {
        double log = 0;
        for (std::size_t i = 0; i < draws_.size(); ++i) {
            const draw& a = draws_[i];
            if (a.at % (2 * distance) >= distance) continue;
            const auto b = std::lower_bound(draws_.begin() + static_cast<std::ptrdiff_t>(i), draws_.end(), a.at + distance,
                                            [](const draw& d, std::size_t at) { return d.at < at; });
            if (b == draws_.end() || b->at != a.at + distance) continue;
            if (!same_word_possible(a, *b)) return 1;
            log += std::log1p(-std::min(a.fraction, b->fraction) * (1 - std::max(a.fraction, b->fraction)));
        }
        return log;
    }
    void shared_words() {
        std::size_t lanes = 1;
        double error = 1;
        for (std::size_t distance = 1; distance <= 64; distance *= 2) {
            ++tests_;
            const double log = log_of_pairs(distance);
            if (log > 0 || std::exp(log) > convincing) break;
            lanes = 2 * distance, error = std::exp(log);
        }
        if (lanes != 1) raise(std::to_string(lanes) + " neighbouring values share a random word", error), lanes_ = lanes;
    }
    void repeated_words() {
        for (std::size_t period = lanes_ == 1 ? 2 : 2 * lanes_; period <= std::min<std::size_t>(size_ / 2, 70000); ++period) {
            ++tests_;
            const double log = log_of_pairs(period);
            if (log > 0 || std::exp(log) > convincing * 1e-6) continue;
            raise("its random words repeat after " + std::to_string(period), std::exp(log));
            return;
        }
    }

    int bits_;
    std::vector<draw> draws_;
    std::size_t size_, lanes_ = 1, tests_ = 0;
    std::vector<random_suspicion> found_;
};

}  // namespace

random_report examine_randomness(const conversion& c, std::span<const float> x, std::span<const float> device) {
    random_report r;
    r.values = x.size();
    const std::vector<float> down = rounded(c, rounding::down, x), up = rounded(c, rounding::up, x),
                             even = rounded(c, rounding::half_even, x), half = rounded(c, rounding::half_away, x);
    std::vector<draw> draws;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const bool negative = std::signbit(x[i]);
        const double near = std::fabs(static_cast<double>(negative ? up[i] : down[i])),
                     far = std::fabs(static_cast<double>(negative ? down[i] : up[i]));
        if (!(near < far) || !std::isfinite(far)) {
            r.elsewhere += !same_value(device[i], down[i]);
            continue;
        }
        const double there = std::fabs(static_cast<double>(device[i]));
        const bool same_sign = device[i] == 0 || std::signbit(device[i]) == negative;
        if (!same_sign || (there != near && there != far)) {
            ++r.elsewhere;
            continue;
        }
        const auto away_by = [&](float y) { return std::fabs(static_cast<double>(y)) == far; };
        const double fraction = (std::fabs(static_cast<double>(x[i])) - near) / (far - near);
        draws.push_back({i, fraction, there == far, away_by(even[i]), away_by(half[i])});
        r.away += there == far;
        r.expected_away += fraction;
    }
    r.between = draws.size();
    r.found = random_tests(c, std::move(draws), x.size()).run();
    return r;
}

std::string to_text(const random_report& r) {
    char line[240];
    std::string s;
    for (const random_suspicion& k : r.found) {
        std::snprintf(line, sizeof line, " (by chance with probability %.2g)\n", k.error);
        s += k.sentence + line;
    }
    if (r.elsewhere != 0)
        s += std::to_string(r.elsewhere) + " of " + std::to_string(r.values) +
             " results are neither of the two numbers beside their value\n";
    if (s.empty()) s = "nothing tells it from stochastic rounding\n";
    std::snprintf(line, sizeof line, "%zu of %zu values lie between two numbers; %zu went away from zero, where %.1f would on average\n",
                  r.between, r.values, r.away, r.expected_away);
    return s + line;
}

}  // namespace qk::compare
