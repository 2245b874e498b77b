// SPDX-License-Identifier: Apache-2.0
#include "hardware/devices/device_layer.hpp"
#include "qk/dot/text.hpp"
#include "qk/graph/hardware.hpp"

namespace qk::hardware {
namespace {

void check(const std::string& text, const std::string& origin) {
    if (const auto a = parse_accumulator(text); !a) throw graph::error(origin + ": " + std::string(a.error.view()));
}

std::shared_ptr<const graph::device_layer> make(const graph::execute::net_node& node, const std::string& accumulator,
                                                const graph::quantizer* x, const graph::quantizer* w, const graph::tensor& weights) {
    return std::make_shared<graph::execute::unit_layer>(node, accumulator, x, w, weights);
}

}  // namespace

void enter() {
    static constexpr graph::device_functions functions{.check = check, .make = make};
    graph::device_component.enter(functions);
}

}  // namespace qk::hardware
