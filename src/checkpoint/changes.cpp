// SPDX-License-Identifier: Apache-2.0
// What a conversion cost: sums over each weight while it is made, and the line at the end.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "remade.hpp"

namespace qk::checkpoint {
namespace {

/// Sums of a stretch of values in single precision, some at a time: quick, and near enough for a stretch that is short.
struct stretch_sums {
    float power = 0, error = 0;
    bool differs = false;
};
constexpr std::size_t stretch = 1024;

stretch_sums sums_of(const float* was, const float* is, std::size_t n, float factor) {
    constexpr std::size_t lanes = 16;
    std::array<float, lanes> power{}, error{};
    std::array<std::uint32_t, lanes> differs{};
    const auto add = [&](std::size_t lane, float x, float y) {
        const float d = x - y;
        power[lane] += x * x, error[lane] += d * d, differs[lane] |= x != y;
    };
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes)
        for (std::size_t k = 0; k < lanes; ++k) add(k, was[i + k], is[i + k] * factor);
    for (; i < n; ++i) add(0, was[i], is[i] * factor);
    stretch_sums s;
    for (std::size_t k = 0; k < lanes; ++k) s.power += power[k], s.error += error[k], s.differs = s.differs || differs[k] != 0;
    return s;
}

/// The same in double precision, where single has not the range or a value is not finite.
void add_slowly(weight_change& c, const float* was, const float* is, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(was[i]), y = static_cast<double>(is[i] * factor), d = x - y;
        if (!std::isfinite(x)) {
            c.differs = c.differs || (std::isnan(x) ? !std::isnan(y) : x != y);
            continue;
        }
        const bool lost = !std::isfinite(y);
        c.power += x * x, c.error += lost ? x * x : d * d, c.not_finite += lost, c.differs = c.differs || d != 0;
    }
}

}  // namespace

double weight_change::decibels() const {
    if (!differs) return std::numeric_limits<double>::infinity();
    return error == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(power / error);
}

void add_difference(weight_change& change, std::span<const float> was, std::span<const float> is, float factor) {
    for (std::size_t i = 0; i < was.size(); i += stretch) {
        const std::size_t n = std::min(stretch, was.size() - i);
        const stretch_sums s = sums_of(was.data() + i, is.data() + i, n, factor);
        const bool in_range = s.power < 1e30f && s.error < 1e30f && (!s.differs || (s.power > 1e-20f && s.error > 1e-30f));
        if (!in_range) add_slowly(change, was.data() + i, is.data() + i, n, factor);
        else {
            change.power += static_cast<double>(s.power), change.error += static_cast<double>(s.error);
            change.differs = change.differs || s.differs;
        }
    }
}

void check_lossless(const weight_change& change, bool lossless, const std::string& why) {
    if (!lossless || change.without_loss()) return;
    char cost[32];
    std::snprintf(cost, sizeof cost, "%.2f dB", change.decibels());
    throw error(change.name + ": " + change.from + " does not become " + change.to + " without loss (" + cost + ")" +
                (why.empty() ? "" : ": " + why) + "; --lossless refuses it");
}

change_summary summary_of(std::span<const weight_change> changes) {
    change_summary s;
    double sum = 0;
    for (const weight_change& c : changes) {
        ++s.weights, s.not_finite += c.not_finite;
        if (!c.measured) {
            ++s.unmeasured;
            continue;
        }
        if (c.without_loss()) ++s.without_loss;
        else if (c.how == weight_change::kind::rounded) ++s.rounded;
        else ++s.quantized;
        const double decibels = c.decibels();
        if (!std::isfinite(decibels)) continue;
        if (s.differing++ == 0 || decibels < s.worst_decibels) s.worst = c.name, s.worst_decibels = decibels;
        sum += decibels;
    }
    if (s.differing != 0) s.mean_decibels = sum / static_cast<double>(s.differing);
    return s;
}

std::string words_of(const change_summary& s) {
    const auto decibels = [](double d) {
        char text[32];
        std::snprintf(text, sizeof text, "%.2f dB", d);
        return std::string(text);
    };
    std::string line = std::to_string(s.weights) + (s.weights == 1 ? " weight: " : " weights: ") + std::to_string(s.without_loss) +
                       " without loss, " + std::to_string(s.rounded) + " rounded, " + std::to_string(s.quantized) + " quantized anew";
    if (s.unmeasured != 0) line += ", " + std::to_string(s.unmeasured) + " made by a run that was stopped and not measured";
    if (s.differing == 0) line += s.unmeasured == 0 ? "; no value differs" : "";
    else line += "; worst " + decibels(s.worst_decibels) + " (" + s.worst + "), mean " + decibels(s.mean_decibels);
    if (s.differing > s.rounded + s.quantized && s.differing != 0) line += ", which counts the rounding of readers where codes were moved";
    if (s.not_finite != 0) line += "; " + std::to_string(s.not_finite) + " finite values became Inf or NaN";
    return line;
}

}  // namespace qk::checkpoint
