// SPDX-License-Identifier: Apache-2.0
// Definitions of scale_channels.hpp: looks once at the layers' inputs, chooses factors group by group, and rewrites the model.
#include <onnx/onnx_pb.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "graph/base/content_hash.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/divide_channels.hpp"
#include "graph/quantize/scale_channels.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/calibrate/scales.hpp"

namespace qk::graph {
namespace detail {

using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Statistics of a tensor in one sample, channel by channel, and some of its rows.
struct channels_of_sample {
    std::vector<float> lowest, highest;
    std::vector<double> sum;  ///< sum of magnitudes
    std::size_t rows = 0;
    std::vector<float> kept;
};

struct channel_statistics {
    std::vector<float> lowest, highest, mean;
    std::vector<float> rows;

    double largest(std::size_t k) const { return std::max(-static_cast<double>(lowest[k]), static_cast<double>(highest[k])); }
    std::size_t channels() const { return lowest.size(); }
};

/// Statistics of all samples and of two halves (every other sample): factors and ranges of one half are judged by rows of the other. A
/// half's own rows never leave its ranges, but rows of new data do, the more so the more channels reach up to the range.
struct tensor_channels {
    channel_statistics all;
    std::array<channel_statistics, 2> halves;
};

constexpr std::size_t most_rows = 256;  ///< most rows that are kept of a half

inline channels_of_sample look_at(const tensor& x, std::size_t rows_wanted) {
    channels_of_sample s;
    const auto channels = static_cast<std::size_t>(x.shape().back());
    s.rows = x.size() / std::max<std::size_t>(channels, 1);
    s.lowest.assign(channels, 0), s.highest.assign(channels, 0), s.sum.assign(channels, 0);
    const auto values = x.as<float>();
    const std::size_t step = std::max<std::size_t>(1, s.rows / std::max<std::size_t>(rows_wanted, 1));
    for (std::size_t r = 0; r < s.rows; ++r) {
        const float* row = values.data() + r * channels;
        for (std::size_t k = 0; k < channels; ++k) {
            if (!std::isfinite(row[k])) continue;
            s.lowest[k] = std::min(s.lowest[k], row[k]), s.highest[k] = std::max(s.highest[k], row[k]);
            s.sum[k] += std::fabs(static_cast<double>(row[k]));
        }
        if (r % step == 0 && s.kept.size() < rows_wanted * channels) s.kept.insert(s.kept.end(), row, row + channels);
    }
    return s;
}

/// Adds up every `step`-th sample from `first` on, in the order of the samples.
inline channel_statistics added_up(const std::map<std::size_t, channels_of_sample>& by_sample, std::size_t first, std::size_t step) {
    channel_statistics s;
    std::size_t rows = 0, number = 0;
    std::vector<double> sum;
    for (const auto& [sample, one] : by_sample) {
        if (number++ % step != first) continue;
        if (s.lowest.empty()) s.lowest = one.lowest, s.highest = one.highest, sum.assign(one.sum.size(), 0);
        for (std::size_t k = 0; k < sum.size(); ++k) {
            s.lowest[k] = std::min(s.lowest[k], one.lowest[k]), s.highest[k] = std::max(s.highest[k], one.highest[k]);
            sum[k] += one.sum[k];
        }
        rows += one.rows;
        if (s.rows.size() < most_rows * sum.size()) s.rows.insert(s.rows.end(), one.kept.begin(), one.kept.end());
    }
    for (const double v : sum) s.mean.push_back(static_cast<float>(v / static_cast<double>(std::max<std::size_t>(rows, 1))));
    return s;
}

/// Collects the statistics of the tensors in one pass over the samples, on all threads.
inline std::map<std::string, tensor_channels> look(const model& m, const std::set<std::string>& tensors, const named_tensors& samples,
                                                   int threads) {
    std::map<std::string, std::map<std::size_t, channels_of_sample>> seen;
    std::mutex lock;
    const evaluator run(m, {.threads = threads, .keep_outputs = false});
    run.run(samples, {}, [&](const std::string& name, const tensor& value, std::size_t sample) {
        if (!tensors.contains(name) || value.rank() == 0 || value.size() == 0) return;
        channels_of_sample s = look_at(ops::widened(value), 64);
        const std::lock_guard guard(lock);
        seen[name].emplace(sample, std::move(s));
    });
    std::map<std::string, tensor_channels> all;
    for (const auto& [name, by_sample] : seen) {
        tensor_channels& s = all[name];
        s.all = added_up(by_sample, 0, 1);
        const std::size_t step = by_sample.size() > 1 ? 2 : 1;  // a single sample is judged by its own rows
        for (std::size_t i = 0; i < 2; ++i) s.halves[i] = added_up(by_sample, i % step, step);
    }
    return all;
}

bool is_transposed(const onnx::NodeProto& n) { return product_axes_of(n)->in == 1; }

/// Returns weights [K, N], or [N, K] if transposed, whose K rows (columns) are multiplied.
tensor times_factors(const tensor& weight, bool transposed, const std::vector<float>& s) {
    tensor w(data_type::float32, weight.shape());
    const std::size_t columns = static_cast<std::size_t>(weight.dim(1));
    for (std::size_t i = 0; i < w.size(); ++i) w.as<float>()[i] = weight.as<float>()[i] * s[transposed ? i % columns : i / columns];
    return w;
}

/// Returns what tells these layers' weights from others.
std::string hash_of_weights(const model& m, const std::vector<std::string>& layers) {
    content_hash h;
    for (const std::string& layer : layers) {
        const tensor w = ops::widened(m.constant(m.graph().node(m.node_index(layer)).input(1)));
        h.add(w.bytes(), w.size_bytes());
    }
    return h.text();
}

/// Multiplies the weights of the layers, and makes the layers read x divided. Returns the node that took the factors.
std::string scale_group(model& m, const scaled_channels& how) {
    std::vector<int> nodes;
    for (const std::string& layer : how.layers) {
        nodes.push_back(m.node_index(layer));
        const onnx::NodeProto& n = m.graph().node(nodes.back());
        replace_constant(m, nodes.back(), 1, times_factors(ops::widened(m.constant(n.input(1))), is_transposed(n), how.factors));
    }
    std::string into = divide_channels(m, how.tensor, nodes, how.factors);
    m.reindex();
    return into;
}

/// A layer of a group: its weights ([K, N], or [N, K] if transposed) and the precisions asked for its two sides.
struct scaled_layer {
    std::string name;
    bool transposed = false;
    tensor weight;  ///< float32, as it stands in the model
    precision activation{}, weights{};
    operand_axes activation_axes{}, weight_axes{};

    std::size_t inputs() const { return static_cast<std::size_t>(weight.dim(transposed ? 1 : 0)); }
    double largest(std::size_t k) const {
        const auto n = static_cast<std::size_t>(weight.size()) / inputs();
        float largest = 0;
        for (std::size_t j = 0; j < n; ++j)
            largest = std::max(largest, std::fabs(weight.as<float>()[transposed ? j * inputs() + k : k * n + j]));
        return static_cast<double>(largest);
    }
    tensor times(const std::vector<float>& s) const { return times_factors(weight, transposed, s); }
};

inline matrix as_matrix(const scaled_layer& l, std::span<const float> w) {
    const Eigen::Map<const matrix> stored(w.data(), static_cast<Eigen::Index>(l.weight.dim(0)), static_cast<Eigen::Index>(l.weight.dim(1)));
    return l.transposed ? matrix(stored.transpose()) : matrix(stored);
}

struct layer_group {
    std::vector<scaled_layer> layers;
    const tensor_channels* seen = nullptr;

    std::vector<float> factors(const channel_statistics& of, channel_scaling::rule how, double alpha) const {
        std::vector<float> s(of.channels(), 1.0f);
        double low = 0, high = 0;
        for (std::size_t k = 0; k < s.size(); ++k) {
            const double x = how == channel_scaling::rule::awq ? static_cast<double>(of.mean[k]) : of.largest(k);
            double w = 1;
            if (how == channel_scaling::rule::smooth_quant) {
                w = 0;
                for (const scaled_layer& l : layers) w = std::max(w, l.largest(k));
                w = std::pow(w, 1 - alpha);
            }
            const double factor = std::pow(x, alpha) / w;
            if (x > 0 && w > 0 && std::isfinite(factor)) s[k] = static_cast<float>(std::clamp(factor, 1e-5, 1e5));
            low = k == 0 ? static_cast<double>(s[k]) : std::min(low, static_cast<double>(s[k])),
            high = std::max(high, static_cast<double>(s[k]));
        }
        if (how == channel_scaling::rule::awq)
            for (float& v : s) v = static_cast<float>(static_cast<double>(v) / std::sqrt(low * high));
        return s;
    }

    /// Returns the squared error of the layers' outputs divided by their squares, quantized as asked after scaling. No alpha: not scaled.
    double error(channel_scaling::rule how, std::optional<double> alpha) const {
        double error = 0, signal = 0;
        for (std::size_t i = 0; i < 2; ++i) {
            const channel_statistics &ranges = seen->halves[i], &others = seen->halves[1 - i];
            add_error(alpha ? factors(ranges, how, *alpha) : std::vector<float>(ranges.channels(), 1.0f), ranges, others.rows, error,
                      signal);
        }
        return signal > 0 ? error / signal : 0;
    }

  private:
    void add_error(const std::vector<float>& s, const channel_statistics& ranges, const std::vector<float>& rows_of_x, double& error,
                   double& signal) const {
        const std::size_t channels = ranges.channels();
        const auto rows = static_cast<Eigen::Index>(rows_of_x.size() / channels);
        const Eigen::Map<const matrix> x(rows_of_x.data(), rows, static_cast<Eigen::Index>(channels));
        tensor divided(data_type::float32, {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(channels)});
        value_range range;
        for (std::size_t i = 0; i < divided.size(); ++i) divided.as<float>()[i] = rows_of_x[i] / s[i % channels];
        for (std::size_t k = 0; k < channels; ++k)
            range = {std::min(range.lo, ranges.lowest[k] / s[k]), std::max(range.hi, ranges.highest[k] / s[k])};
        for (const scaled_layer& l : layers) {
            std::vector<float> read(divided.as<float>().begin(), divided.as<float>().end());
            if (!is_identity(l.activation.format))
                apply(activation_quantizer(l.activation, range, {.block = -1, .channel = 0}), divided, read);
            const tensor scaled = l.times(s);
            std::vector<float> stored(scaled.size());
            apply(weight_quantizer(scaled, l.weights, l.weight_axes), scaled, stored);
            const matrix wanted = x * as_matrix(l, l.weight.as<float>());
            const Eigen::Map<const matrix> given(read.data(), rows, static_cast<Eigen::Index>(channels));
            error += static_cast<double>((given * as_matrix(l, stored) - wanted).squaredNorm());
            signal += static_cast<double>(wanted.squaredNorm());
        }
    }
};

/// Returns a MatMul or Gemm whose weights are narrowed and whose reduction axis is the last axis of its input; nullopt for other nodes.
inline std::optional<scaled_layer> scalable(const layer_view& layers, const resolution& asked, int index, const quantize_options& options) {
    const model& m = layers.source();
    const onnx::NodeProto& n = m.graph().node(index);
    const auto axes = product_axes_of(n);
    if (!axes || axes->windows || axes->sums == 0 || layers.nodes()[static_cast<std::size_t>(index)].kind != layer_kind::compute ||
        n.input_size() < 2 || m.is_constant(n.input(0)) || !m.is_constant(n.input(1)))
        return std::nullopt;
    const auto w = asked.edges.find({n.input(1), n.name(), 1});
    if (w == asked.edges.end() || w->second.what == nullptr || bits_per_value(w->second.what->format) >= 16) return std::nullopt;
    if (m.constant_shape(n.input(1)).size() != 2) return std::nullopt;
    scaled_layer l;
    l.name = n.name();
    l.transposed = is_transposed(n);
    l.weight = ops::widened(m.constant(n.input(1)));
    if (l.weight.type() != data_type::float32 || l.weight.size() == 0) return std::nullopt;
    l.weights = completed(*w->second.what, options, true);
    l.weight_axes = axes_of(n, 1, l.weight.shape());
    if (const auto a = asked.edges.find({n.input(0), n.name(), 0}); a != asked.edges.end() && a->second.what != nullptr) {
        l.activation = completed(*a->second.what, options, false);
        if (options.how == approach::dynamic) l.activation.dynamic = true;
    }
    return l;
}

/// Returns the factors of the best alpha (equation (3)), or nullopt to leave the group as it is.
inline std::optional<std::vector<float>> choose_factors(const layer_group& group, const channel_scaling& how, double worth,
                                                        scaled_group& result) {
    std::vector<double> tried;
    if (how.alpha) tried.push_back(*how.alpha);
    else
        for (int i = 0; i <= 10; ++i) tried.push_back(0.1 * i);
    result.before = result.after = group.error(how.how, std::nullopt);
    std::optional<std::vector<float>> best;
    for (const double alpha : tried) {
        const double error = group.error(how.how, alpha);
        if (!how.alpha && !(error < result.after && error < worth * result.before)) continue;
        result.after = error, result.alpha = alpha, best = group.factors(group.seen->all, how.how, alpha);
    }
    result.left = !best;
    return best;
}

}  // namespace detail

std::vector<scaled_group> scale_channels(model& m, const std::vector<request>& requests, const quantize_options& options,
                                         const named_tensors& samples, int threads, double worth) {
    std::map<std::string, detail::layer_group> groups;
    std::vector<std::string> order;
    {
        const layer_view layers(m);
        const resolution asked = resolve(layers, requests, options.resolving());
        for (int i = 0; i < m.graph().node_size(); ++i)
            if (auto l = detail::scalable(layers, asked, i, options)) {
                const std::string& x = m.graph().node(i).input(0);
                if (!groups.contains(x)) order.push_back(x);
                groups[x].layers.push_back(std::move(*l));
            }
    }
    std::set<std::string> tensors(order.begin(), order.end());
    const auto seen = detail::look(m, tensors, samples, threads);
    std::vector<scaled_group> results;
    for (const std::string& x : order) {
        detail::layer_group& group = groups.at(x);
        const auto found = seen.find(x);
        if (found == seen.end() || found->second.all.channels() != group.layers.front().inputs()) continue;
        group.seen = &found->second;
        scaled_group result{.tensor = x, .layers = {}, .into = {}};
        for (const auto& l : group.layers) result.layers.push_back(l.name);
        if (const auto s = detail::choose_factors(group, options.scaling, worth, result)) {
            result.how = {.tensor = x, .layers = result.layers, .factors = *s, .weights = detail::hash_of_weights(m, result.layers)};
            result.into = detail::scale_group(m, result.how);
        }
        results.push_back(std::move(result));
        group = {};
    }
    return results;
}

void scale_again(model& m, const scaled_channels& how, const std::string& label) {
    for (const std::string& layer : how.layers) {
        const int index = m.node_index(layer);
        const bool known = index >= 0 && m.graph().node(index).input_size() > 1 && m.is_constant(m.graph().node(index).input(1)) &&
                           m.constant_shape(m.graph().node(index).input(1)).size() == 2;
        if (!known)
            throw error(label + ": \"scaled\" names layer '" + layer + "', and the model has no layer of that name with weights [K, N]." +
                        did_you_mean(layer, node_names(m)));
        const onnx::NodeProto& n = m.graph().node(index);
        const std::size_t k = detail::is_transposed(n) ? 1 : 0;
        if (n.input(0) != how.tensor)
            throw error(label + ": \"scaled\" divides tensor '" + how.tensor + "' before layer '" + layer + "', which reads '" +
                        n.input(0) + "': give the model that the plan was made for, in which nothing is scaled yet");
        if (static_cast<std::size_t>(m.constant_shape(n.input(1))[k]) != how.factors.size())
            throw error(label + ": \"scaled\" has " + std::to_string(how.factors.size()) + " factors for tensor '" + how.tensor +
                        "', of which layer '" + layer + "' reads " + std::to_string(m.constant_shape(n.input(1))[k]) + " channels");
    }
    if (detail::hash_of_weights(m, how.layers) != how.weights)
        throw error(label + ": the channels of '" + how.tensor + "' were scaled for other weights than those of " + listed(how.layers) +
                    ": give the model that the plan was made for, in which nothing is scaled yet");
    detail::scale_group(m, how);
}

void add_to(quantize_report& report, const std::vector<scaled_group>& done, channel_scaling::rule how) {
    for (const scaled_group& g : done) {
        std::string text = how == channel_scaling::rule::awq ? "awq" : "smooth_quant";
        if (g.left) text += " left it as it is: no scaling does better for " + listed(g.layers);
        else
            text += " divided its channels, for " + listed(g.layers) +
                    (g.into.empty() ? ", by a Mul before them" : ", in '" + g.into + "'") +
                    formatted(", alpha %.2g: error of the layers' outputs %.3g of their squares, was %.3g", g.alpha, g.after, g.before);
        report.notes.push_back({plan_note::kind::scaled, "tensor '" + g.tensor + "'", text});
    }
}

}  // namespace qk::graph
