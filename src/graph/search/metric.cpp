// SPDX-License-Identifier: Apache-2.0
// The metrics of search and sensitivity, a few lines each.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/search/metric.hpp"

namespace qk::graph {
namespace detail {

using floats = std::span<const float>;

inline double squared_norm(floats y) {
    double sum = 0;
    for (const float v : y) sum += double(v) * double(v);
    return sum;
}

/// Returns the logarithm of the sum of exponentials, without overflow.
inline double log_sum_exp(floats y) {
    double top = -std::numeric_limits<double>::infinity();
    for (const float v : y) top = std::max(top, double(v));
    double sum = 0;
    for (const float v : y) sum += std::exp(double(v) - top);
    return top + std::log(sum);
}

/// Is true for an output that already is a distribution (a Softmax at the end); it gets no second Softmax.
inline bool is_distribution(floats y) {
    double sum = 0;
    for (const float v : y) {
        if (!(v >= 0.0f && v <= 1.0f)) return false;
        sum += v;
    }
    return std::abs(sum - 1) < 1e-3;
}

inline std::vector<double> log_probabilities(floats y) {
    std::vector<double> p(y.size());
    if (is_distribution(y)) {
        for (std::size_t i = 0; i < y.size(); ++i) p[i] = std::log(std::max(double(y[i]), 1e-30));
    } else {
        const double norm = log_sum_exp(y);
        for (std::size_t i = 0; i < y.size(); ++i) p[i] = double(y[i]) - norm;
    }
    return p;
}

/// Returns the index of the first largest value, like argmax elsewhere; -1 if there are no values.
inline std::int64_t argmax(floats y) {
    return y.empty() ? -1 : static_cast<std::int64_t>(std::max_element(y.begin(), y.end()) - y.begin());
}

/// Is true when the label is among the k largest values; of equal values the lower index counts as larger.
inline bool in_top(floats y, std::int64_t label, int k) {
    check_class(label, y.size());
    const float own = y[static_cast<std::size_t>(label)];
    if (std::isnan(own)) return false;
    int above = 0;
    for (std::size_t i = 0; i < y.size(); ++i) above += y[i] > own || (y[i] == own && static_cast<std::int64_t>(i) < label);
    return above < k;
}

inline double mean_of_first(const metric_terms& s, std::size_t n) { return n == 0 ? 0 : s[0] / double(n); }

inline metric_terms l2_sample(floats y, floats r, std::int64_t) { return {std::sqrt(squared_distance(y, r))}; }
inline metric_terms noise_sample(floats y, floats r, std::int64_t) {
    double peak = 0;
    for (const float v : r) peak = std::max(peak, std::abs(double(v)));
    return {squared_distance(y, r), squared_norm(r), double(y.size()), peak};
}
inline double mse_finish(const metric_terms& s, std::size_t) { return s[2] == 0 ? 0 : s[0] / s[2]; }
inline double sqnr_finish(const metric_terms& s, std::size_t) { return 10 * std::log10(s[1] / s[0]); }
/// The peak is the mean over samples of each sample's peak.
inline double psnr_finish(const metric_terms& s, std::size_t n) {
    const double peak = n == 0 ? 0 : s[3] / double(n);
    return 10 * std::log10(peak * peak * s[2] / s[0]);
}
inline metric_terms cosine_sample(floats y, floats r, std::int64_t) {
    double dot = 0;
    for (std::size_t i = 0; i < y.size(); ++i) dot += double(y[i]) * double(r[i]);
    const double norms = std::sqrt(squared_norm(y) * squared_norm(r));
    return {norms > 0 ? dot / norms : double(squared_distance(y, r) == 0)};
}
inline metric_terms kl_sample(floats y, floats r, std::int64_t) {
    const std::vector<double> log_y = log_probabilities(y), log_r = log_probabilities(r);
    double sum = 0;
    for (std::size_t i = 0; i < log_y.size(); ++i) sum += std::exp(log_r[i]) * (log_r[i] - log_y[i]);
    return {sum};
}
inline metric_terms loss_sample(floats y, floats, std::int64_t label) {
    check_class(label, y.size());
    return {-log_probabilities(y)[static_cast<std::size_t>(label)]};
}
inline double perplexity_finish(const metric_terms& s, std::size_t n) { return std::exp(mean_of_first(s, n)); }
inline metric_terms top1_sample(floats y, floats, std::int64_t label) { return {double(in_top(y, label, 1))}; }
inline metric_terms top5_sample(floats y, floats, std::int64_t label) { return {double(in_top(y, label, 5))}; }
inline metric_terms agreement_sample(floats y, floats r, std::int64_t) { return {double(argmax(y) == argmax(r))}; }

inline constexpr metric metrics[] = {
    {"l2", false, false, false, false, l2_sample, mean_of_first,
     "mean over samples of the 2-norm of the error: sqrt(sum of (y - r)^2) over all values of a sample"},
    {"mse", false, false, false, false, noise_sample, mse_finish,
     "mean squared error: sum of (y - r)^2 over all values of all samples, by their number"},
    {"sqnr", true, false, false, false, noise_sample, sqnr_finish,
     "signal to quantization noise in dB: 10 log10(sum of r^2 / sum of (y - r)^2) over all values of all samples"},
    {"psnr", true, false, false, false, noise_sample, psnr_finish,
     "peak signal to noise in dB: 10 log10(peak^2 / mse), the peak being the mean over samples of each sample's largest |r|"},
    {"cosine", true, false, false, false, cosine_sample, mean_of_first,
     "mean over samples of the cosine between y and r: sum of y r / sqrt(sum of y^2 * sum of r^2)"},
    {"kl", false, false, false, true, kl_sample, mean_of_first,
     "mean over samples of the Kullback-Leibler divergence in nats: sum of p(r) (ln p(r) - ln p(y)), p the softmax over the classes of a "
     "sample (of an output [N,S,C], of each position), or the values where they are a distribution already"},
    {"loss", false, true, false, true, loss_sample, mean_of_first,
     "mean over samples of the cross-entropy with the label in nats: -ln p(y)[label], p as for kl"},
    {"perplexity", false, true, false, true, loss_sample, perplexity_finish,
     "exp of the loss: of a language model, with --next-token, how many tokens it hesitates between"},
    {"top1", true, true, true, true, top1_sample, mean_of_first, "share of samples whose label is the index of the largest value"},
    {"top5", true, true, true, true, top5_sample, mean_of_first,
     "share of samples whose label is among the indices of the five largest values"},
    {"agreement", true, false, true, true, agreement_sample, mean_of_first,
     "share of samples whose largest value stands where the reference's does"},
};

}  // namespace detail

std::span<const metric> all_metrics() { return detail::metrics; }

const metric& find_metric(std::string_view name) { return detail::named_entry(all_metrics(), "metric", name); }

bool better(const metric& m, double a, double b) {
    if (std::isnan(a)) return false;
    if (std::isnan(b)) return true;
    return m.higher_is_better ? a > b : a < b;
}

}  // namespace qk::graph
