// SPDX-License-Identifier: Apache-2.0
// ./dev demo runs this: compares the shipped digits network in float32 and in five formats.
//   demo [FOLDER]     FOLDER holds digits.onnx, test_images.npy, test_labels.npy, train_images.npy (default: examples/digits)
#include <cstdio>
#include <filesystem>
#include <qk/graph/calibrate.hpp>
#include <qk/graph/evaluate.hpp>
#include <qk/graph/files.hpp>
#include <qk/graph/plan.hpp>
#include <qk/graph/quantize.hpp>
#include <qk/graph/search.hpp>
#include "qk/graph/model.hpp"

namespace {

using namespace qk::graph;

/// Returns a metric of outputs; a row is one sample.
double measure(const char* name, const tensor& y, const tensor& reference, std::span<const std::int64_t> labels) {
    const metric& m = find_metric(name);
    const std::size_t rows = labels.size(), width = y.size() / rows;
    metric_terms sums{};
    for (std::size_t r = 0; r < rows; ++r) {
        const metric_terms t =
            m.sample(y.as<float>().subspan(r * width, width), reference.as<float>().subspan(r * width, width), labels[r]);
        for (std::size_t i = 0; i < t.size(); ++i) sums[i] += t[i];
    }
    return m.finish(sums, rows);
}

/// Returns the first `count` images, or all if there are fewer.
tensor first(const tensor& images, std::int64_t count) {
    dims shape = images.shape();
    shape[0] = std::min(shape[0], count);
    return {images.type(), shape, images.buffer()};
}

void run(const std::filesystem::path& folder) {
    model network = model::load(folder / "digits.onnx");
    fold_constants(network);
    fold_batch_normalization(network);
    const std::string input = network.inputs()[0].name, output = network.outputs()[0].name;
    const tensor images = read_npy(folder / "test_images.npy"), labels = read_npy(folder / "test_labels.npy");

    const evaluator evaluate(network);
    const calibration seen = calibrate(network, {{input, first(read_npy(folder / "train_images.npy"), 256)}});
    planner plans(network, &seen);
    const tensor reference = evaluate.run({{input, images}}).outputs.at(output);
    const double whole = static_cast<double>(std::filesystem::file_size(folder / "digits.onnx"));

    std::printf("A residual CNN on %lld handwritten digits of 8 x 8; activations and weights in the same format.\n\n",
                static_cast<long long>(images.dim(0)));
    std::printf("%-12s %16s %14s %9s %10s\n", "format", "bits per weight", "model, bytes", "top-1", "SQNR, dB");
    for (const char* name : {"fp32", "int8", "int4", "bfp16", "mxfp8_e4m3", "mxfp4"}) {
        precision_requests requests;
        requests.set_default(name, name);
        const precision_plan plan = plans.plan(requests.list(), {.per_channel = true}).plan;
        const tensor y = evaluate.run({{input, images}}, plan).outputs.at(output);
        const plan_cost cost = cost_of(plans.layers(), plan, &seen);
        const double top1 = measure("top1", y, reference, labels.as<std::int64_t>()),
                     sqnr = measure("sqnr", y, reference, labels.as<std::int64_t>());
        std::printf("%-12s %16.2f %14.0f %8.2f%% ", name, qk::bits_per_value(format_from(name)),
                    whole - (cost.float_weight_bits - cost.weight_bits) / 8, 100 * top1);
        if (plan == precision_plan{}) {
            std::printf("%10s\n", "-");
        } else {
            std::printf("%10.2f\n", sqnr);
        }
    }
    std::printf(
        "\nInteger scales: per tensor for activations (min-max over 256 training images), per channel for weights. Model: the file with "
        "its\n"
        "weights stored in that format.\n");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        run(argc > 1 ? argv[1] : "examples/digits");
    } catch (const std::exception& e) {
        std::fprintf(stderr, "demo: %s\n", e.what());
        return 2;
    }
}
