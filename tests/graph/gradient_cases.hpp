// SPDX-License-Identifier: Apache-2.0
// One node for each operator that has a vector-Jacobian product, with its attributes and inputs, for gradient_test.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "call_op.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk_test {

/// An input of a node: random reals in [low, high], or the integers in `whole` if there are any.
struct given_input {
    qk::graph::dims shape;
    double low = -2, high = 2;
    std::vector<std::int64_t> whole = {};
    bool is_bool = false, omitted = false, is_byte = false;
};

struct gradient_case {
    std::string op;  ///< "Add", "com.microsoft:Gelu"
    std::vector<given_input> inputs;
    attributes given = {};
    int version = 17;
    bool single = false;      ///< inputs are float32 instead of float64, because the operator computes in float32
    std::size_t outputs = 1;  ///< number of outputs; each real one gets a gradient
};

inline given_input real(qk::graph::dims shape, double low = -2, double high = 2) { return {std::move(shape), low, high}; }
inline given_input whole(qk::graph::dims shape, std::vector<std::int64_t> values) { return {std::move(shape), 0, 0, std::move(values)}; }
inline given_input condition(qk::graph::dims shape, std::vector<std::int64_t> values) {
    return {std::move(shape), 0, 0, std::move(values), true};
}
inline given_input bytes(qk::graph::dims shape, std::vector<std::int64_t> values) {
    given_input i = whole(std::move(shape), std::move(values));
    i.is_byte = true;
    return i;
}
inline given_input nothing() {
    given_input i;
    i.omitted = true;
    return i;
}

inline std::vector<gradient_case> elementwise_cases() {
    std::vector<gradient_case> all;
    for (const char* op : {"Asinh",     "Atan",
                           "Cos",       "Cosh",
                           "Sin",       "Sinh",
                           "Tanh",      "Exp",
                           "Sigmoid",   "Softplus",
                           "Softsign",  "Erf",
                           "Neg",       "Abs",
                           "Ceil",      "Floor",
                           "Round",     "Sign",
                           "Relu",      "LeakyRelu",
                           "Elu",       "Selu",
                           "Celu",      "HardSigmoid",
                           "HardSwish", "ThresholdedRelu",
                           "Shrink",    "Identity",
                           "Dropout",   "Hardmax"})
        all.push_back({op, {real({2, 3, 4}, -4, 4)}});
    for (const char* op : {"Acos", "Asin", "Atanh"}) all.push_back({op, {real({2, 5}, -0.8, 0.8)}});
    for (const char* op : {"Log", "Sqrt", "Reciprocal"}) all.push_back({op, {real({2, 5}, 0.3, 2)}});
    all.push_back({"Acosh", {real({2, 5}, 1.2, 3)}});
    all.push_back({"Tan", {real({2, 5}, -1, 1)}});
    all.push_back({"Mish", {real({2, 5}, -3, 3)}, {}, 18});
    all.push_back({"Gelu", {real({2, 5}, -3, 3)}, {}, 20});
    all.push_back({"Gelu", {real({2, 5}, -3, 3)}, {{"approximate", std::string("tanh")}}, 20});
    all.push_back({"Swish", {real({2, 5}, -3, 3)}, {{"alpha", 1.5f}}, 24});
    all.push_back({"SwiGLU", {real({2, 5}), real({2, 5})}, {}, 28});
    all.push_back({"Clip", {real({2, 9}), real({}, -1, -0.9), real({}, 0.9, 1)}});
    all.push_back({"Clip", {real({2, 9})}, {{"min", -0.5f}, {"max", 0.7f}}, 6});
    all.push_back({"Cast", {real({2, 3})}, {{"to", std::int64_t{11}}}});
    all.push_back({"CastLike", {real({2, 3}), real({1})}});
    for (const char* op : {"Add", "Sub", "Mul", "Sum", "Mean", "Max", "Min"}) {
        all.push_back({op, {real({2, 3, 4}), real({3, 1})}});
        all.push_back({op, {real({3, 1}), real({2, 1, 4})}});
    }
    all.push_back({"Add", {real({2, 3, 4}), real({3})}, {{"axis", std::int64_t{1}}, {"broadcast", std::int64_t{1}}}, 6});
    all.push_back({"Sum", {real({2, 3}), real({3}), real({2, 1})}});
    all.push_back({"Div", {real({2, 3, 4}), real({3, 1}, 0.5, 2)}});
    all.push_back({"Mod", {real({2, 4}, 2.1, 2.9), real({4}, 0.51, 0.69)}, {{"fmod", std::int64_t{1}}}});
    all.push_back({"Pow", {real({2, 3}, 0.5, 2), real({3}, -2, 2)}});
    all.push_back({"PRelu", {real({2, 3, 4}), real({3, 1})}});
    return all;
}

inline std::vector<gradient_case> heavy_cases() {
    const std::int64_t one = 1, two = 2, three = 3;
    using ints = std::vector<std::int64_t>;
    return {
        {"Conv", {real({2, 3, 5, 6}), real({4, 3, 3, 2}), real({4})}, {{"pads", ints{1, 0, 1, 1}}, {"strides", ints{2, 1}}}},
        {"Conv",
         {real({1, 4, 6, 5}), real({6, 2, 3, 3})},
         {{"group", two}, {"dilations", ints{2, 1}}, {"auto_pad", std::string("SAME_LOWER")}}},
        {"Conv", {real({2, 3, 6, 5}), real({3, 1, 3, 3}), real({3})}, {{"group", three}, {"pads", ints{1, 1, 1, 1}}}},
        {"Conv", {real({2, 3, 4, 4}), real({2, 3, 1, 1})}},
        {"Conv", {real({2, 2, 9}), real({3, 2, 3}), real({3})}, {{"strides", ints{2}}, {"auto_pad", std::string("SAME_UPPER")}}},
        {"Conv", {real({1, 2, 4, 3, 5}), real({2, 2, 2, 2, 3})}, {{"pads", ints{1, 0, 1, 0, 0, 1}}}},
        {"ConvTranspose",
         {real({2, 4, 3, 4}), real({4, 3, 3, 2}), real({6})},
         {{"group", two}, {"strides", ints{2, 1}}, {"pads", ints{1, 0, 0, 1}}, {"output_padding", ints{1, 0}}}},
        {"ConvTranspose", {real({1, 2, 5}), real({2, 3, 4})}, {{"strides", ints{3}}, {"auto_pad", std::string("SAME_UPPER")}}},
        {"com.microsoft:FusedConv",
         {real({1, 2, 4, 4}), real({2, 2, 3, 3}), real({2}), real({1, 2, 2, 2})},
         {{"activation", std::string("Tanh")}},
         1,
         true},
        {"Gemm", {real({3, 4}), real({4, 5}), real({5})}, {{"alpha", 0.5f}, {"beta", 2.0f}}},
        {"Gemm", {real({4, 3}), real({5, 4}), real({3, 1})}, {{"transA", one}, {"transB", one}}},
        {"Gemm", {real({4, 3}), real({4, 5}), real({})}, {{"transA", one}}},
        {"Gemm", {real({3, 4}), real({5, 4})}, {{"transB", one}}},
        {"com.microsoft:FusedGemm", {real({3, 4}), real({4, 5}), real({5})}, {{"activation", std::string("Sigmoid")}}, 1, true},
        {"MatMul", {real({2, 3, 4}), real({4, 5})}},
        {"MatMul", {real({2, 1, 3, 4}), real({3, 4, 2})}},
        {"MatMul", {real({4}), real({2, 4, 3})}},
        {"MatMul", {real({2, 3, 4}), real({4})}},
        {"MatMul", {real({4}), real({4})}},
        {"com.microsoft:FusedMatMul", {real({2, 4, 3}), real({2, 5, 4})}, {{"transA", one}, {"transB", one}, {"alpha", 0.5f}}, 1, true},
        {"com.microsoft:TransposeMatMul", {real({3, 2, 4}), real({2, 4, 5})}, {{"transBatchA", one}}, 1, true},
        {"Einsum", {real({2, 3, 4}), real({2, 4, 5})}, {{"equation", std::string("bij,bjk->bik")}}},
        {"Einsum", {real({2, 3}), real({3, 4}), real({4})}, {{"equation", std::string("ij,jk,k->i")}}},
        {"Einsum", {real({3, 3})}, {{"equation", std::string("ii->")}}},
        {"Einsum", {real({2, 3, 4}), real({4})}, {{"equation", std::string("...i,i->...")}}},
        {"Einsum", {real({3, 4})}, {{"equation", std::string("ij->j")}}},
        {"MaxPool", {real({2, 2, 5, 6})}, {{"kernel_shape", ints{3, 2}}, {"strides", ints{2, 2}}, {"pads", ints{1, 0, 1, 1}}}},
        {"MaxPool", {real({1, 2, 9})}, {{"kernel_shape", ints{3}}, {"dilations", ints{2}}, {"ceil_mode", one}, {"strides", ints{2}}}},
        {"AveragePool",
         {real({1, 2, 5, 6})},
         {{"kernel_shape", ints{3, 2}}, {"strides", ints{2, 2}}, {"pads", ints{1, 0, 1, 1}}, {"count_include_pad", one}}},
        {"AveragePool", {real({1, 2, 5, 6})}, {{"kernel_shape", ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}},
        {"LpPool", {real({1, 2, 4, 4})}, {{"kernel_shape", ints{2, 2}}, {"p", three}}},
        {"GlobalAveragePool", {real({2, 3, 2, 2})}},
        {"GlobalMaxPool", {real({2, 3, 2, 2})}},
        {"GlobalLpPool", {real({2, 3, 2, 2})}},
        {"Attention",
         {real({1, 3, 8}), real({1, 5, 4}), real({1, 5, 4}), real({3, 5})},
         {{"q_num_heads", std::int64_t{4}}, {"kv_num_heads", two}, {"softcap", 1.5f}},
         23},
        {"Attention", {real({1, 2, 4, 3}), real({1, 2, 4, 3}), real({1, 2, 4, 2})}, {{"is_causal", one}, {"scale", 0.7f}}, 23},
        {"RotaryEmbedding", {real({1, 2, 3, 4}), real({5, 2}), real({5, 2}), whole({1, 3}, {0, 2, 4})}, {}, 23},
    };
}

inline std::vector<gradient_case> normalizing_cases() {
    const std::int64_t one = 1, two = 2, zero = 0;
    using ints = std::vector<std::int64_t>;
    std::vector<gradient_case> all{
        {"BatchNormalization", {real({2, 3, 2, 2}), real({3}), real({3}), real({3}), real({3}, 0.5, 2)}},
        {"BatchNormalization", {real({2, 3, 2, 2}), real({3}), real({3}), real({3}), real({3}, 0.5, 2)}, {{"training_mode", one}}},
        {"LayerNormalization", {real({2, 3, 4}), real({4}), real({4})}},
        {"LayerNormalization", {real({2, 3, 4}), real({3, 4}), real({3, 4})}, {{"axis", one}}},
        {"RMSNormalization", {real({2, 3, 4}), real({4})}, {}, 23},
        {"SimplifiedLayerNormalization", {real({2, 3, 4}), real({4})}, {}},
        {"com.microsoft:LayerNormalization", {real({2, 4}), real({4}), real({4})}, {}, 1},
        {"com.microsoft:SimplifiedLayerNormalization", {real({2, 4}), real({4})}, {}, 1},
        {"com.microsoft:SkipLayerNormalization", {real({2, 3, 4}), real({2, 3, 4}), real({4}), real({4}), real({4})}, {}, 1, true},
        {"com.microsoft:SkipSimplifiedLayerNormalization", {real({2, 3, 4}), real({2, 3, 4}), real({4}), real({4})}, {}, 1, true},
        {"InstanceNormalization", {real({2, 3, 4}), real({3}), real({3})}},
        {"GroupNormalization", {real({2, 4, 3}), real({4}), real({4})}, {{"num_groups", two}}, 21},
        {"GroupNormalization", {real({2, 4, 3}), real({2}), real({2})}, {{"num_groups", two}}, 18},
        {"GroupNormalization", {real({2, 4, 3}), real({4}), real({2})}, {{"num_groups", two}}, 18},
        {"LpNormalization", {real({2, 3, 4})}, {{"axis", one}}},
        {"LpNormalization", {real({2, 3, 4})}, {{"p", one}}},
        {"LRN", {real({1, 6, 2})}, {{"size", std::int64_t{4}}, {"alpha", 0.5f}}},
        {"MeanVarianceNormalization", {real({2, 3, 2, 2})}},
        {"Softmax", {real({2, 3, 4})}, {{"axis", one}}},
        {"Softmax", {real({2, 3, 4})}, {}, 11},
        {"LogSoftmax", {real({2, 3, 4})}},
        {"CumSum", {real({2, 3, 2}), whole({}, {1})}},
        {"CumSum", {real({2, 3, 2}), whole({}, {1})}, {{"reverse", one}, {"exclusive", one}}},
        {"com.microsoft:Gelu", {real({2, 4})}, {}, 1, true},
        {"com.microsoft:BiasGelu", {real({2, 4}), real({4})}, {}, 1, true},
        {"com.microsoft:FastGelu", {real({2, 4}), real({4})}, {}, 1, true},
        {"com.microsoft:QuickGelu", {real({2, 4})}, {}, 1, true},
    };
    for (const char* op :
         {"ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd"}) {
        all.push_back({op, {real({2, 3, 4})}, {{"axes", ints{0, 2}}}});
        all.push_back({op, {real({2, 3, 4})}, {{"axes", ints{1}}, {"keepdims", zero}}});
    }
    all.push_back({"ReduceSum", {real({2, 3, 4}), whole({2}, {0, -1})}});
    for (const char* of_nothing : {"ReduceL1", "ReduceL2", "ReduceSumSquare"})
        all.push_back({of_nothing, {real({2, 0, 4})}, {{"axes", ints{1}}}});
    all.push_back({"ReduceLogSum", {real({2, 3, 4}, 0.5, 2)}, {{"axes", ints{1}}}});
    return all;
}

inline std::vector<gradient_case> movement_cases() {
    const std::int64_t one = 1, two = 2;
    using ints = std::vector<std::int64_t>;
    return {
        {"Reshape", {real({2, 6}), whole({2}, {3, -1})}},
        {"Flatten", {real({2, 3, 2})}},
        {"Squeeze", {real({2, 1, 2}), whole({1}, {1})}},
        {"Unsqueeze", {real({2, 2}), whole({1}, {0})}},
        {"Transpose", {real({2, 3, 4})}, {{"perm", ints{2, 0, 1}}}},
        {"Transpose", {real({2, 3})}},
        {"Concat", {real({2, 3, 2}), real({2, 1, 2}), real({2, 2, 2})}, {{"axis", one}}},
        {"Split", {real({2, 6}), whole({2}, {2, 4})}, {{"axis", one}}, 17, false, 2},
        {"Slice", {real({4, 5}), whole({2}, {3, 1}), whole({2}, {0, 5}), whole({2}, {0, 1}), whole({2}, {-1, 2})}},
        {"Gather", {real({4, 3}), whole({3}, {0, -1, 0})}},
        {"GatherElements", {real({3, 3}), whole({2, 3}, {1, 2, 0, 2, 0, 0})}},
        {"GatherND", {real({2, 3, 2}), whole({3, 2}, {0, 1, 1, 0, 0, 1})}},
        {"Compress", {real({3, 2}), condition({3}, {0, 1, 1})}, {{"axis", std::int64_t{0}}}},
        {"Expand", {real({3, 1}), whole({3}, {2, 3, 4})}},
        {"Tile", {real({2, 3}), whole({2}, {2, 2})}},
        {"Pad", {real({2, 3}), whole({4}, {1, 0, 0, 2}), real({})}},
        {"Pad", {real({3, 4}), whole({4}, {1, 2, 1, 1})}, {{"mode", std::string("reflect")}}},
        {"CenterCropPad", {real({4, 3}), whole({2}, {2, 5})}, {}, 18},
        {"DepthToSpace", {real({1, 8, 2, 2})}, {{"blocksize", two}, {"mode", std::string("CRD")}}},
        {"SpaceToDepth", {real({1, 2, 4, 4})}, {{"blocksize", two}}},
        {"ReverseSequence", {real({4, 3}), whole({3}, {1, 3, 4})}},
        {"Trilu", {real({3, 4})}},
        {"Where", {condition({2, 1}, {0, 1}), real({2, 3}), real({3})}},
        {"OneHot", {whole({3}, {0, 2, 1}), whole({}, {3}), real({2})}},
        {"Scatter", {real({3, 3}), whole({1, 2}, {2, 0}), real({1, 2})}, {}, 9},
        {"ScatterElements", {real({3, 3}), whole({1, 2}, {2, 0}), real({1, 2})}},
        {"ScatterND", {real({4, 2}), whole({2, 1}, {3, 0}), real({2, 2})}},
        {"TensorScatter", {real({1, 4, 2}), real({1, 2, 2}), whole({1}, {1})}, {}, 24},
        {"TopK", {real({3, 5}), whole({1}, {2})}, {}, 17, false, 2},
        {"Resize", {real({1, 1, 3, 4}), nothing(), nothing(), whole({4}, {1, 1, 5, 7})}, {{"mode", std::string("linear")}}},
        {"Resize", {real({1, 1, 4, 6}), nothing(), nothing(), whole({4}, {1, 1, 3, 4})}, {{"mode", std::string("cubic")}}},
        {"Resize", {real({1, 2, 2, 3}), nothing(), nothing(), whole({4}, {1, 2, 4, 6})}},
        {"Upsample", {real({1, 1, 2, 2}), real({4}, 1.999, 2.001)}, {{"mode", std::string("linear")}}, 9},
    };
}

}  // namespace qk_test
