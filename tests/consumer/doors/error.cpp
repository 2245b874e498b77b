// SPDX-License-Identifier: Apache-2.0
// A sentence for a person. Includes one door of the installed package.
#include <cstdio>
#include <qk/graph/error.hpp>

int complain(const qk::graph::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
}
