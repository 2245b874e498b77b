// SPDX-License-Identifier: Apache-2.0
// What the built-in target profiles refuse, and what they fill in: asked of the profiles themselves. tests/tool/targets.py runs the files.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "qk/formats/catalogue.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/target.hpp"

using namespace qk::graph;

namespace {

precision in(const char* format, int block = 0, std::optional<bool> symmetric = {}) {
    precision p{.format = qk::find_format(format)->format, .symmetric = symmetric};
    if (block > 0) p.block_size = block;
    return p;
}

struct question {
    std::string target, layer;
    precision activation, weight;
    std::string obstacle;  ///< a part of the sentence; "": it runs
    bool dynamic = false;
};

}  // namespace

TEST_CASE("profiles say which layers they have no kernel for") {
    const question questions[] = {
        {"tensorrt", "Conv", in("int8"), in("int8"), ""},
        {"tensorrt", "Conv", in("uint8"), in("int8"), "has no Conv with activation uint8"},
        {"tensorrt", "Conv", in("int8"), in("int8", 0, false), "weights without zero points alone"},
        {"tensorrt", "Conv", in("int8"), in("int8"), "scales that are known beforehand", true},
        {"tensorrt", "Gemm", in("fp32"), in("int8"), "with activation fp32 and weight int8"},
        {"tensorrt", "Gemm", in("fp32"), in("int4", 32), "blocks of 64, 128 in weights of 4 bits, not of 32"},
        {"tensorrt", "MatMul", in("fp32"), in("int4", 64), ""},
        {"tensorrt", "Conv", in("nvfp4"), in("nvfp4"), "has no Conv with activation nvfp4"},
        {"tensorrt", "MatMul", in("nvfp4"), in("nvfp4"), ""},
        {"qnn", "Gemm", in("fp16"), in("int8"), "with activation fp16 and weight int8"},
        {"qnn", "Gemm", in("int8"), in("fp16"), "with activation int8 and weight fp16"},
        {"qnn", "Gemm", in("int16"), in("int16"), ""},
        {"qnn", "Gemm", in("fp16"), in("fp16"), ""},
        {"qnn", "Gemm", in("int16"), in("int4"), ""},
        {"qnn_v69", "Conv", in("int16"), in("int16"), "has no Conv with"},
        {"qnn_v69", "Conv", in("fp16"), in("fp16"), "has no Conv with"},
        {"qnn", "MatMul", in("int8"), in("int4", 32), "beside activations of 16 bits alone"},
        {"qnn", "MatMul", in("int16"), in("int4", 32), ""},
        {"vitis_ai", "Conv", in("uint8"), in("int8"), "has no Conv with"},
        {"vitis_ai", "Conv", in("bfp16"), in("bfp16"), ""},
        {"onnxruntime", "Conv", in("int8"), in("int4"), "has no Conv with activation int8 and weight int4"},
        {"onnxruntime", "MatMul", in("int8"), in("int4"), ""},
        {"openvino", "GRU", in("int8"), in("int8"), "has no GRU with activation int8 and weight int8"},
        {"openvino", "GRU", in("bfp16"), in("bfp16"), ""},
    };
    for (const question& q : questions) {
        const std::string said = builtin_target(q.target).value().obstacle(q.layer, {q.activation}, &q.weight, q.dynamic);
        INFO(q.target, " ", q.layer, ": '", said, "', and expected '", q.obstacle, "'");
        CHECK((q.obstacle.empty() ? said.empty() : said.find(q.obstacle) != std::string::npos));
    }
}

TEST_CASE("profiles fill in what a request leaves open, and nothing that it says") {
    const auto completed = [](const char* target, precision p, const char* layer, bool weight) {
        builtin_target(target).value().complete(p, layer, weight);
        return p;
    };
    CHECK(completed("tensorrt", in("int8"), "Conv", false).symmetric == true);
    CHECK(completed("tensorrt", in("int8", 0, false), "Conv", false).symmetric == false);
    CHECK(completed("tensorrt", in("int4"), "MatMul", true).block_size == 128);
    CHECK(completed("tensorrt", in("mxfp8_e4m3"), "MatMul", true).scale_rule == qk::scale_rule::rceil);
    CHECK(completed("qnn_v66", in("int8"), "Conv", true).per_channel == false);
    for (const auto& [target, layer, one] :
         {std::tuple{"qnn_v68", "Conv", false}, {"qnn_v68", "Gemm", true}, {"qnn_v69", "MatMul", false}}) {
        INFO(target, " ", layer);
        CHECK((completed(target, in("int8"), layer, true).per_channel == false) == one);
    }
}

TEST_CASE("every name of a profile is one, and no other") {
    for (const std::string& name : builtin_target_names()) CHECK(builtin_target(name).value().name == name);
    CHECK_FALSE(builtin_target("tensorr").has_value());
}
