// SPDX-License-Identifier: Apache-2.0
// What the command `qk quantize` does, as one call. Includes one door of the installed package.
#include <qk/graph/pipeline.hpp>

double bytes_saved(const char* from, const char* to) {
    qk::graph::pipeline::quantize_settings settings;
    settings.model = from;
    settings.output = to;
    const qk::graph::pipeline::quantize_outcome outcome = qk::graph::pipeline::quantize(settings);
    return outcome.bytes_before - outcome.bytes_after;
}
