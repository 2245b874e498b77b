// SPDX-License-Identifier: Apache-2.0
// The search for the layers that bear a narrow format. Includes one door of the installed package.
#include <qk/graph/search.hpp>

qk::graph::search_result narrowest(const qk::graph::model& m, const qk::graph::named_tensors& data, const qk::graph::calibration& seen) {
    qk::graph::search_options options;
    return qk::graph::search(m, data, seen, options);
}
