// SPDX-License-Identifier: Apache-2.0
#include "learn/learn_rows.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/gradient/straight_through.hpp"
#include "qk/graph/calibrate/scales.hpp"

namespace qk::graph::detail {
namespace {

using index = Eigen::Index;

/// A piece of a layer: rows [first, first + count) of one group.
struct piece {
    std::size_t group = 0, first = 0, count = 0;
};

std::vector<piece> pieces_of(const weight_rows& rows) {
    const std::size_t size = rows.rows <= 32 ? 16 : 32;
    std::vector<piece> all;
    for (std::size_t g = 0; g < rows.groups; ++g)
        for (std::size_t first = 0; first < rows.rows; first += size) all.push_back({g, first, std::min(size, rows.rows - first)});
    return all;
}

/// Is true when the tensor itself is the matrix, row by row.
bool lies_in_rows(const weight_rows& rows) { return !rows.columns_outermost && !rows.transposed; }

float_rows take(const weight_rows& rows, const piece& part, std::span<const float> w) {
    float_rows m(static_cast<index>(part.count), static_cast<index>(rows.columns));
    if (lies_in_rows(rows)) {
        std::copy_n(w.data() + rows.at(part.group, part.first, 0), part.count * rows.columns, m.data());
        return m;
    }
    for (std::size_t o = 0; o < part.count; ++o)
        for (std::size_t c = 0; c < rows.columns; ++c)
            m(static_cast<index>(o), static_cast<index>(c)) = w[rows.at(part.group, part.first + o, c)];
    return m;
}

void put(const weight_rows& rows, const piece& part, const float_rows& m, std::span<float> w) {
    if (lies_in_rows(rows)) {
        std::copy_n(m.data(), part.count * rows.columns, w.data() + rows.at(part.group, part.first, 0));
        return;
    }
    for (std::size_t o = 0; o < part.count; ++o)
        for (std::size_t c = 0; c < rows.columns; ++c)
            w[rows.at(part.group, part.first + o, c)] = m(static_cast<index>(o), static_cast<index>(c));
}

/// Takes batches of places in turn and starts over at the end. The places are in random order already.
struct batches {
    index all, size, at = 0;
    explicit batches(index places) : all(places), size(std::min<index>(places, 256)) {}
    index next() {
        if (at + size > all) at = 0;
        return std::exchange(at, at + size);
    }
};

/// The output of a piece at some places minus the wanted output, both clamped, and 0 where the clamp cuts the piece's own output off. This
/// is half the gradient by the outputs.
class piece_error {
  public:
    piece_error(const layer_problem& p, const piece& part)
        : p_(&p), part_(part), s_(&(*p.samples)[part.group]), first_(part.group * p.rows->rows + part.first) {}

    const layer_samples& samples() const { return *s_; }
    /// Writes it to `out` [n, rows] for places [from, from + n).
    void at(index from, index n, const float_rows& weight, std::span<const float> bias, float_rows& out) const {
        out.noalias() = s_->x.middleRows(from, n) * weight.transpose();
        for (index i = 0; i < n; ++i)
            for (index o = 0; o < out.cols(); ++o) {
                const float made = out(i, o) + bias[first_ + static_cast<std::size_t>(o)];
                const float wanted = std::clamp(s_->y(from + i, static_cast<index>(part_.first) + o), p_->least, p_->most);
                const float seen = std::clamp(made, p_->least, p_->most);
                // Beyond the clamp the slope is 0 although there is a difference; at the bound itself it is not.
                out(i, o) = made < p_->least || made > p_->most ? 0.0f : seen - wanted;
            }
    }
    double squared(const float_rows& weight, std::span<const float> bias) const {
        double sum = 0;
        float_rows out;
        for (index from = 0; from < s_->x.rows(); from += 256) {
            const index n = std::min<index>(256, s_->x.rows() - from);
            out.noalias() = s_->x.middleRows(from, n) * weight.transpose();
            for (index i = 0; i < n; ++i)
                for (index o = 0; o < out.cols(); ++o) {
                    const float made = std::clamp(out(i, o) + bias[first_ + static_cast<std::size_t>(o)], p_->least, p_->most);
                    const float wanted = std::clamp(s_->y(from + i, static_cast<index>(part_.first) + o), p_->least, p_->most);
                    sum += static_cast<double>(made - wanted) * static_cast<double>(made - wanted);
                }
        }
        return sum;
    }

  private:
    const layer_problem* p_;
    piece part_;
    const layer_samples* s_;
    std::size_t first_;
};

/// Adam's averages (Kingma and Ba 2015) over a matrix.
struct adam {
    Eigen::ArrayXf first, second;
    explicit adam(index n) : first(Eigen::ArrayXf::Zero(n)), second(Eigen::ArrayXf::Zero(n)) {}
    /// Returns the step to subtract, for rate 1. `time` counts steps from 1.
    template <class Gradient>
    auto step(const Gradient& g, int time) {
        first = 0.9f * first + 0.1f * g;
        second = 0.999f * second + 0.001f * g.square();
        const float mean = 1 / (1 - std::pow(0.9f, static_cast<float>(time))),
                    spread = 1 / (1 - std::pow(0.999f, static_cast<float>(time)));
        return (first * mean) / ((second * spread).sqrt() + 1e-12f);
    }
};

double cosine(int time, int all) { return 0.5 * (1 + std::cos(std::numbers::pi * time / std::max(all, 1))); }

float_rows adaround(const layer_problem& p, const piece& part, const float_rows& weight, const float_rows& low, const float_rows& high) {
    constexpr float zeta = 1.1f, gamma = -0.1f;  // equation (23) of the paper: beyond 0 and 1, so that both are reached
    constexpr float rate = 0.02f, force = 0.1f;  // of Adam; of the rounding term, relative to a weight's effect on the output
    constexpr double warm = 0.2;                 // share of the iterations without that term
    const piece_error error(p, part);
    const index n = weight.size(), places = error.samples().x.rows();
    const float_rows span = high - low;
    // In these units, flipping one weight changes a row's error by about one, whatever the format and the layer.
    const Eigen::RowVectorXf power = error.samples().x.colwise().squaredNorm() / static_cast<float>(places);
    const Eigen::VectorXf norm = (span.cwiseAbs2() * power.asDiagonal()).rowwise().mean();
    const Eigen::VectorXf scaled = norm.unaryExpr([](float v) { return v > 0 ? 1 / v : 0.0f; });

    const auto flat = [](auto& m) { return Eigen::Map<Eigen::ArrayXf>(m.data(), m.size()); };
    float_rows share = float_rows::Constant(weight.rows(), weight.cols(), 0.5f), soft = low, by_weight = span, out;
    for (index i = 0; i < n; ++i)
        if (span.data()[i] > 0) share.data()[i] = std::clamp((weight.data()[i] - low.data()[i]) / span.data()[i], 0.0f, 1.0f);
    Eigen::ArrayXf v = -((zeta - gamma) / (flat(share) - gamma) - 1).log(), sigmoid(n), h(n), g(n);
    adam optimizer(n);
    batches batch(places);
    const int warm_until = static_cast<int>(warm * p.iterations);
    for (int t = 0; t < p.iterations; ++t) {
        const index from = batch.next();
        sigmoid = (1 + (-v).exp()).inverse();
        h = (sigmoid * (zeta - gamma) + gamma).max(0.0f).min(1.0f);
        flat(soft) = Eigen::Map<const Eigen::ArrayXf>(low.data(), n) + Eigen::Map<const Eigen::ArrayXf>(span.data(), n) * h;
        error.at(from, batch.size, soft, p.bias, out);
        by_weight.noalias() = out.transpose() * error.samples().x.middleRows(from, batch.size);
        by_weight.array().colwise() *= scaled.array() * (2.0f / static_cast<float>(batch.size));
        g = flat(by_weight) * Eigen::Map<const Eigen::ArrayXf>(span.data(), n);
        if (t >= warm_until) {  // force * (1 - |2h - 1|^beta), beta from 20 to 2
            const double done = static_cast<double>(t - warm_until) / std::max(p.iterations - warm_until, 1);
            const auto beta = static_cast<float>(2 + 18 * 0.5 * (1 + std::cos(std::numbers::pi * done)));
            const auto d = 2 * h - 1;
            g -= force * 2 * beta * ((beta - 1) * d.abs().max(1e-6f).log()).exp() * d.sign();
        }
        g *= (h > 0.0f && h < 1.0f).select((zeta - gamma) * sigmoid * (1 - sigmoid), 0.0f);
        v -= rate * optimizer.step(g, t + 1);
    }
    h = (1 + (-v).exp()).inverse();
    float_rows chosen = low;
    for (index i = 0; i < n; ++i)
        if (h(i) >= 0.5f) chosen.data()[i] = high.data()[i];
    return chosen;
}

}  // namespace

double output_error(const layer_problem& p, const tensor& weight, std::span<const float> bias, execute::workers& pool) {
    const std::vector<piece> parts = pieces_of(*p.rows);
    std::vector<double> errors(parts.size());
    pool.for_each(parts.size(), [&](std::size_t i, execute::arena&) {
        errors[i] = piece_error(p, parts[i]).squared(take(*p.rows, parts[i], weight.as<float>()), bias);
    });
    double sum = 0;
    for (const double e : errors) sum += e;
    return sum;
}

double output_power(const layer_problem& p) {
    double sum = 0;
    for (const layer_samples& s : *p.samples)
        for (index i = 0; i < s.y.size(); ++i) {
            const auto v = static_cast<double>(std::clamp(s.y.data()[i], p.least, p.most));
            sum += v * v;
        }
    return sum;
}

tensor learn_adaround(const layer_problem& p, const tensor& weight, const tensor& low, const tensor& high, execute::workers& pool) {
    tensor chosen(weight.type(), weight.shape());
    const std::vector<piece> parts = pieces_of(*p.rows);
    const std::span<float> to = chosen.as<float>();
    pool.for_each(parts.size(), [&](std::size_t i, execute::arena&) {
        const auto of = [&](const tensor& t) { return take(*p.rows, parts[i], t.as<float>()); };
        put(*p.rows, parts[i], adaround(p, parts[i], of(weight), of(low), of(high)), to);
    });
    return chosen;
}

adaquant_state learn_adaquant(const layer_problem& p, adaquant_state start, const tensor& unit, bool learns_bias, execute::workers& pool) {
    constexpr float weight_rate = 0.03f;  // in steps of the grid
    constexpr double scale_rate = 0.002;  // relative to the scale
    constexpr double bias_rate = 0.01;    // in root mean squares of the layer's error
    const std::vector<piece> parts = pieces_of(*p.rows);
    const index n = static_cast<index>(start.weight.size()), places = (*p.samples)[0].x.rows();
    adaquant_state now = start, best = start;
    double least = output_error(p, applied(start.how, start.weight), start.bias, pool);
    const double spread = std::sqrt(least / static_cast<double>(places) / static_cast<double>(start.bias.size()));
    const bool learns_scale = gradient::scale_learns(start.how);
    adam by_weight(n), by_scale(static_cast<index>(start.how.scale.size())), by_bias(static_cast<index>(start.bias.size()));
    Eigen::ArrayXf step(static_cast<index>(start.how.scale.size())), bias_gradient(static_cast<index>(start.bias.size()));
    tensor g(start.weight.type(), start.weight.shape());
    const float scaled = 2.0f / static_cast<float>(batches(places).size);
    batches batch(places);
    for (int t = 0; t < p.iterations; ++t) {
        const index from = batch.next();
        const tensor w = applied(now.how, now.weight);
        const std::span<float> to = g.as<float>();
        pool.for_each(parts.size(), [&](std::size_t i, execute::arena&) {
            const piece_error error(p, parts[i]);
            float_rows out, d;
            error.at(from, batch.size, take(*p.rows, parts[i], w.as<float>()), now.bias, out);
            d.noalias() = out.transpose() * error.samples().x.middleRows(from, batch.size) * scaled;
            put(*p.rows, parts[i], d, to);
            bias_gradient.segment(static_cast<index>(parts[i].group * p.rows->rows + parts[i].first), out.cols()) =
                out.colwise().sum().transpose().array() * scaled;
        });
        const double rate = cosine(t, p.iterations);
        std::vector<double> scales(now.how.scale.size(), 0.0);
        const tensor through = gradient::straight_through(now.how, now.weight, g, learns_scale ? &scales : nullptr);
        tensor next(now.weight.type(), now.weight.shape());
        const auto view = [&](const tensor& x) { return Eigen::Map<const Eigen::ArrayXf>(x.as<float>().data(), n); };
        Eigen::Map<Eigen::ArrayXf>(next.as<float>().data(), n) =
            view(now.weight) - (static_cast<float>(rate) * weight_rate) * view(unit) * by_weight.step(view(through), t + 1);
        now.weight = next;
        if (learns_scale) {
            for (std::size_t i = 0; i < scales.size(); ++i) step(static_cast<index>(i)) = static_cast<float>(scales[i]) * now.how.scale[i];
            const Eigen::ArrayXf by = by_scale.step(step, t + 1);
            for (std::size_t i = 0; i < scales.size(); ++i)
                now.how.scale[i] *= static_cast<float>(std::exp(-rate * scale_rate * static_cast<double>(by(static_cast<index>(i)))));
        }
        if (learns_bias) {
            const Eigen::ArrayXf by = by_bias.step(bias_gradient, t + 1);
            for (std::size_t i = 0; i < now.bias.size(); ++i)
                now.bias[i] -= static_cast<float>(rate * bias_rate * spread * static_cast<double>(by(static_cast<index>(i))));
        }
        const int every = std::max(p.iterations / 8, 1);
        if ((t + 1) % every != 0 && t + 1 != p.iterations) continue;
        const double error = output_error(p, applied(now.how, now.weight), now.bias, pool);
        if (error < least) least = error, best = now;
    }
    return best;
}

}  // namespace qk::graph::detail
