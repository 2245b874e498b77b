// SPDX-License-Identifier: Apache-2.0
// What calibration records of a tensor, and the ranges that its methods choose from it. docs/reference/numerics.md, "Calibration".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

/// Counts of magnitudes, negative and positive values apart, in bins of width 2^exponent. The width doubles when a larger magnitude
/// arrives; merging two bins is exact, so the histogram of a set of values is the same in whatever order and pieces they arrive.
/// Memory follows what was counted: a list of the bins in use, then counters of 16, 32 and 64 bits for all bins.
class magnitude_histogram {
  public:
    static constexpr std::size_t bins = 4096;  ///< at least 2048 of them in use once the largest magnitude is known

    void add(std::span<const float> values);  ///< counts the finite ones
    void add(const magnitude_histogram& other);

    bool empty() const { return count_ == 0; }
    double width() const;  ///< of a bin
    int exponent() const { return exponent_; }
    std::vector<std::uint64_t> positive() const { return side(0); }  ///< a count for each bin
    std::vector<std::uint64_t> negative() const { return side(bins); }
    std::uint64_t count() const { return count_; }
    std::size_t bytes() const;  ///< of memory, at most 64 kB

    static magnitude_histogram restore(int exponent, const std::vector<std::uint64_t>& positive,
                                       const std::vector<std::uint64_t>& negative);
    friend bool operator==(const magnitude_histogram& a, const magnitude_histogram& b) {
        return a.exponent_ == b.exponent_ && a.positive() == b.positive() && a.negative() == b.negative();
    }

  private:
    struct bin_count {
        std::uint32_t place;  ///< the bin; `bins` more for negative values
        std::uint64_t count;
    };
    using few = std::vector<bin_count>;  ///< by place, each once
    template <class Visit>
    void for_each(const Visit& visit) const;  ///< visit(place, count)
    std::vector<std::uint64_t> side(std::size_t first) const;
    void widen(int exponent);
    void make_room(std::size_t places, std::uint64_t more);
    void add(std::vector<bin_count> more);

    int exponent_ = 0;
    std::uint64_t count_ = 0;  ///< of all values: no counter of a width that holds it overflows
    std::variant<few, std::vector<std::uint16_t>, std::vector<std::uint32_t>, std::vector<std::uint64_t>> counts_;
};

struct tensor_statistics {
    dims shape;           ///< the smallest one observed, in lexicographic order
    value_range range;    ///< of finite values
    value_range average;  ///< moving average of each sample's range, if requested
    bool averaged = false;
    std::uint64_t count = 0;  ///< values seen
    std::uint64_t not_finite = 0;
    std::uint64_t nan = 0;          ///< of those that are not finite
    std::uint64_t nan_sample = 0;   ///< the first sample with a NaN, from 0
    magnitude_histogram histogram;  ///< empty when only ranges were requested
    friend bool operator==(const tensor_statistics&, const tensor_statistics&) = default;
};

/// Ranges and histograms by tensor: reusable for any requests, formats and methods.
struct calibration {
    std::map<std::string, tensor_statistics> tensors;
    std::size_t samples = 0;
    std::string whole{};  ///< why rows of the data ran together (evaluate_result::whole); no file keeps it
    bool empty() const { return tensors.empty(); }
    friend bool operator==(const calibration&, const calibration&) = default;
};

struct range_options {
    range_method method = range_method::min_max;
    double percentile = 99.999;
    qk::format format = int8;  ///< what the range is for: mse and entropy depend on it
    bool symmetric = false;
};
/// Returns whether the statistics hold what a method needs.
bool can_choose(const tensor_statistics& seen, range_method method);
/// Returns the range that a method chooses, never larger than what was seen. Throws error naming `tensor` when statistics are missing.
value_range choose_range(const tensor_statistics& seen, const range_options& options, const std::string& tensor);

/// Centres of the bins, signed, and their counts: they stand in for the values themselves.
struct histogram_points {
    std::vector<float> values;
    std::vector<double> weights;
};
histogram_points points_of(const tensor_statistics& seen);

/// Returns the mean squared error that a quantizer causes on what was seen, estimated from the histogram.
double estimated_error(const tensor_statistics& seen, const quantizer& q);

/// JSON: {"qk": "calibration", "version": 1, "samples", "tensors": {NAME: {"shape", "range", "count", "histogram"}}}.
void save_calibration(const calibration& c, const std::filesystem::path& file);
calibration load_calibration(const std::filesystem::path& file);
/// Returns whether a file begins like JSON, which tells a calibration file from data.
bool is_calibration_file(const std::filesystem::path& file);

}  // namespace qk::graph
