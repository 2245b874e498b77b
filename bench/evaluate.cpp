// SPDX-License-Identifier: Apache-2.0
// Measures images per second of the evaluator in float32; prints one JSON line for each network and setting:
//   build/release/bench/evaluate DIR [--only NAME] [--threads T] [--batch B] [--seconds S]
// bench/evaluate.py runs onnxruntime beside it. Data is random; time is evaluate_result::seconds, without loading and preparation.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "machine.hpp"
#include "qk/graph/evaluate.hpp"

namespace {

using namespace qk::graph;

struct network {
    const char* name;
    int batch;  ///< images a run, with 4 threads; ultraface is fixed to batch 1 and runs them side by side
};
constexpr network networks[] = {{"resnet20_cifar10_folded", 16},
                                {"squeezenet1.1_imagenet", 16},
                                {"kwt1_mfcc", 16},
                                {"magika_v3_3", 16},
                                {"ultraface_version-RFB-320_simplified", 16}};

named_tensors random_inputs(const model& m, int samples) {
    std::mt19937 random(1);
    named_tensors all;
    for (const value_info& v : m.inputs()) {
        dims shape;
        for (const dimension& d : v.shape) shape.push_back(d.value);
        shape[0] = samples;
        tensor t(v.type, shape);
        if (v.type == data_type::int32)
            for (auto& x : t.as<std::int32_t>()) x = static_cast<std::int32_t>(random() % 257);
        else
            for (auto& x : t.as<float>()) x = std::normal_distribution<float>()(random);
        all[v.name] = std::move(t);
    }
    return all;
}

void measure(const std::filesystem::path& file, const char* name, int threads, int batch, double least) {
    const evaluator e(model::load(file), {.threads = threads});
    const named_tensors inputs = random_inputs(e.source(), batch);
    double seconds = 0, best = 0;
    int images = 0;
    std::size_t peak = 0;
    for (int runs = 0; runs < 3 || seconds < least; ++runs) {
        const auto r = e.run(inputs);
        seconds += r.seconds;
        images += batch;
        peak = r.peak_bytes;
        best = std::max(best, batch / r.seconds);
    }
    std::printf(
        "{\"network\": \"%s\", \"threads\": %d, \"batch\": %d, \"images_per_second\": %.1f, \"best\": %.1f, \"peak_bytes\": %zu, "
        "\"processor\": \"%s\", \"compiler\": \"%s\"}\n",
        name, threads, batch, images / seconds, best, peak, qk::bench::processor().c_str(), qk::bench::compiler().c_str());
    std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
    std::string folder, only;
    int threads = 0, batch = 0;
    double seconds = 1;
    for (int i = 1; i < count; ++i) {
        const std::string a = arguments[i];
        const char* value = i + 1 < count ? arguments[i + 1] : "";
        if (a == "--only") only = value, ++i;
        else if (a == "--threads") threads = std::atoi(value), ++i;
        else if (a == "--batch") batch = std::atoi(value), ++i;
        else if (a == "--seconds") seconds = std::atof(value), ++i;
        else folder = a;
    }
    if (folder.empty()) {
        std::fprintf(stderr, "usage: evaluate DIR [--only NAME] [--threads T] [--batch B] [--seconds S]\n");
        return 2;
    }
    try {
        for (const network& n : networks) {
            const std::filesystem::path file = std::filesystem::path(folder) / (std::string(n.name) + ".onnx");
            if ((!only.empty() && only != n.name) || !std::filesystem::exists(file)) continue;
            if (threads > 0) {
                measure(file, n.name, threads, batch > 0 ? batch : 1, seconds);
            } else {
                measure(file, n.name, 1, 1, seconds);
                measure(file, n.name, 4, n.batch, seconds);
            }
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 2;
    }
}
