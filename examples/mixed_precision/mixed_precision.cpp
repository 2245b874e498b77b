// SPDX-License-Identifier: Apache-2.0
// AIMET's manual mixed precision written for qk: precisions of a leaf, a group, a type, model inputs and outputs, and parameters, and
// apply(log, strict).
#include <cstdio>
#include <exception>
#include <string>

#include "qk/graph/calibrate.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/model.hpp"
#include "qk/graph/quantize.hpp"

int main(int argc, char** argv) try {
    using namespace qk::graph;
    if (argc != 2) {
        std::fprintf(stderr, "usage: mixed_precision FOLDER_OF_DIGITS\n");
        return 2;
    }
    const std::string folder = argv[1];
    model m = model::load(folder + "/digits.onnx");
    fold_constants(m);
    fold_batch_normalization(m);
    const named_tensors data{{"image", read_npy(folder + "/test_images.npy")}};
    const calibration seen = calibrate(m, data);

    precision_requests mp;
    mp.set_default("int8", "int8");
    mp.set_precision("stem", "int16", {{"weight", "int16"}});                 // a leaf
    mp.set_group_precision("block1", role::input, parse_precision("int16"));  // a group
    mp.set_type_precision("Gemm", role::weight, parse_precision("int4"));     // a type
    mp.set_model_input_precision({"int16"});
    mp.set_model_output_precision({"fp16"});
    const quantize_result result = quantize(m, mp, seen);  // {.strict = true}: requests not met are errors
    std::printf("%s", result.report.text().c_str());

    const evaluator run(m);
    const tensor reference = run.run(data).outputs.at("logits"), mixed = run.run(data, result.plan).outputs.at("logits");
    std::printf("SQNR of the logits: %.1f dB\n", sqnr(reference.as<float>(), mixed.as<float>()));
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
}
