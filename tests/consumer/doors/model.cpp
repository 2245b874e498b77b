// SPDX-License-Identifier: Apache-2.0
// A model loaded, folded and saved. Includes one door of the installed package.
#include <qk/graph/model.hpp>

void fold(const char* from, const char* to) {
    qk::graph::model m = qk::graph::model::load(from);
    qk::graph::fold_constants(m);
    m.save(to);
}
