// SPDX-License-Identifier: Apache-2.0
#include "learn/learn_rounding.hpp"
#include "learn/rotate.hpp"
#include "qk/graph/learn.hpp"

namespace qk::learn {

void enter() {
    static constexpr graph::learn_functions functions{.learn_rounding = learn_rounding, .rotate_streams = rotate_streams};
    graph::learn_component.enter(functions);
}

}  // namespace qk::learn
