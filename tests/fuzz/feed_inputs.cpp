// SPDX-License-Identifier: Apache-2.0
// Definition of feed_inputs.hpp.
#include "feed_inputs.hpp"

#include <onnx/onnx_pb.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "graph/search/cache.hpp"
#include "graph/search/latency.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/images.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/pipeline/evaluate.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "support/console.hpp"
#include "support/packed_file.hpp"
#include "temporary.hpp"

#ifdef QK_HAVE_CHECKPOINT
#include "feed_checkpoint.hpp"
#endif
#ifdef QK_HAVE_HARDWARE
#include "feed_hardware.hpp"
#include "qk/graph/hardware.hpp"
#endif
#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

namespace qk::tool::detail {
/// What options say about what they are given is of no interest here.
void put(std::FILE*, std::string_view) {}
}  // namespace qk::tool::detail

namespace qk_fuzz {
namespace {

#ifndef QK_HAVE_CHECKPOINT
void feed_config(std::string_view) {}
void feed_index(std::string_view) {}
#endif
#ifndef QK_HAVE_HARDWARE
void read_hex(std::string_view) {}
void read_stream(std::string_view) {}
void read_dot_case(std::string_view) {}
void read_accumulator(std::string_view, const qk::graph::model&, const qk::graph::named_tensors&) {}
#endif

using namespace qk::graph;

void add_tensor(onnx::GraphProto& g, const char* name, std::initializer_list<std::int64_t> shape) {
    auto* t = g.add_initializer();
    t->set_name(name);
    t->set_data_type(onnx::TensorProto::FLOAT);
    std::int64_t n = 1;
    for (const std::int64_t d : shape) t->add_dims(d), n *= d;
    for (std::int64_t i = 0; i < n; ++i) t->add_float_data(static_cast<float>(i % 13) * 0.25f - 1.5f);
}

onnx::NodeProto& add_node(onnx::GraphProto& g, const char* op, std::initializer_list<const char*> inputs, const char* output) {
    auto* n = g.add_node();
    n->set_op_type(op);
    n->set_name(std::string(output) + "_node");
    for (const char* i : inputs) n->add_input(i);
    n->add_output(output);
    return *n;
}

void declare(onnx::ValueInfoProto& v, const char* name, std::initializer_list<std::int64_t> shape) {
    v.set_name(name);
    auto* t = v.mutable_type()->mutable_tensor_type();
    t->set_elem_type(onnx::TensorProto::FLOAT);
    for (const std::int64_t d : shape) t->mutable_shape()->add_dim()->set_dim_value(d);
}

/// x -> Conv (w, b) -> c -> Relu -> r -> Flatten -> f -> Gemm (k, j) -> y
const model& small_model() {
    static const model m = [] {
        onnx::ModelProto p;
        p.set_ir_version(8);
        p.add_opset_import()->set_version(17);
        auto& g = *p.mutable_graph();
        declare(*g.add_input(), "x", {1, 3, 4, 4});
        declare(*g.add_output(), "y", {1, 5});
        add_tensor(g, "w", {4, 3, 3, 3}), add_tensor(g, "b", {4}), add_tensor(g, "k", {16, 5}), add_tensor(g, "j", {5});
        add_node(g, "Conv", {"x", "w", "b"}, "c"), add_node(g, "Relu", {"c"}, "r"), add_node(g, "Flatten", {"r"}, "f"),
            add_node(g, "Gemm", {"f", "k", "j"}, "y");
        return model::parse(p.SerializeAsString());
    }();
    return m;
}

const named_tensors& small_data() {
    static const named_tensors data = [] {
        tensor t(data_type::float32, {1, 3, 4, 4});
        for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = static_cast<float>(i % 11) * 0.5f - 2.0f;
        return named_tensors{{"x", t}};
    }();
    return data;
}

const calibration& small_calibration() {
    static const calibration seen = calibrate(small_model(), small_data(), {.threads = 1});
    return seen;
}

void use_plan(const precision_plan& plan) {
    static_cast<void>(to_json(plan).dump());
    check_plan(plan, small_model(), "plan");
    static_cast<void>(evaluator(small_model(), {.threads = 1}).run(small_data(), plan));
    for (const export_style style : {export_style::qdq, export_style::portable, export_style::amd}) {
        try {
            static_cast<void>(export_model(small_model(), plan, {.style = style}));
        } catch (const error&) {
        }
    }
}

void read_plan(std::string_view bytes) {
    plan_file f = parse_plan_file(bytes, "plan.json");
    if (f.plan) {
        place_encodings(*f.plan, small_model());
        return use_plan(*f.plan);
    }
    quantize_options options;
    f.fill(options);
    planner p(small_model(), &small_calibration());
    const quantize_result made = p.plan(f.requests, options);
    static_cast<void>(made.report.text());
    static_cast<void>(to_json(made.report).dump());
    use_plan(made.plan);
}

void read_calibration(std::string_view bytes) {
    const temporary file(bytes, "x.json");
    if (!is_calibration_file(file.path())) return;
    const calibration seen = load_calibration(file.path());
    save_calibration(seen, file.path());
    for (const range_method method : {range_method::min_max, range_method::percentile, range_method::entropy, range_method::mse}) {
        try {
            static_cast<void>(quantize(small_model(), precision_requests().set_default("int8", "int8"), seen, {.method = method}));
        } catch (const error&) {
        }
    }
}

void read_tensor_file(std::string_view bytes) {
    const temporary file(bytes, "x.pb");
    const named_tensor t = read_tensor_proto(file.path());
    static_cast<void>(to_npy(t.value));
}

void read_array(std::string_view bytes) {
    const tensor t = parse_npy(bytes, "x.npy");
    static_cast<void>(to_npy(t));
    static_cast<void>(evaluator(small_model(), {.threads = 1}).run({{"x", t}}));
}

void read_arrays(std::string_view bytes) {
    const temporary file(bytes, "x.npz");
    static_cast<void>(read_npz(file.path()));
}

void read_packed(std::string_view bytes) {
    const auto p = qk::tool::from_archive(std::string(bytes), "x.npz");
    static_cast<void>(qk::tool::unpack(p));
    static_cast<void>(qk::tool::to_archive(p));
}

void read_latencies(std::string_view bytes) {
    const temporary file(bytes, "x.json");
    static_cast<void>(latency_table::load(file.path()).cost("c_node", "Conv", 1e6, "int8/int8"));
}

void read_target_profile(std::string_view bytes) {
    const target_profile t = read_target(json_cursor::parse(bytes, "target.json"));
    planner p(small_model(), &small_calibration());
    static_cast<void>(p.plan(precision_requests().set_default("int8", "int8").list(), {.target = t}));
}

void read_cache(std::string_view bytes) {
    const temporary file(bytes, "x.cache");
    search_cache cache(file.path(), "0123456789abcdef");
    static_cast<void>(cache.find({0, 1, 2}));
}

void read_preprocessing(std::string_view bytes) {
    const preprocessing p = preprocessing::parse(std::string(bytes));
    static_cast<void>(p.apply(small_data().at("x"), small_model().inputs().at(0)));
}

void read_format(std::string_view bytes) {
    const precision p = parse_precision(bytes);
    planner made(small_model(), &small_calibration());
    use_plan(made.plan(precision_requests().set_type_precision("Conv", role::all, p).list()).plan);
}

/// Labels of one sample, beside every metric that has labels.
void read_labels(std::string_view bytes) {
    const temporary file(bytes, "x.npy");
    for (const char* metric : {"top1", "top5", "cross_entropy", "perplexity"}) {
        pipeline::evaluate_settings s;
        s.model = pipeline::model_source(small_model().proto());
        s.data.inputs = pipeline::data_source(small_data());
        s.data.labels = pipeline::array_source(file.path());
        s.data.threads = 1;
        s.metrics = {metric};
        try {
            static_cast<void>(pipeline::evaluate(s).summary.dump());
        } catch (const error&) {
        }
    }
}

void read_picture(std::string_view bytes) {
    for (const char* name : {"x.png", "x.jpg"}) {
        const temporary file(bytes, name);
        try {
            static_cast<void>(read_images({file.path()}, {.height = 5, .width = 3}));
        } catch (const error&) {
        }
    }
}

void read_unit(std::string_view bytes) { read_accumulator(bytes, small_model(), small_data()); }

}  // namespace

void feed_input(std::string_view bytes) {
    // New ones go to the end: the first byte of what is kept in the corpus chooses by number.
    static constexpr std::array readers{read_plan,     read_array,     read_arrays,         read_tensor_file, read_calibration,
                                        read_packed,   read_latencies, read_target_profile, read_cache,       read_preprocessing,
                                        read_format,   read_labels,    read_picture,        read_hex,         read_stream,
                                        read_dot_case, read_unit,      feed_config,         feed_index};
    if (bytes.empty()) return;
#ifdef QK_HAVE_HARDWARE
    qk::hardware::enter();  // a fuzzer's main is not ours
#endif
#ifdef QK_HAVE_LEARN
    qk::learn::enter();
#endif
    const auto which = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]) - '0') % readers.size();
    try {
        readers[which](bytes.substr(1));
    } catch (const error&) {  // a sentence: what bad bytes should end in
    }
}

}  // namespace qk_fuzz
