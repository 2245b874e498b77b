// SPDX-License-Identifier: Apache-2.0
// What rows of operators say of themselves holds: the tests are made from the table.
#include <doctest/doctest.h>

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "build_model.hpp"
#include "graph/ops/all_ops.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/run_node.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using qk_test::random_tensor;

namespace {

constexpr int newest = 27;

onnx::NodeProto node_of(const op_entry& row, std::size_t inputs) {
    onnx::NodeProto n;
    n.set_domain(std::string(row.domain));
    n.set_op_type(std::string(row.name));
    for (std::size_t i = 0; i < inputs; ++i) n.add_input("x" + std::to_string(i));
    n.add_output("y");
    if (row.name == "Cast") {
        onnx::AttributeProto& to = *n.add_attribute();
        to.set_name("to"), to.set_type(onnx::AttributeProto::INT), to.set_i(static_cast<int>(data_type::float32));
    }
    return n;
}
std::vector<tensor> run(const op_entry& row, const std::vector<tensor>& inputs) {
    return qk::graph::detail::run_alone(node_of(row, inputs.size()), newest, inputs, 1 << 20);
}
tensor reversed(const tensor& t) {
    tensor r(t.type(), t.shape());
    std::reverse_copy(t.as<float>().begin(), t.as<float>().end(), r.as<float>().begin());
    return r;
}
bool same_bits(const tensor& a, const tensor& b) {
    return a.type() == b.type() && a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

/// Calls visit(row) for the newest row of each operator that has the trait.
template <class Visit>
int for_each_row(ops::trait trait, const Visit& visit) {
    int count = 0;
    for (const auto& [name, rows] : ops::table()) {
        const op_entry& row = *std::ranges::max_element(rows, {}, &op_entry::since);
        if (!row.is.has(trait)) continue;
        CAPTURE(name);
        visit(row);
        ++count;
    }
    return count;
}

}  // namespace

TEST_CASE("operators that are one by one give each element the same in any order") {
    const tensor x = random_tensor({2, 3, 5, 7}, 1, 3.0f);
    CHECK(for_each_row(ops::one_by_one,
                       [&](const op_entry& row) { CHECK(same_bits(reversed(run(row, {x}).at(0)), run(row, {reversed(x)}).at(0))); }) >= 22);
}

TEST_CASE("pairwise operators give each pair of elements the same in any order, also beside a scalar") {
    const tensor x = random_tensor({2, 3, 5, 7}, 1, 3.0f), y = random_tensor({2, 3, 5, 7}, 2, 3.0f), one = random_tensor({}, 3, 3.0f);
    CHECK(for_each_row(ops::pairwise, [&](const op_entry& row) {
              CHECK(same_bits(reversed(run(row, {x, y}).at(0)), run(row, {reversed(x), reversed(y)}).at(0)));
              CHECK(same_bits(reversed(run(row, {x, one}).at(0)), run(row, {reversed(x), one}).at(0)));
          }) >= 4);
}

TEST_CASE("exact operators of elements round what float64 gives") {
    const tensor x = random_tensor({500}, 1, 3.0f), y = random_tensor({500}, 2, 3.0f);
    const auto wide = [](const tensor& t) {
        tensor d(data_type::float64, t.shape());
        std::ranges::copy(t.as<float>(), d.as<double>().begin());
        return d;
    };
    int tried = 0;
    for_each_row(ops::exact, [&](const op_entry& row) {
        for (const auto& given : {std::vector{x}, std::vector{x, y}}) {
            std::vector<tensor> widened, narrow;
            for (const tensor& v : given) widened.push_back(wide(v));
            try {
                narrow = run(row, given);
            } catch (const error&) {
                continue;  // needs another number of inputs, or integers
            }
            if (narrow.at(0).type() != data_type::float32 || narrow[0].shape() != x.shape()) continue;
            const tensor exact = run(row, widened).at(0);
            for (std::size_t i = 0; i < x.size(); ++i) {
                const float rounded = exact.type() == data_type::float64 ? static_cast<float>(exact.as<double>()[i]) : exact.as<float>()[i],
                            got = narrow[0].as<float>()[i];
                CHECK(std::memcmp(&rounded, &got, sizeof got) == 0);
            }
            ++tried;
            return;
        }
    });
    CHECK(tried >= 14);
}

TEST_CASE("a node whose inputs are all left out runs into an error, whatever its operator") {
    for (const auto& [name, rows] : ops::table()) {
        CAPTURE(name);
        for (std::size_t inputs = 1; inputs <= 4; ++inputs) {
            qk_test::builder b(newest);
            for (const char* domain : {"com.microsoft", "com.amd.quark", "com.vai.quantize", "trt", "ai.onnx.preview"}) {
                auto* import = b.m.add_opset_import();
                import->set_domain(domain), import->set_version(1);
            }
            onnx::NodeProto& n = *b.g().add_node() = node_of(rows.front(), inputs);
            for (auto& input : *n.mutable_input()) input.clear();
            b.output("y", {});
            try {
                evaluator(model::parse(b.m.SerializeAsString())).run({});
            } catch (const error& e) {
                CHECK(std::string(e.what()).size() > 10);
            }
        }
    }
}
