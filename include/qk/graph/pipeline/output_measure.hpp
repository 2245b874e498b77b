// SPDX-License-Identifier: Apache-2.0
// Computes the metrics of `qk evaluate` while the model runs: it holds a few sums for each sample, not the outputs.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/search/metric.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph::pipeline {

/// Keeps one tensor per sample until it is read again: the first 16 MiB in memory, the rest in an unlinked file.
class kept_samples {
  public:
    kept_samples() = default;
    ~kept_samples();
    kept_samples(const kept_samples&) = delete;
    kept_samples& operator=(const kept_samples&) = delete;

    void reset(std::size_t samples) { places_.assign(samples, {}); }
    /// May be called from several threads at once. Throws, naming the folder and TMPDIR, if the disk takes no more.
    void keep(std::size_t sample, const tensor& value);
    tensor take(std::size_t sample) const;
    bool empty() const { return places_.empty(); }

  private:
    struct place {
        tensor held;  ///< empty: in the file
        data_type type = data_type::undefined;
        dims shape;
        std::int64_t offset = 0;
    };
    std::int64_t room_for(std::size_t bytes);

    std::vector<place> places_;
    std::mutex growing_;
    std::size_t in_memory_ = 0;
    std::int64_t end_ = 0;
    int file_ = -1;
    std::filesystem::path folder_;
};

/// The metrics of one output: the named ones; if none are named and there are labels, the usual ones.
class output_measure {
  public:
    /// Throws for an unknown metric, for an output that the model lacks, and for a metric whose labels are missing, or whose reference is
    /// (`compared` false).
    output_measure(const model& m, const named_tensors& inputs, std::vector<std::string> names, int output_index,
                   std::vector<std::int64_t> labels, position_options options, bool compared);

    /// Is true when something is measured.
    bool any() const { return !names_.empty() || !labels_.empty() || options_.next_token; }
    /// Is true when a metric compares with a reference; the reference has to run first.
    bool compares() const;
    /// Returns a consumer for the outputs that others are compared with.
    output_consumer reference();
    /// Sets joined outputs as the reference; they must outlive the measure.
    void set_reference(const named_tensors& joined) { joined_ = &joined; }
    /// Returns a consumer for the outputs that are measured.
    output_consumer measured();
    /// Writes the metrics by name, in the order that they were asked for.
    void write(nlohmann::ordered_json& json) const;
    /// Returns the first metric's terms of each sample.
    const std::vector<metric_terms>& terms() const { return terms_.front(); }

  private:
    void begin(std::size_t samples);
    void take(std::size_t sample, const tensor& y);
    tensor reference_of(std::size_t sample) const;
    std::vector<float> floats(const tensor& t) const;

    const model* model_;
    const named_tensors* inputs_;
    std::vector<std::string> names_;
    std::size_t output_;
    std::string output_name_;
    std::vector<std::int64_t> labels_;
    position_options options_;
    std::size_t samples_ = 0;
    positions where_;
    std::vector<const metric*> metrics_;            ///< the metrics of names_, or the usual ones for sequences
    std::vector<std::vector<metric_terms>> terms_;  ///< by metric and sample
    std::atomic<bool> checked_ = true;              ///< no labels of samples that are alike are left to look at
    std::atomic<bool> sequences_ = false;           ///< the output has rank 3
    std::atomic<std::size_t> values_ = 0;           ///< size of the largest sample
    kept_samples kept_;
    const named_tensors* joined_ = nullptr;
};

}  // namespace qk::graph::pipeline
