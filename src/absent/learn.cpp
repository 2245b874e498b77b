// SPDX-License-Identifier: Apache-2.0
// What answers where the component learn is left out: every function says so.
#include "learn/learn_rounding.hpp"
#include "learn/rotate.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/learn/finetune.hpp"

namespace qk::graph {
namespace {

[[noreturn]] void no_learn(const char* what) {
    throw error(std::string(what) + " needs the component learn, which this build leaves out; configure qk with -DQK_BUILD_LEARN=ON");
}

}  // namespace

bool has_learn() { return false; }

std::vector<learned_weight> learn_rounding(model&, precision_plan&, const named_tensors&,
                                           const std::function<weight_rounding(const std::string&)>&, const learn_options&,
                                           const progress&) {
    no_learn("learned rounding or a correction of biases");
}
void add_to(quantize_report&, const std::vector<learned_weight>&) {}
std::vector<rotated_stream> rotate_streams(model&, std::uint64_t) { no_learn("a rotation"); }
void add_to(quantize_report&, const std::vector<rotated_stream>&) {}
finetune_result finetune(const model&, const precision_plan&, const named_tensors&, std::span<const std::int64_t>, const finetune_options&,
                         const progress&) {
    no_learn("fine-tuning");
}

}  // namespace qk::graph
