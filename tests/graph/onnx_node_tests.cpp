// SPDX-License-Identifier: Apache-2.0
// Runs ONNX's backend node tests: onnx_node_tests [--list] [--expect-failure NAME]... [--if-there DIR]... DIR...
//
// Every folder below a DIR that holds model.onnx is a test; each of its test_data_set_* has input_*.pb and output_*.pb. Prints a line per
// failure with the largest error, with --list a line per test that is left out with its reason, and at the end how many tests passed,
// failed and are left out, by reason. An operator that is missing is a failure unless it stands in the list of those left out; one that
// stands there and is not missing is a failure, too. Compares as ONNX's own runner does: floats within 1e-7 + 1e-3 of the expected
// magnitude (bfloat16: 2^-6), NaNs equal; integers, booleans and the values of FP8 and FP4 codes exactly. The shapes and
// types that are inferred without running must be those that were computed, too, as far as they are known; and a node that reads pictures
// gives the same bits for what a convolution made, whose values lie channels last. Exit status 0: only expected
// failures; 1: other failures; 2: no test was found; 77: a DIR does not exist (one after --if-there may be missing).

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ops/half.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/ops/known_values.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;

namespace {

/// Thrown for a test that is left out.
struct left_out {
    std::string reason, detail;
};

/// Operators that qk does not run, and why. docs/reference/operators.md has the same reasons.
constexpr struct {
    std::string_view domain, name, reason;  // a name may be "*": the whole domain
} operators_left_out[] = {
    {"", "StringConcat", "strings"},
    {"", "StringSplit", "strings"},
    {"", "StringNormalizer", "strings"},
    {"", "RegexFullMatch", "strings"},
    {"", "SequenceConstruct", "sequences, optionals or maps"},
    {"", "SequenceEmpty", "sequences, optionals or maps"},
    {"", "SequenceInsert", "sequences, optionals or maps"},
    {"", "SequenceErase", "sequences, optionals or maps"},
    {"", "SequenceAt", "sequences, optionals or maps"},
    {"", "SequenceLength", "sequences, optionals or maps"},
    {"", "SequenceMap", "sequences, optionals or maps"},
    {"", "SplitToSequence", "sequences, optionals or maps"},
    {"", "ConcatFromSequence", "sequences, optionals or maps"},
    {"", "ImageDecoder", "image codecs"},
    {"", "NegativeLogLikelihoodLoss", "retired: training losses"},
    {"", "SoftmaxCrossEntropyLoss", "retired: training losses"},
    {"", "TfIdfVectorizer", "retired: features of classical learning"},
    {"ai.onnx.ml", "*", "retired: features of classical learning"},
    {"ai.onnx.preview.training", "*", "retired: steps of training"},
    {"", "Det", "retired: determinants"},
};

std::string read_bytes(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    if (!in) throw error(file.string() + " cannot be read");
    return bytes.str();
}

/// Is true for operators that draw random numbers, whose results cannot be compared.
bool is_random(const std::string& op) {
    static const std::set<std::string> names{"Bernoulli",        "Multinomial",   "RandomNormal",
                                             "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
    return names.count(op) != 0;
}

/// Throws left_out for an operator of the list or one that draws random numbers, and an error for one that is missing.
void check_operators(const onnx::ModelProto& m, const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                     const std::function<int(const std::string&)>& version) {
    for (const auto& node : nodes) {
        const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
        const onnx::FunctionProto* function = nullptr;
        for (const auto& f : m.functions())
            if (f.name() == node.op_type() && f.domain() == node.domain()) function = &f;
        if (function) {
            check_operators(m, function->node(), version);
            continue;
        }
        if (domain.empty() && is_random(node.op_type())) throw left_out{"random numbers", node.op_type()};
        for (const auto& o : operators_left_out)
            if (o.domain == domain && (o.name == "*" || o.name == node.op_type())) throw left_out{std::string(o.reason), node.op_type()};
        if (find_op(domain, node.op_type(), version(domain)) == nullptr)
            throw error("operator " + (domain.empty() ? "" : domain + ".") + node.op_type() + " (opset " + std::to_string(version(domain)) +
                        ") is missing, and not on the list of those left out");
        for (const auto& a : node.attribute()) {
            if (a.has_g()) check_operators(m, a.g().node(), version);
            for (const auto& g : a.graphs()) check_operators(m, g.node(), version);
        }
    }
}

/// Throws left_out for sequences, optionals, maps, sparse tensors, strings and unknown element types.
void check_type(const onnx::ValueInfoProto& v) {
    const auto& type = v.type();
    if (type.has_sequence_type() || type.has_optional_type() || type.has_map_type())
        throw left_out{"sequences, optionals or maps", "'" + v.name() + "'"};
    if (type.has_sparse_tensor_type()) throw error("'" + v.name() + "' is a sparse tensor");
    const auto element = static_cast<data_type>(type.tensor_type().elem_type());
    if (element == data_type::string) throw left_out{"strings", "'" + v.name() + "'"};
    if (size_of(element) == 0) throw error("'" + v.name() + "' has the unknown element type " + std::to_string(static_cast<int>(element)));
}

/// Collects the largest |got - want| and the number of elements outside the tolerance.
struct comparison {
    double error = 0;
    std::size_t outside = 0;

    void take(double got, double want, double relative, double absolute) {
        if (got == want || (std::isnan(got) && std::isnan(want))) return;
        const double difference = std::abs(got - want);
        error = std::max(error, std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference);
        if (!(difference <= absolute + relative * std::abs(want))) ++outside;
    }
};

template <class T>
void compare_as(const tensor& got, const tensor& want, comparison& c, double relative, double absolute) {
    const auto value = [](T x) {
        if constexpr (std::is_same_v<T, half> || std::is_same_v<T, brain>) return static_cast<double>(ops::to_float(x));
        else return static_cast<double>(x);
    };
    for (std::size_t i = 0; i < want.size(); ++i) c.take(value(got.as<T>()[i]), value(want.as<T>()[i]), relative, absolute);
}

template <class T>
void compare_exactly(const tensor& got, const tensor& want, comparison& c) {
    for (std::size_t i = 0; i < want.size(); ++i) {
        const T a = got.as<T>()[i], b = want.as<T>()[i];
        if (a == b) continue;
        c.error = std::max(c.error, std::abs(static_cast<double>(a) - static_cast<double>(b)));
        ++c.outside;
    }
}

/// Maps all codes of zero to one code and all codes of NaN to one code, for formats of 8 or fewer bits.
std::uint8_t canonical(data_type type, std::uint8_t code) {
    switch (type) {
        case data_type::float4e2m1: return code == 0x8 ? 0 : code;
        case data_type::float8e4m3fn: return code == 0x80 ? 0 : (code & 0x7f) == 0x7f ? 0x7f : code;
        case data_type::float8e5m2: return code == 0x80 ? 0 : (code & 0x7f) > 0x7c ? 0x7f : code;
        default: return code;
    }
}

void compare_codes(const tensor& got, const tensor& want, comparison& c) {
    for (std::size_t i = 0; i < want.size(); ++i) {
        const std::uint8_t a = canonical(want.type(), got.as<std::uint8_t>()[i]), b = canonical(want.type(), want.as<std::uint8_t>()[i]);
        if (a == b) continue;
        c.error = std::max(c.error, std::abs(static_cast<double>(a) - static_cast<double>(b)));
        ++c.outside;
    }
}

/// Returns what differs; empty if the tensors are equal within tolerance.
std::string difference(const std::string& name, const tensor& got, const tensor& want) {
    if (got.type() != want.type()) return "output " + name + " is " + name_of(got.type()) + ", expected " + name_of(want.type());
    if (got.shape() != want.shape())
        return "output " + name + " has shape " + to_string(got.shape()) + ", expected " + to_string(want.shape());
    comparison c;
    switch (want.type()) {
        case data_type::float32: compare_as<float>(got, want, c, 1e-3, 1e-7); break;
        case data_type::float64: compare_as<double>(got, want, c, 1e-3, 1e-7); break;
        case data_type::float16: compare_as<half>(got, want, c, 1e-3, 1e-7); break;
        case data_type::bfloat16: compare_as<brain>(got, want, c, 0x1p-6, 1e-7); break;
        case data_type::int8:
        case data_type::int4:
        case data_type::int2: compare_exactly<std::int8_t>(got, want, c); break;
        case data_type::int16: compare_exactly<std::int16_t>(got, want, c); break;
        case data_type::int32: compare_exactly<std::int32_t>(got, want, c); break;
        case data_type::int64: compare_exactly<std::int64_t>(got, want, c); break;
        case data_type::uint16: compare_exactly<std::uint16_t>(got, want, c); break;
        case data_type::uint32: compare_exactly<std::uint32_t>(got, want, c); break;
        case data_type::uint64: compare_exactly<std::uint64_t>(got, want, c); break;
        case data_type::complex64:
        case data_type::complex128: throw error("output " + name + " holds complex numbers");
        default: compare_codes(got, want, c);
    }
    if (c.outside == 0) return {};
    std::ostringstream s;
    s << "output " << name << ": largest error " << c.error << ", " << c.outside << " of " << want.size()
      << " elements outside the tolerance";
    return s.str();
}

std::optional<tensor> read_tensor(const fs::path& file) {
    if (!fs::exists(file)) return std::nullopt;
    onnx::TensorProto proto;
    if (!proto.ParseFromString(read_bytes(file))) throw error(file.string() + " is not a TensorProto");
    return to_tensor(proto);
}

/// How many outputs have a shape that was inferred, wholly or in its rank, from inputs of known and of open lengths.
struct inferred_count {
    std::size_t lengths = 0, rank = 0, nothing = 0, typed = 0, untyped = 0;
    std::map<std::string, std::size_t> without = {};  ///< outputs of which nothing is known, by the operator that makes them
};

/// Returns what is inferred and is not what was computed. The model's own statements are left out but for those of its inputs, whose
/// lengths are all open with `open`.
std::string wrongly_known(onnx::ModelProto proto, const named_tensors& computed, bool open, inferred_count& count) {
    onnx::GraphProto& g = *proto.mutable_graph();
    g.clear_value_info();
    for (auto& o : *g.mutable_output()) o.mutable_type()->mutable_tensor_type()->Clear();
    for (int i = 0; open && i < g.input_size(); ++i) {
        auto& shape = *g.mutable_input(i)->mutable_type()->mutable_tensor_type()->mutable_shape();
        for (int k = 0; k < shape.dim_size(); ++k) shape.mutable_dim(k)->set_dim_param(std::to_string(i) + "_" + std::to_string(k));
    }
    const model m = model::parse(proto.SerializeAsString());
    const auto values = known_values_of(m);
    for (const auto& o : g.output()) {
        const auto got = computed.find(o.name());
        if (got == computed.end() || got->second.empty()) continue;
        const int p = m.producer(o.name());
        const data_type type = values->type(o.name());
        if (p >= 0 && find_op(m.graph().node(p).domain(), m.graph().node(p).op_type(), 1 << 20) == nullptr) {
            // a function of the model, whose type is a guess
        } else if (type != data_type::undefined && type != got->second.type()) {
            return "output " + o.name() + " is said to be " + name_of(type) + ", and is " + name_of(got->second.type());
        } else {
            ++(type == data_type::undefined ? count.untyped : count.typed);
            if (type == data_type::undefined && p >= 0) ++count.without["type of " + m.graph().node(p).op_type()];
        }
        const dims* known = values->shape(o.name());
        if (known == nullptr) {
            ++count.nothing;
            if (p >= 0) ++count.without[m.graph().node(p).op_type()];
            continue;
        }
        const dims& shape = got->second.shape();
        bool same = known->size() == shape.size(), all = true;
        for (std::size_t k = 0; same && k < shape.size(); ++k) {
            same = (*known)[k] < 0 || (*known)[k] == shape[k];
            all = all && (*known)[k] >= 0;
        }
        if (!same) return "output " + o.name() + " is said to have shape " + to_string(*known) + ", and has " + to_string(shape);
        ++(all ? count.lengths : count.rank);
    }
    return {};
}
inferred_count of_known_lengths, of_open_lengths;

std::map<layout_rule, std::size_t> behind_convolutions;  ///< nodes whose input a convolution made, by what they say of their layout

/// Puts a convolution before the first node's input 0, and returns what becomes of the results that are not those of this input alone.
std::string differs_behind_convolution(onnx::ModelProto proto, const evaluator& plain, const named_tensors& inputs) {
    onnx::GraphProto& g = *proto.mutable_graph();
    if (g.node_size() == 0 || g.node(0).input_size() == 0) return {};
    const std::string x = g.node(0).input(0), before = x + "_before";
    const auto given = inputs.find(x);
    if (given == inputs.end() || given->second.type() != data_type::float32 || given->second.rank() != 4 || given->second.size() == 0)
        return {};
    const std::int64_t channels = given->second.dim(1);
    tensor weights(data_type::float32, {channels, channels, 1, 1});
    std::ranges::fill(weights.as<float>(), 0.0f);
    for (std::int64_t c = 0; c < channels; ++c) weights.as<float>()[static_cast<std::size_t>(c * channels + c)] = 0.5f;
    to_proto(weights, before + "_weights", *g.add_initializer());
    for (auto& i : *g.mutable_input())
        if (i.name() == x) i.set_name(before);
    onnx::NodeProto conv;
    conv.set_op_type("Conv"), conv.set_name("before");
    conv.add_input(before), conv.add_input(before + "_weights"), conv.add_output(x);
    g.add_node()->CopyFrom(conv);
    for (int i = g.node_size() - 1; i > 0; --i) g.mutable_node()->SwapElements(i, i - 1);
    g.add_output()->set_name(x);
    named_tensors others = inputs;
    others.erase(x), others[before] = given->second;
    const named_tensors behind = evaluator(model::parse(proto.SerializeAsString()), {.threads = 1}).run(others).outputs;
    named_tensors same = inputs;
    same[x] = behind.at(x);
    for (const auto& [name, value] : plain.run(same).outputs)
        if (const tensor& got = behind.at(name);
            got.type() != value.type() || got.shape() != value.shape() || std::memcmp(got.bytes(), value.bytes(), value.size_bytes()) != 0)
            return "output " + name + " has other bits behind a convolution";
    int version = 1;
    for (const auto& o : proto.opset_import())
        if (o.domain() == g.node(1).domain()) version = static_cast<int>(o.version());
    ++behind_convolutions[layout_rule_of(node_view(g.node(1), version), facts_of(g.node(1)))];
    return {};
}

/// Returns the difference of the first data set that fails; empty if the test passed.
std::string run_test(const fs::path& folder) {
    onnx::ModelProto proto;
    if (!proto.ParseFromString(read_bytes(folder / "model.onnx"))) throw error("model.onnx is not a ModelProto");
    check_operators(proto, proto.graph().node(), [&](const std::string& domain) {
        for (const auto& o : proto.opset_import())
            if ((o.domain() == "ai.onnx" ? "" : o.domain()) == domain) return static_cast<int>(o.version());
        return 1;
    });
    for (const auto& v : proto.graph().input()) check_type(v);
    for (const auto& v : proto.graph().output()) check_type(v);

    const evaluator runner(model::load(folder / "model.onnx"), {.threads = 1});
    for (std::size_t set = 0;; ++set) {
        const fs::path data = folder / ("test_data_set_" + std::to_string(set));
        if (!fs::exists(data)) {
            if (set == 0) throw error("there is no test_data_set_0");
            return {};
        }
        named_tensors inputs;
        for (int i = 0; i < proto.graph().input_size(); ++i)
            if (const auto t = read_tensor(data / ("input_" + std::to_string(i) + ".pb"))) inputs[proto.graph().input(i).name()] = *t;
        const auto results = runner.run(inputs).outputs;
        if (set == 0)
            for (const bool open : {false, true})
                if (std::string what = wrongly_known(proto, results, open, open ? of_open_lengths : of_known_lengths); !what.empty())
                    return what + (open ? " (of inputs of open lengths)" : "");
        if (set == 0)
            if (std::string what = differs_behind_convolution(proto, runner, inputs); !what.empty()) return what;
        for (int i = 0; i < proto.graph().output_size(); ++i) {
            const std::string& name = proto.graph().output(i).name();
            const auto want = read_tensor(data / ("output_" + std::to_string(i) + ".pb"));
            if (!want) continue;
            const auto got = results.find(name);
            if (got == results.end() || got->second.empty()) return "output " + name + " was not made";
            if (const std::string what = difference(name, got->second, *want); !what.empty()) return what;
        }
    }
}

std::vector<fs::path> find_tests(const fs::path& folder) {
    std::vector<fs::path> tests;
    if (fs::exists(folder / "model.onnx")) tests.push_back(folder);
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_directory() && fs::exists(entry.path() / "model.onnx")) tests.push_back(entry.path());
    std::sort(tests.begin(), tests.end());
    return tests;
}

}  // namespace

int main(int argc, char** argv) {
    bool list = false;
    std::set<std::string> expected_failures;
    std::vector<fs::path> tests;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--list") {
            list = true;
        } else if (std::string(argv[i]) == "--expect-failure" && i + 1 < argc) {
            expected_failures.insert(argv[++i]);
        } else if (std::string(argv[i]) == "--if-there" && i + 1 < argc) {
            if (fs::is_directory(argv[++i]))
                for (const fs::path& t : find_tests(argv[i])) tests.push_back(t);
        } else if (!fs::is_directory(argv[i])) {
            std::cout << "skipped: no " << argv[i] << " here\n";
            return 77;
        } else {
            for (const fs::path& t : find_tests(argv[i])) tests.push_back(t);
        }
    }
    if (tests.empty()) {
        std::cout << "no test found; usage: onnx_node_tests [--list] [--expect-failure NAME]... [--if-there DIR]... DIR...\n";
        return 2;
    }
    std::size_t passed = 0, failed = 0, unexpected = 0;
    std::map<std::string, std::size_t> without;  // tests left out, by reason
    for (const auto& o : operators_left_out)
        if (find_op(o.domain, o.name, 1000) != nullptr) {
            ++failed, ++unexpected;
            std::cout << "FAILED operator " << o.name << " stands on the list of those left out, and is there\n";
        }
    for (const fs::path& t : tests) {
        const std::string name = fs::absolute(t).lexically_normal().filename().string();
        const auto report_failure = [&](const std::string& what) {
            ++failed;
            if (expected_failures.count(name) == 0) ++unexpected;
            std::cout << "FAILED " << name << ": " << what << std::endl;
        };
        try {
            const std::string what = run_test(t);
            if (what.empty()) ++passed;
            else report_failure(what);
        } catch (const left_out& l) {
            ++without[l.reason];
            if (list) std::cout << "left out " << name << ": " << l.reason << " (" << l.detail << ")" << std::endl;
        } catch (const std::exception& e) {
            report_failure(e.what());
        }
    }
    std::cout << passed << " passed, " << failed << " failed; left out:";
    for (const auto& [reason, count] : without) std::cout << "\n    " << count << "  " << reason;
    std::cout << std::endl;
    for (const inferred_count* c : {&of_known_lengths, &of_open_lengths}) {
        std::cout << "inferred from inputs of " << (c == &of_open_lengths ? "open" : "known") << " lengths: " << c->lengths
                  << " shapes whole, " << c->rank << " with open lengths, " << c->nothing << " not; " << c->typed << " types, "
                  << c->untyped << " not:";
        for (const auto& [op, n] : c->without) std::cout << " " << op << " " << n;
        std::cout << std::endl;
    }
    std::size_t rules = 0, nodes = 0;
    for (const auto& [rule, n] : behind_convolutions) rules += rule != layout_rule::plain, nodes += n;
    std::cout << "behind a convolution: " << nodes << " nodes, by " << rules << " rules of layout and as they are" << std::endl;
    return unexpected ? 1 : 0;
}
