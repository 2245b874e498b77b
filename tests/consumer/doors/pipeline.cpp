// SPDX-License-Identifier: Apache-2.0
// What the command `qk quantize` does, as one call, with files and without. Includes one door of the installed package.
#include <qk/graph/pipeline.hpp>

double bytes_saved(const char* from, const char* to) {
    qk::graph::pipeline::quantize_settings settings;
    settings.model = from;
    settings.output = to;
    const qk::graph::pipeline::quantize_outcome outcome = qk::graph::pipeline::quantize(settings);
    return outcome.bytes_before - outcome.bytes_after;
}

/// Returns the model in int8, or "" where the user has pressed a button meanwhile.
std::string in_int8(const std::string& model, const qk::graph::tensor& images, const std::atomic<bool>& pressed) {
    namespace pipeline = qk::graph::pipeline;
    pipeline::quantize_settings settings;
    settings.model = pipeline::model_source::of_bytes(model);
    settings.data.calibration = qk::graph::named_tensors{{"image", images}};
    settings.precision.activation = settings.precision.weight = "int8";
    settings.returns_model = true;
    settings.cancel = [&] { return pressed.load(); };
    try {
        return pipeline::quantize(settings).model;
    } catch (const pipeline::cancelled&) {
        return "";
    }
}
