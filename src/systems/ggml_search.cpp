// SPDX-License-Identifier: Apache-2.0
// ggml's searches for scales. The order of every float operation is ggml's: another order gives other codes for a value in some thousands.
#include <algorithm>

#include "ggml_blocks.hpp"

namespace qk::systems::ggml {
namespace {

/// Below it a group counts as zero.
constexpr float no_group = 1e-15f;

struct fit {
    float xl = 0, ll = 0;  // weighted sums of x * code and of code * code

    void add(float weight, float x, int code) {
        const auto l = static_cast<float>(code);
        xl += weight * x * l;
        ll += weight * l * l;
    }
    float scale() const { return ll != 0 ? xl / ll : 0.0f; }
};

}  // namespace

float search_signed(int half, floats x, floats weights, std::span<std::int8_t> codes) {
    const float extreme = signed_maximum(x);
    if (std::abs(extreme) < no_group) {
        std::fill(codes.begin(), codes.end(), std::int8_t{0});
        return 0;
    }
    const auto weight = [&](std::size_t i) { return weights.empty() ? x[i] * x[i] : weights[i]; };
    const auto code = [&](float inverse, std::size_t i) { return within(-half, nearest(inverse * x[i]), half - 1); };
    float inverse = static_cast<float>(-half) / extreme;
    fit first;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const int l = code(inverse, i);
        codes[i] = static_cast<std::int8_t>(l + half);
        first.add(weight(i), x[i], l);
    }
    float scale = first.scale();
    float best = scale * first.xl;
    for (int step = -9; step <= 9; ++step) {
        if (step == 0) continue;
        inverse = -(static_cast<float>(half) + 0.1f * static_cast<float>(step)) / extreme;
        fit f;
        for (std::size_t i = 0; i < x.size(); ++i) f.add(weight(i), x[i], code(inverse, i));
        if (f.ll > 0 && f.xl * f.xl > best * f.ll) {
            for (std::size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<std::int8_t>(half + code(inverse, i));
            scale = f.xl / f.ll;
            best = scale * f.xl;
        }
    }
    return scale;
}

float refine_signed(int half, floats x, std::span<std::int8_t> codes) {
    const float extreme = signed_maximum(x);
    if (std::abs(extreme) < no_group) {
        std::fill(codes.begin(), codes.end(), std::int8_t{0});
        return 0;
    }
    const float inverse = static_cast<float>(-half) / extreme;
    fit f;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const int l = within(-half, nearest(inverse * x[i]), half - 1);
        codes[i] = static_cast<std::int8_t>(l);
        f.add(x[i] * x[i], x[i], l);
    }
    for (int round = 0; round < 5; ++round) {
        bool changed = false;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float w = x[i] * x[i];
            const auto old = static_cast<float>(codes[i]);
            fit without{f.xl - w * x[i] * old, 0};
            if (!(without.xl > 0)) continue;
            without.ll = f.ll - w * old * old;
            const int l = within(-half, nearest(x[i] * without.ll / without.xl), half - 1);
            if (l == codes[i]) continue;
            without.add(w, x[i], l);
            if (without.ll > 0 && without.xl * without.xl * f.ll > f.xl * f.xl * without.ll) {
                codes[i] = static_cast<std::int8_t>(l);
                f = without;
                changed = true;
            }
        }
        if (!changed) break;
    }
    for (std::int8_t& c : codes) c = static_cast<std::int8_t>(c + half);
    return f.ll > 0 ? f.xl / f.ll : 0.0f;
}

float search_affine(const affine_search& how, floats x, floats weights, std::span<std::uint8_t> codes, float& minimum) {
    const auto most = static_cast<float>(how.most);
    float low = x[0], high = x[0], sum_w = weights[0];
    float sum_x = sum_w * x[0];
    for (std::size_t i = 1; i < x.size(); ++i) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
        sum_w += weights[i];
        sum_x += weights[i] * x[i];
    }
    if (low > 0) low = 0;
    if (how.from_matrix ? high <= low : high == low) {
        std::fill(codes.begin(), codes.end(), std::uint8_t{0});
        minimum = -low;
        return 0;
    }
    const auto error = [&](float scale, float base, std::span<const std::uint8_t> l) {
        float sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            float difference = scale * static_cast<float>(l[i]) + base - x[i];
            difference = how.absolute ? std::abs(difference) : difference * difference;
            sum += weights[i] * difference;
        }
        return sum;
    };
    float inverse = most / (high - low);
    float scale = 1 / inverse;
    for (std::size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<std::uint8_t>(within(0, nearest(inverse * (x[i] - low)), how.most));
    float best = error(scale, low, codes);
    std::array<std::uint8_t, 32> tried{};
    const std::span<std::uint8_t> attempt(tried.data(), x.size());
    for (int step = 0; step <= how.steps; ++step) {
        inverse = (how.first + how.step * static_cast<float>(step) + most) / (high - low);
        float sum_l = 0, sum_ll = 0, sum_xl = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const int code = within(0, nearest(inverse * (x[i] - low)), how.most);
            attempt[i] = static_cast<std::uint8_t>(code);
            const auto l = static_cast<float>(code);
            sum_l += weights[i] * l;
            sum_ll += weights[i] * l * l;
            sum_xl += weights[i] * l * x[i];
        }
        const float determinant = sum_w * sum_ll - sum_l * sum_l;
        if (!(determinant > 0)) continue;
        float new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
        float new_low = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
        if (new_low > 0) {
            new_low = 0;
            new_scale = sum_xl / sum_ll;
        }
        const float now = error(new_scale, new_low, attempt);
        if (now < best) {
            std::copy(attempt.begin(), attempt.end(), codes.begin());
            best = now;
            scale = new_scale;
            low = new_low;
        }
    }
    minimum = -low;
    return scale;
}

float search_positive(int most, floats x, floats weights, std::span<std::uint8_t> codes) {
    float high = 0;
    for (const float v : x) high = high > v ? high : v;
    if (high < no_group) {
        std::fill(codes.begin(), codes.end(), std::uint8_t{0});
        return 0;
    }
    const auto error = [&](float inverse, bool clipped) {
        const float scale = 1 / inverse;
        float sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const int l = nearest(inverse * x[i]);
            const float difference = x[i] - scale * static_cast<float>(clipped ? std::min(most, l) : static_cast<std::uint8_t>(l));
            sum += weights[i] * difference * difference;
        }
        return sum;
    };
    float inverse = static_cast<float>(most) / high;
    float best = error(inverse, false);
    for (int step = -4; step <= 4; ++step) {
        if (step == 0) continue;
        const float other = (0.1f * static_cast<float>(step) + static_cast<float>(most)) / high;
        const float now = error(other, true);
        if (now < best) {
            best = now;
            inverse = other;
        }
    }
    fit f;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const int l = std::min(most, nearest(inverse * x[i]));
        codes[i] = static_cast<std::uint8_t>(l);
        f.add(weights[i], x[i], l);
    }
    for (int round = 0; round < 5; ++round) {
        bool changed = false;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float w = weights[i];
            const auto old = static_cast<float>(codes[i]);
            fit without{f.xl - w * x[i] * old, f.ll - w * old * old};
            if (!(without.xl > 0 && without.ll > 0)) continue;
            const int l = std::min(most, nearest(x[i] * without.ll / without.xl));
            if (l == codes[i]) continue;
            without.add(w, x[i], l);
            if (without.xl * without.xl * f.ll > f.xl * f.xl * without.ll) {
                codes[i] = static_cast<std::uint8_t>(l);
                f = without;
                changed = true;
            }
        }
        if (!changed) break;
    }
    return f.ll > 0 ? f.xl / f.ll : 0.0f;
}

}  // namespace qk::systems::ggml
