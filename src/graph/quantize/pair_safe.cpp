// SPDX-License-Identifier: Apache-2.0
// Definitions of pair_safe.hpp: gathers moments of the layers' inputs, then rounds output by output.
#include "graph/quantize/pair_safe.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>

#include "graph/evaluate/execute/workers.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {
namespace {

using detail::weight_rows;

constexpr int largest_code = 127, largest_pair = 128;  ///< 255 * 128 < 2^15 <= 255 * 129

/// Returns whether onnxruntime's kernels multiply pairs for this node: not for a depthwise Conv, which has its own.
bool kernel_pairs(const weight_rows& r, const product_axes& axes) { return !axes.windows || r.rows != 1 || r.columns != r.taps; }

/// Returns how a node sums that has such a kernel: not a ConvTranspose.
std::optional<product_axes> paired_product(const onnx::NodeProto& n) {
    const auto axes = product_axes_of(n);
    return axes && axes->transposed ? std::nullopt : axes;
}

/// Returns the columns of a row in the order in which kernels add them up: a Conv's channels last, the tap before the input channel.
std::vector<std::size_t> kernel_order(const weight_rows& r) {
    std::vector<std::size_t> order(r.columns);
    const std::size_t channels = r.columns / r.taps;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i % channels * r.taps + i / channels;
    return order;
}

bool is_signed_byte(const quantizer& q) {
    const integer* f = std::get_if<integer>(&q.format);
    return f != nullptr && f->is_signed && f->bits == 8 && qmin(*f) < -64 && !q.dynamic;
}
bool is_byte(const quantizer* q) {
    const integer* f = q == nullptr ? nullptr : std::get_if<integer>(&q->format);
    return f != nullptr && f->bits > 4 && f->bits <= 8;
}
bool is_nearest(const quantizer& q) {
    return q.semantics.rounding == rounding::half_even && q.semantics.integer_mode == integer_mode::division && !is_shifted(q);
}

/// Returns the scale's number for each output; nullopt if scales are not by output.
std::optional<std::vector<std::size_t>> scales_of_rows(const quantizer& q, const weight_rows& r, const dims& shape) {
    std::vector<std::size_t> of(r.groups * r.rows, 0);
    if (q.block_size > 0) return std::nullopt;
    if (q.scale.size() == 1) return of;
    const along_axis a = detail::seen_by_blocks(shape, q.axis, q.flatten);
    if (a.length != q.scale.size() || q.scale.size() != of.size()) return std::nullopt;
    for (std::size_t o = 0; o < of.size(); ++o) {
        of[o] = r.at(o / r.rows, o % r.rows, 0) / a.inner % a.length;
        if (r.columns > 1 && r.at(o / r.rows, o % r.rows, 1) / a.inner % a.length != of[o]) return std::nullopt;
    }
    return of;
}

bool same_sign(int a, int b) { return (a > 0 && b > 0) || (a < 0 && b < 0); }
bool fits(int a, int b) { return !same_sign(a, b) || std::abs(a) + std::abs(b) <= largest_pair; }

/// One output's weights in the kernel's order, and what each change costs.
struct output_row {
    std::vector<double> weight, variance, mean;
    std::vector<float> narrow;  ///< the weights as they are rounded

    /// Adds up the first term of (2), and in `shift` the sum in the second.
    void add_error(const std::vector<int>& codes, double scale, std::size_t first, std::size_t end, double& sum, double& shift) const {
        for (std::size_t k = first; k < end; ++k) {
            const double d = codes[k] * scale - weight[k];
            sum += variance[k] * d * d, shift += mean[k] * d;
        }
    }

    /// Rounds the weights from `first` up to `end` to nearest.
    void round(double scale, std::vector<int>& codes, std::size_t first, std::size_t end) const {
        const auto unit = static_cast<float>(scale);
        for (std::size_t k = first; k < end; ++k)
            codes[k] = static_cast<int>(std::clamp(std::nearbyint(narrow[k] / unit), -127.0f, 127.0f));
    }
    void round(double scale, std::vector<int>& codes) const {
        codes.resize(weight.size());
        round(scale, codes, 0, codes.size());
    }

    /// Returns the error (2) behind moved pairs; infinity if it is not below `most`.
    double error_below(double most, double scale, std::vector<int>& codes) const {
        constexpr std::size_t block = 128;  // even, so that no pair is cut
        codes.resize(weight.size());
        double sum = 0, shift = 0;
        for (std::size_t first = 0; first < codes.size(); first += block) {
            const std::size_t end = std::min(first + block, codes.size());
            round(scale, codes, first, end);
            move_pairs(scale, codes, first, end);
            add_error(codes, scale, first, end, sum, shift);
            if (sum >= most) return std::numeric_limits<double>::infinity();
        }
        return sum + shift * shift;
    }

    /// Moves the pairs that are too large onto the sum that fits, each weight by as much as its share of the error allows.
    std::size_t move_pairs(double scale, std::vector<int>& codes, std::size_t from, std::size_t end) const {
        std::size_t offending = 0;
        for (std::size_t k = from; k + 1 < end; k += 2) {
            if (fits(codes[k], codes[k + 1])) continue;
            ++offending;
            const double sign = codes[k] > 0 ? 1 : -1;
            const double a = sign * weight[k] / scale, b = sign * weight[k + 1] / scale;
            const double excess = a + b - largest_pair, whole = variance[k] + variance[k + 1];
            const double share = whole > 0 ? variance[k + 1] / whole : 0.5;
            const double first = std::clamp<double>(std::nearbyint(a - excess * share), 1, largest_code);
            codes[k] = static_cast<int>(sign * first);
            codes[k + 1] = static_cast<int>(sign * (largest_pair - first));
        }
        return offending;
    }
    std::size_t move_pairs(double scale, std::vector<int>& codes) const { return move_pairs(scale, codes, 0, codes.size()); }

    bool may_be(const std::vector<int>& codes, std::size_t k, int code) const {
        if (std::abs(code) > largest_code) return false;
        const std::size_t other = k ^ 1;
        return other >= codes.size() || fits(code, codes[other]);
    }

    /// Moves single weights by one code as long as the error falls; the number of moves is bounded.
    void feed_back(double scale, std::vector<int>& codes) const {
        double none = 0, shift = 0;
        add_error(codes, scale, 0, codes.size(), none, shift);
        const std::size_t most = 16 + codes.size() / 16;
        for (std::size_t moves = 0; moves < most; ++moves) {
            std::size_t best = codes.size();
            int best_by = 0;
            double gain = 0;
            for (std::size_t k = 0; k < codes.size(); ++k) {
                const int by = (shift > 0) == (mean[k] > 0) ? -1 : 1;
                const double d = codes[k] * scale - weight[k], step = by * scale, moved = shift + mean[k] * step;
                const double change = variance[k] * step * (2 * d + step) + moved * moved - shift * shift;
                if (change < gain && may_be(codes, k, codes[k] + by)) gain = change, best = k, best_by = by;
            }
            if (best == codes.size()) return;
            codes[best] += best_by;
            shift += mean[best] * best_by * scale;
        }
    }
};

/// A weight that is made pair-safe.
struct safe_weight {
    const onnx::NodeProto* node = nullptr;
    quantizer* how = nullptr;
    tensor weight;
    data_type type = data_type::float32;
    weight_rows rows;
    std::vector<std::size_t> scale_of_row, order;
    const input_moments* moments = nullptr;
    bool rescales = false;
    pair_safe_weight result;

    std::size_t outputs() const { return rows.groups * rows.rows; }

    output_row row_of(std::size_t o) const {
        output_row row;
        const std::size_t g = o / rows.rows, channels = rows.columns / rows.taps;
        const std::span<const float> w = weight.as<float>();
        double power = 0;
        for (const std::size_t c : order) {
            row.narrow.push_back(w[rows.at(g, o % rows.rows, c)]);
            row.weight.push_back(static_cast<double>(row.narrow.back()));
            const std::size_t channel = g * channels + c / rows.taps;
            row.mean.push_back(moments ? moments->mean[channel] : 0.0);
            row.variance.push_back(moments ? moments->variance[channel] : 1.0);
            power += row.variance.back() + row.mean.back() * row.mean.back();
        }
        const double least = 1e-4 * power / static_cast<double>(std::max<std::size_t>(order.size(), 1));
        for (double& v : row.variance) v = std::max(v, least > 0 ? least : 1.0);  // inputs that never moved in calibration may move
        return row;
    }

    /// Returns the scale, for outputs that share one, with the least error behind moved pairs.
    static double best_scale(const std::vector<output_row>& shared, double start) {
        double best = start, least = std::numeric_limits<double>::infinity();
        std::vector<int> codes;
        constexpr int steps = 48;
        for (int i = 0; i <= steps; ++i) {
            const double scale = static_cast<double>(static_cast<float>(start * std::pow(127.0 / 64.0, static_cast<double>(i) / steps)));
            double sum = 0;
            for (const output_row& row : shared) {
                sum += row.error_below(least - sum, scale, codes);
                if (sum >= least) break;
            }
            if (sum < least) least = sum, best = scale;
        }
        return best;
    }
};

}  // namespace

std::vector<std::string> pairing_layers(const model& m, const precision_plan& plan) {
    std::vector<std::string> found;
    for (const auto& n : m.graph().node()) {
        const auto axes = paired_product(n);
        if (!axes || n.input_size() < 2 || !m.is_constant(n.input(1)) || m.is_constant(n.input(0))) continue;
        const quantizer *x = plan.find({n.input(0), n.name(), 0}), *w = plan.find({n.input(1), n.name(), 1});
        if (w == nullptr || !is_byte(x) || !is_signed_byte(*w) || (x->dynamic && axes->windows)) continue;
        if (const weight_rows r = detail::rows_of(n, m.constant(n.input(1))); r.refusal.empty() && !kernel_pairs(r, *axes)) continue;
        found.push_back(n.name());
    }
    return found;
}

/// Adds the finite values of each channel, and their squares (which doubles hold exactly). The order of the sums is the same on every
/// processor: eight run beside each other where a channel's values do.
static void add_channels(const float* x, const along_axis& a, std::vector<double>& sum, std::vector<double>& squares) {
    constexpr std::size_t lanes = 8;
    const auto finite = [](float v) { return std::isfinite(v) ? static_cast<double>(v) : 0.0; };
    if (a.inner < lanes) {
        for (std::size_t i = 0; i < a.inner; ++i)
            for (std::size_t c = 0; c < a.length; ++c) {
                const double v = finite(x[c * a.inner + i]);
                sum[c] += v, squares[c] += v * v;
            }
        return;
    }
    for (std::size_t c = 0; c < a.length; ++c, x += a.inner) {
        double of[lanes] = {}, of_squares[lanes] = {};
        std::size_t i = 0;
        for (; i + lanes <= a.inner; i += lanes)
            for (std::size_t l = 0; l < lanes; ++l) {
                const double v = finite(x[i + l]);
                of[l] += v, of_squares[l] += v * v;
            }
        for (; i < a.inner; ++i) of[0] += finite(x[i]), of_squares[0] += finite(x[i]) * finite(x[i]);
        for (std::size_t l = 0; l < lanes; ++l) sum[c] += of[l], squares[c] += of_squares[l];
    }
}

layer_moments gather_moments(const model& m, const precision_plan& plan, const named_tensors& samples, const pair_safe_options& options,
                             const progress& report) {
    struct reader {
        std::string layer;
        const quantizer* how = nullptr;
        bool second = false;  ///< channels on axis 1
    };
    struct sums {
        std::vector<double> sum, squares;
        double count = 0;
    };
    std::map<std::string, std::vector<reader>> readers;
    const std::vector<std::string> layers = pairing_layers(m, plan);
    const std::set<std::string> wanted(layers.begin(), layers.end());
    for (const auto& n : m.graph().node())
        if (wanted.contains(n.name()))
            readers[n.input(0)].push_back({n.name(), plan.find({n.input(0), n.name(), 0}), product_axes_of(n)->windows});
    std::map<std::string, std::map<std::size_t, sums>> seen;  // by layer and sample
    std::mutex lock;
    const evaluator run(m, {.threads = options.threads, .keep_outputs = false, .limits = options.limits});
    const auto look = [&](const std::string& name, const tensor& value, std::size_t sample) {
        const auto found = readers.find(name);
        if (found == readers.end() || value.rank() < 2 || value.size() == 0) return;
        const tensor x = ops::widened(value);
        if (x.type() != data_type::float32) return;
        std::vector<float> read(x.size());
        for (const reader& r : found->second) {
            const bool again = &r != found->second.data() && *r.how == *found->second.front().how;
            if (!again) {
                if (r.how->dynamic) std::copy_n(x.as<float>().begin(), read.size(), read.begin());
                else apply(*r.how, x, read);
            }
            const along_axis a = detail::seen_by_blocks(x.shape(), r.second ? 1 : x.rank() - 1);
            sums s{std::vector<double>(a.length), std::vector<double>(a.length), static_cast<double>(a.outer * a.inner)};
            for (std::size_t o = 0; o < a.outer; ++o) add_channels(read.data() + o * a.length * a.inner, a, s.sum, s.squares);
            const std::lock_guard guard(lock);
            seen[r.layer].emplace(sample, std::move(s));
        }
    };
    run.run(samples, {}, look, report);
    layer_moments moments;
    for (const auto& [layer, by_sample] : seen) {
        input_moments& all = moments[layer];
        double count = 0;
        for (const auto& [sample, s] : by_sample) {
            if (all.mean.empty()) all.mean.resize(s.sum.size()), all.variance.resize(s.sum.size());
            if (s.sum.size() != all.mean.size()) continue;
            count += s.count;
            for (std::size_t c = 0; c < s.sum.size(); ++c) all.mean[c] += s.sum[c], all.variance[c] += s.squares[c];
        }
        for (std::size_t c = 0; c < all.mean.size(); ++c) {
            all.mean[c] /= count;
            all.variance[c] = std::max(all.variance[c] / count - all.mean[c] * all.mean[c], 0.0);
        }
    }
    return moments;
}

namespace {

/// Prepares the weights of a layer; result.left says why they cannot be made pair-safe.
safe_weight prepare(const model& m, precision_plan& plan, const onnx::NodeProto& n, const layer_moments& moments,
                    const pair_safe_options& options) {
    safe_weight s;
    s.node = &n, s.how = plan.entry_of({n.input(1), n.name(), 1});
    s.result.layer = n.name(), s.result.weight = n.input(1);
    const tensor& stored = m.constant(n.input(1));
    s.type = stored.type();
    s.weight = ops::widened(stored);
    s.rows = detail::rows_of(n, s.weight);
    s.result.left = s.rows.refusal;
    if (m.uses(n.input(1)).size() != 1) s.result.left = "other nodes read the same weights";
    else if (!is_nearest(*s.how)) s.result.left = "they are not rounded to nearest around 0";
    if (!s.result.left.empty()) return s;
    const auto of = scales_of_rows(*s.how, s.rows, s.weight.shape());
    if (!of) {
        s.result.left = "their scales do not belong to outputs";
        return s;
    }
    s.scale_of_row = *of;
    s.order = kernel_order(s.rows);
    const auto found = moments.find(n.name());
    if (found != moments.end() && found->second.mean.size() == s.rows.groups * (s.rows.columns / s.rows.taps)) s.moments = &found->second;
    s.rescales = options.rescales && !std::get<integer>(s.how->format).pow2;
    return s;
}

/// Rounds the outputs that share a scale; `values` are the weights as they lie in the tensor. Returns the scale.
float make_safe(const safe_weight& s, std::size_t scale, std::span<float> values, pair_safe_weight& done) {
    std::vector<output_row> rows;
    std::vector<std::size_t> numbers;
    double largest = 0;
    for (std::size_t o = 0; o < s.outputs(); ++o)
        if (s.scale_of_row[o] == scale) {
            rows.push_back(s.row_of(o)), numbers.push_back(o);
            for (const double w : rows.back().weight) largest = std::max(largest, std::fabs(w));
        }
    const double start = static_cast<double>(s.how->scale[scale]);
    const bool of_the_largest = largest > 0 && std::fabs(start * largest_code - largest) <= 1e-6 * largest;
    const double best = s.rescales && of_the_largest ? safe_weight::best_scale(rows, start) : start;
    std::vector<int> codes, nearest;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].round(best, codes);
        nearest = codes;
        done.offending += rows[i].move_pairs(best, codes);
        rows[i].feed_back(best, codes);
        done.pairs += codes.size() / 2;
        for (std::size_t k = 0; k < codes.size(); ++k) {
            if (codes[k] == nearest[k]) continue;
            ++done.moved;
            const std::size_t at = s.rows.at(numbers[i] / s.rows.rows, numbers[i] % s.rows.rows, s.order[k]);
            values[at] = static_cast<float>(codes[k]) * static_cast<float>(best);
        }
    }
    return static_cast<float>(best);
}

void bias_follows(precision_plan& plan, const onnx::NodeProto& n, const std::vector<float>& before, const std::vector<float>& now) {
    if (n.input_size() < 3 || n.input(2).empty()) return;
    quantizer* bias = plan.entry_of({n.input(2), n.name(), 2});
    if (bias == nullptr || bias->format != qk::format(int32)) return;
    for (std::size_t i = 0; i < bias->scale.size(); ++i) {
        const std::size_t c = now.size() == 1 ? 0 : i % now.size();
        bias->scale[i] *= now[c] / before[c];
    }
}

}  // namespace

std::vector<pair_safe_weight> make_pair_safe(model& m, precision_plan& plan, const std::vector<std::string>& layers,
                                             const layer_moments& moments, const pair_safe_options& options) {
    const std::set<std::string> wanted(layers.begin(), layers.end());
    execute::workers pool(options.threads, std::make_shared<memory_budget>(options.limits.memory));
    std::vector<pair_safe_weight> results;
    for (const auto& n : m.graph().node()) {  // one layer after the other: a layer takes several times its weights
        if (!wanted.contains(n.name())) continue;
        safe_weight s = prepare(m, plan, n, moments, options);
        if (s.result.left.empty()) {
            const std::span<const float> own = std::as_const(s.weight).as<float>();
            tensor moved = make_tensor<float>(s.weight.shape(), std::vector<float>(own.begin(), own.end()));
            const std::span<float> values = moved.as<float>();
            std::vector<float> scales = s.how->scale;
            std::vector<pair_safe_weight> parts(scales.size());
            pool.for_each(scales.size(), [&](std::size_t i, execute::arena&) { scales[i] = make_safe(s, i, values, parts[i]); });
            for (std::size_t i = 0; i < parts.size(); ++i) {
                s.result.pairs += parts[i].pairs, s.result.offending += parts[i].offending, s.result.moved += parts[i].moved;
                s.result.rescaled += scales[i] != s.how->scale[i];
            }
            bias_follows(plan, n, s.how->scale, scales);
            s.how->scale = scales;
            s.result.weight_sqnr = sqnr(own, applied(*s.how, moved).as<float>());
            if (options.moves && s.result.moved > 0) {
                const auto initializer = std::ranges::find(*m.graph().mutable_initializer(), s.result.weight, &onnx::TensorProto::name);
                to_proto(ops::narrowed(moved, s.type), s.result.weight, *initializer);
            }
        }
        results.push_back(std::move(s.result));
    }
    m.reindex();
    return results;
}

bool is_pair_safe(const onnx::NodeProto& layer, int input, const quantizer& how, const tensor& value) {
    const auto axes = paired_product(layer);
    if (!axes || input != 1 || !is_signed_byte(how) || is_shifted(how) || value.type() != data_type::float32) return false;
    const weight_rows rows = detail::rows_of(layer, value);
    if (!rows.refusal.empty()) return false;
    if (!kernel_pairs(rows, *axes)) return true;
    const auto of = scales_of_rows(how, rows, value.shape());
    if (!of) return false;
    const std::vector<std::size_t> order = kernel_order(rows);
    const tensor rounded = applied(how, value);
    const std::span<const float> v = std::as_const(rounded).as<float>();
    for (std::size_t o = 0; o < of->size(); ++o) {
        const float scale = how.scale.empty() ? 1.0f : how.scale[(*of)[o]];
        const auto code = [&](std::size_t k) {
            return static_cast<int>(std::nearbyint(v[rows.at(o / rows.rows, o % rows.rows, order[k])] / scale));
        };
        for (std::size_t k = 0; k + 1 < order.size(); k += 2)
            if (!fits(code(k), code(k + 1))) return false;
    }
    return true;
}

void add_to(quantize_report& report, const std::vector<pair_safe_weight>& done) {
    for (const pair_safe_weight& w : done) {
        if (!w.left.empty()) continue;
        for (edge_report& e : report.edges)
            if (e.edge.tensor == w.weight && e.edge.consumer == w.layer) {
                e.sqnr = w.weight_sqnr;
                e.why +=
                    formatted("; pair-safe: %zu of %zu pairs moved, %zu weights not at the nearest code", w.offending, w.pairs, w.moved);
            }
    }
}

}  // namespace qk::graph
