// SPDX-License-Identifier: Apache-2.0
// Requests for layers by name and by type. Includes one door of the installed package.
#include <qk/graph/plan.hpp>

qk::graph::precision_requests wishes() {
    qk::graph::precision_requests requests;
    requests.set_default("int8", "int8");
    requests.set_precision("stem", "int16", {{"weight", "int16"}});
    return requests;
}
