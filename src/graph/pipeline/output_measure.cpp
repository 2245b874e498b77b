// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/output_measure.hpp"

#include <stdlib.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/ops/elements.hpp"
#include "qk/graph/evaluate/accuracy.hpp"

namespace qk::graph::pipeline {

kept_samples::~kept_samples() {
    if (file_ >= 0) ::close(file_);
}

/// Returns the offset of a value in the file, which is made when it is first needed.
std::int64_t kept_samples::room_for(std::size_t bytes) {
    if (file_ < 0) {
        std::error_code failed;
        folder_ = std::filesystem::temp_directory_path(failed);
        if (failed) throw error("there is no folder to keep the reference's outputs in (" + failed.message() + "); set TMPDIR to one");
        std::string name = (folder_ / "qk-reference-XXXXXX").string();
        file_ = ::mkstemp(name.data());
        if (file_ < 0)
            throw error("cannot keep the reference's outputs in '" + folder_.string() + "' (" + std::strerror(errno) +
                        "); set TMPDIR to another folder");
        ::unlink(name.c_str());  // the file disappears with the process, however that ends
    }
    const std::int64_t at = end_;
    end_ += static_cast<std::int64_t>(bytes);
    return at;
}

void kept_samples::keep(std::size_t sample, const tensor& value) {
    constexpr std::size_t most_in_memory = std::size_t{1} << 24;
    place& p = places_.at(sample);
    p.type = value.type(), p.shape = value.shape();
    const std::size_t bytes = value.size_bytes();
    {
        const std::lock_guard lock(growing_);
        if (in_memory_ + bytes <= most_in_memory) {
            in_memory_ += bytes;
            p.held = tensor(value.type(), value.shape());
        } else {
            p.offset = room_for(bytes);
        }
    }
    if (bytes == 0) return;
    if (!p.held.empty()) {
        std::memcpy(p.held.bytes(), value.bytes(), bytes);
        return;
    }
    for (std::size_t done = 0; done < bytes;) {
        const ::ssize_t n =
            ::pwrite(file_, value.bytes() + done, bytes - done, static_cast<::off_t>(p.offset + static_cast<std::int64_t>(done)));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            throw error("cannot keep the reference's outputs in '" + folder_.string() + "' (" + std::strerror(errno) + " after " +
                        std::to_string((p.offset + static_cast<std::int64_t>(done)) >> 20) +
                        " MB); set TMPDIR to a folder of a larger disk, or measure fewer samples with --samples");
        done += static_cast<std::size_t>(n);
    }
}

tensor kept_samples::take(std::size_t sample) const {
    const place& p = places_.at(sample);
    if (!p.held.empty()) return p.held;
    tensor value(p.type, p.shape);
    for (std::size_t done = 0; done < value.size_bytes();) {
        const ::ssize_t n = ::pread(file_, value.bytes() + done, value.size_bytes() - done,
                                    static_cast<::off_t>(p.offset + static_cast<std::int64_t>(done)));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) throw error("cannot read the reference's outputs again from '" + folder_.string() + "' (" + std::strerror(errno) + ")");
        done += static_cast<std::size_t>(n);
    }
    return value;
}

output_measure::output_measure(const model& m, const named_tensors& inputs, std::vector<std::string> names, int output_index,
                               std::vector<std::int64_t> labels, position_options options, bool compared)
    : model_(&m),
      inputs_(&inputs),
      names_(std::move(names)),
      output_(static_cast<std::size_t>(output_index)),
      labels_(std::move(labels)),
      options_(std::move(options)) {
    if (output_index < 0 || output_ >= m.outputs().size())
        throw error("--output-index " + std::to_string(output_index) + " is out of range: the model has " +
                    std::to_string(m.outputs().size()) + " outputs, counted from 0");
    output_name_ = m.outputs()[output_].name;
    for (const std::string& name : names_) {
        const metric& asked = find_metric(name);
        if (asked.needs_labels && labels_.empty() && !options_.next_token)
            throw error("metric " + name + " needs --labels, or --next-token for a language model");
        if (!asked.needs_labels && !compared)
            throw error("metric " + name + " compares with a reference: give formats (--activation, --weight, --plan) or --compare DIR");
        metrics_.push_back(&asked);
    }
    if (names_.empty())
        for (const char* usual : {"top1", "top5", "loss", "perplexity"}) metrics_.push_back(&find_metric(usual));
}

bool output_measure::compares() const {
    return !names_.empty() && std::ranges::any_of(metrics_, [](const metric* m) { return !m->needs_labels; });
}

output_consumer output_measure::reference() {
    return {[this](std::size_t samples) { kept_.reset(samples); },
            [this](std::size_t sample, std::span<const tensor> outputs) { kept_.keep(sample, outputs[output_]); }};
}

output_consumer output_measure::measured() {
    return {[this](std::size_t samples) { begin(samples); },
            [this](std::size_t sample, std::span<const tensor> outputs) { take(sample, outputs[output_]); }};
}

void output_measure::begin(std::size_t samples) {
    samples_ = samples;
    where_ = positions(*model_, *inputs_, samples, labels_, options_);
    checked_ = labels_.empty() || !inputs_->ragged.empty();
    terms_.assign(metrics_.size(), std::vector<metric_terms>(samples));
}

tensor output_measure::reference_of(std::size_t sample) const {
    if (!kept_.empty()) return kept_.take(sample);
    return joined_ == nullptr ? tensor() : execute::sample_of(*joined_, output_name_, sample, samples_);
}

std::vector<float> output_measure::floats(const tensor& t) const {
    std::vector<float> v(t.size());
    if (!t.empty() && !ops::read_elements(t.type(), t.bytes(), std::span<float>(v)))
        throw error("output '" + output_name_ + "' has type " + name_of(t.type()) + ", which no metric can compare");
    return v;
}

void output_measure::take(std::size_t sample, const tensor& y) {
    // Where samples are alike the first output tells which labels of all of them are wrong.
    if (!checked_.exchange(true))
        for (std::size_t s = 0; s < samples_; ++s) where_.check(y.shape(), s);
    const bool sequence = choices_of(y.shape(), labels_.size() / samples_).positions;
    if (sequence) sequences_ = true;
    if (names_.empty() && !sequence) {
        if (labels_.empty())
            throw error("--next-token measures outputs [N,S,V]; '" + output_name_ + "' is " + to_string(y.shape()) + " for each sample");
        where_.check(y.shape(), sample);
        std::size_t most = values_;
        while (y.size() > most && !values_.compare_exchange_weak(most, y.size())) {
        }
        if (where_.is_ignored(sample)) return;
        const std::int64_t label = where_.labels().at(sample);
        terms_[0][sample][0] = in_top_k(y, label, 1);
        terms_[1][sample][0] = in_top_k(y, label, 5);
        terms_[0][sample][counted] = terms_[1][sample][counted] = 1;
        return;
    }
    const tensor r = compares() ? reference_of(sample) : tensor();
    if (compares() && r.shape() != y.shape())
        throw error("output '" + output_name_ + "' of sample " + std::to_string(sample) + " has shape " + to_string(y.shape()) +
                    ", its reference " + to_string(r.shape()));
    const std::vector<float> values = floats(y), expected = floats(r);
    for (std::size_t i = 0; i < metrics_.size(); ++i) terms_[i][sample] = where_.terms(*metrics_[i], y.shape(), values, expected, sample);
}

void output_measure::write(nlohmann::ordered_json& json) const {
    const bool choices = names_.empty() && !sequences_;  // one class for each sample
    for (std::size_t i = 0; i < (choices ? 2 : metrics_.size()); ++i) {
        metric_terms sums{};
        for (const metric_terms& one : terms_[i])  // in sample order, whichever thread computed them
            for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += one[k];
        if (choices && i == 1 && values_ <= 5) continue;  // with at most five classes, top5 is always 1
        const std::string name(metrics_[i]->name);
        json[name] = where_.finish(*metrics_[i], sums);
    }
}

}  // namespace qk::graph::pipeline
