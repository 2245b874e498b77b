// SPDX-License-Identifier: Apache-2.0
// What answers in the graph module where the component hardware is left out: a request for an accumulator is an error that says so.
#include "hardware/devices/device_layer.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/plan/accumulators.hpp"

namespace qk::graph {

void check_accumulator_text(const std::string&, const std::string& origin) {
    throw error(origin +
                ": an accumulator needs the component hardware, which this build leaves out; configure qk with -DQK_BUILD_HARDWARE=ON");
}

namespace execute {

device_layer::device_layer(const net_node&, const std::string& text, const quantizer*, const quantizer*, const tensor&) {
    check_accumulator_text(text, "a plan's accumulator " + text);
}
tensor device_layer::run(const tensor&, const tensor&, const tensor&, allocator&) const { return {}; }

}  // namespace execute
}  // namespace qk::graph
