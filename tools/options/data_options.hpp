// SPDX-License-Identifier: Apache-2.0
// The options by which verbs take data: --inputs, --labels, --preprocess, --samples, --calibration, --threads.
#pragma once

#include <string>
#include <vector>

#include "options/option_table.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::tool {

struct data_options {
    std::vector<std::string> inputs, calibration;
    std::string labels, preprocess;
    std::size_t samples = 0;  ///< 0: all
    int threads = 0;

    /// Adds the options to a verb.
    void add(option_table& verb, bool inputs_required = true);

    /// The data for the model's inputs, preprocessed, cut to `samples`. Error if there are fewer.
    graph::named_tensors load_inputs(const graph::model& m) const;
    /// Data to calibrate with, preprocessed: --calibration, or the inputs. A calibration file is not data: see calibration_file().
    graph::named_tensors load_calibration(const graph::model& m) const;
    /// --labels, as many as `samples` asks for; empty if not given.
    std::vector<std::int64_t> load_labels() const;

  private:
    std::string misfit(const graph::tensor& value, const graph::value_info& input, const char* option, const std::string& more) const;
    std::vector<std::int64_t> folder_labels() const;
    graph::named_tensors load(const graph::model& m, const std::vector<std::string>& arguments, const char* option, bool cut) const;
};

}  // namespace qk::tool
