// SPDX-License-Identifier: Apache-2.0
// An operator that is run in parts gives the bits of the operator run as a whole, in whatever order the parts run.
#include "graph/base/inner_loop.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <stdexcept>

#include "build_model.hpp"
#include "call_op.hpp"
#include "graph/evaluate/execute/later_value.hpp"
#include "graph/evaluate/execute/workers.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using qk_test::random_tensor;

namespace {

struct called {
    std::string op;
    int version;
    std::vector<tensor> inputs;
    qk_test::attributes how;
};

using ints = std::vector<std::int64_t>;

std::vector<called> calls() {
    const tensor x = random_tensor({301, 7, 67}, 1, 2);
    return {{"Add", 14, {x, random_tensor({301, 7, 67}, 2, 1)}, {}},
            {"Mul", 14, {x, random_tensor({67}, 3, 1)}, {}},
            {"Sub", 14, {random_tensor({7, 1}, 4, 1), x}, {}},
            {"Div", 14, {x, random_tensor({301, 1, 67}, 5, 1)}, {}},
            {"Erf", 13, {x}, {}},
            {"Sigmoid", 13, {random_tensor({70001}, 6, 3)}, {}},
            {"Softmax", 13, {x}, {{"axis", std::int64_t{-1}}}},
            {"LogSoftmax", 13, {x}, {{"axis", std::int64_t{-1}}}},
            {"LayerNormalization", 17, {x, random_tensor({67}, 7, 1), random_tensor({67}, 8, 1)}, {}},
            {"Transpose", 13, {random_tensor({8, 101, 12, 17}, 9, 1)}, {{"perm", ints{0, 2, 1, 3}}}},
            {"Transpose", 13, {random_tensor({8, 12, 101, 17}, 10, 1)}, {{"perm", ints{0, 1, 3, 2}}}},
            {"Concat", 13, {random_tensor({301, 700}, 13, 1), random_tensor({301, 2000}, 14, 1)}, {{"axis", std::int64_t{1}}}},
            {"Split", 13, {random_tensor({301, 900}, 15, 1)}, {{"axis", std::int64_t{1}}}},
            {"MatMul", 13, {random_tensor({3, 8, 41, 65}, 11, 1), random_tensor({8, 65, 43}, 12, 1)}, {}}};
}

bool same_bits(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

quantizer under(const char* format, int axis, std::size_t scales, float scale = 0.02f) {
    const auto parsed = qk::parse_format(format);
    REQUIRE_MESSAGE(static_cast<bool>(parsed), format);
    quantizer q;
    q.format = *parsed;
    q.axis = axis;
    for (std::size_t i = 0; i < scales; ++i) q.scale.push_back(scale * (1 + static_cast<float>(i) / 64));
    return q;
}

std::vector<quantizer> quantizers() {
    std::vector<quantizer> all{under("int8", -1, 1),      under("int4", 1, 70, 0.3f),  under("int8", -1, 192),
                               under("fp16", -1, 0),      under("fp8_e4m3fn", 0, 1),   under("mxfp4", -1, 0),
                               under("mxfp8_e4m3", 1, 0), under("bfp16", -1, 0),       under("mx6", 1, 0),
                               under("nvfp4", -1, 0),     under("nvfp4", -1, 1, 0.5f), under("int16", -1, 1, 1e-4f)};
    all[0].zero_point = {-7};
    for (const char* format : {"int8", "uint8", "fp8_e4m3fn"}) all.push_back(under(format, -1, 0)), all.back().dynamic = true;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{5}, std::size_t{6}}) {
        all.push_back(all[i]);
        all.back().semantics.rounding = qk::rounding::stochastic;
        all.back().semantics.seed = 5;
    }
    return all;
}

}  // namespace

TEST_CASE("quantizers in parts give the bits of the whole, on floats and half floats, whatever the axis, random words included") {
    qk_test::heap_allocator memory;
    std::size_t in_parts = 0, all = 0;
    for (const quantizer& q : quantizers())
        for (const dims& shape : {dims{37, 70, 192}, dims{1, 70, 4 * 192, 8}}) {
            const bool last = shape.size() == 4;  // channels-last layout; `axis` still counts as in NCHW, where channels are axis 1
            if (last && q.scale.size() > 1 && q.scale.size() != 70) continue;
            if (last && (is_block_format(q.format) || q.scale.size() > 1) && q.axis != 1) continue;
            CAPTURE(std::string(qk::to_text(q.format).view()));
            CAPTURE(to_string(shape));
            tensor x = random_tensor(shape, 3, 2);
            x.as<float>()[5] = std::numeric_limits<float>::infinity(), x.as<float>()[6] = std::numeric_limits<float>::quiet_NaN();
            const tensor y = execute::quantized(q, x, last, memory);
            std::size_t parts = 0;
            const part_runner backwards = [&](std::size_t n, const std::function<void(std::size_t)>& body) {
                for (parts += n; n-- > 0;) body(n);
            };
            const parts_side_by_side here(&backwards);
            CHECK(same_bits(execute::quantized(q, x, last, memory), y));
            ++all, in_parts += parts > 1;
        }
    CHECK(in_parts + 2 >= all);  // nvfp4 without a scale does not run in parts: its tensor scale depends on the whole tensor
}

TEST_CASE("codes and numbers of narrow forms in parts are those of the whole") {
    qk_test::heap_allocator memory;
    const part_runner backwards = [](std::size_t n, const std::function<void(std::size_t)>& body) {
        while (n-- > 0) body(n);
    };
    for (auto [q, zero] :
         {std::pair(under("int8", -1, 1), 0), std::pair(under("int8", -1, 1), -20), std::pair(under("uint8", -1, 1), 128),
          std::pair(under("uint8", -1, 1), 100), std::pair(under("int16", -1, 1, 1e-4f), 0), std::pair(under("mxfp4", -1, 0), 0)}) {
        CAPTURE(std::string(qk::to_text(q.format).view()));
        CAPTURE(zero);
        if (zero != 0) q.zero_point = {zero};
        const tensor x = random_tensor({301, 1024}, 4, 2);
        const auto form = execute::narrow_form_of(q);
        REQUIRE(form);
        std::vector<execute::narrow_form> forms{*form};
        if (const auto codes = execute::form_of_codes(q)) forms.push_back(*codes);
        CHECK((forms.size() == 2) == (zero == -20 || zero == 100));
        if (form->whole && form->planes == 1) forms.push_back(*form), forms.back().floats = true;
        if (form->planes == 2) forms.push_back(*form), forms.back().words = true;
        const execute::deferred_codes source{x, false};
        for (const execute::narrow_form& f : forms) {
            const tensor rounded = execute::quantized(q, x, false, memory);
            const tensor numbers = form->whole ? source.numbers(q, f, false, memory) : tensor();
            const tensor values = execute::narrowed(f, rounded.as<float>(), memory);
            const parts_side_by_side here(&backwards);
            CHECK(same_bits(execute::narrowed(f, rounded.as<float>(), memory), values));
            if (numbers.empty()) continue;
            CHECK(same_bits(source.numbers(q, f, false, memory), numbers));
            CHECK(std::memcmp(numbers.bytes(), values.bytes(), numbers.size_bytes()) == 0);
        }
    }
}

TEST_CASE("results outlive their evaluator and are not written again, though nobody copies them") {
    qk_test::builder b;
    b.input("x", {1, 4096}).output("y", {1, 4096}).output("same", {1, 4096}).output("x_again", {1, 4096});
    b.node("Erf", {"x"}, {"y"}, "erf");
    b.node("Flatten", {"y"}, {"same"}, "flatten");
    b.node("Identity", {"x"}, {"x_again"}, "identity");
    const tensor first = random_tensor({1, 4096}, 1, 1), second = random_tensor({1, 4096}, 2, 1);
    named_tensors one, two;
    {
        const evaluator e(b.model(), {.threads = 2});
        one = e.run({{"x", first}}).outputs;
        for (int i = 0; i < 3; ++i) two = e.run({{"x", second}}).outputs;
    }
    const tensor wanted = qk_test::call_op("Erf", 13, {first})[0];
    CHECK(same_bits(one.at("y"), wanted));
    CHECK(std::memcmp(one.at("same").bytes(), wanted.bytes(), wanted.size_bytes()) == 0);
    CHECK(same_bits(two.at("y"), qk_test::call_op("Erf", 13, {second})[0]));
    CHECK(one.at("x_again").bytes() != first.bytes());
    CHECK(same_bits(one.at("x_again"), first));
}

TEST_CASE("operators in parts give the bits of the whole, the last part first and on threads") {
    for (const called& c : calls()) {
        CAPTURE(c.op);
        const tensor alone = qk_test::call_op(c.op, c.version, c.inputs, c.how)[0];
        std::size_t parts = 0;
        const part_runner backwards = [&](std::size_t n, const std::function<void(std::size_t)>& body) {
            for (parts += n; n-- > 0;) body(n);
        };
        {
            const parts_side_by_side here(&backwards);
            CHECK(same_bits(qk_test::call_op(c.op, c.version, c.inputs, c.how)[0], alone));
        }
        CHECK(parts > 1);
        execute::workers pool(3, std::make_shared<memory_budget>(std::uint64_t{1} << 30));
        tensor threaded;
        pool.for_each(1, [&](std::size_t, execute::arena&) { threaded = qk_test::call_op(c.op, c.version, c.inputs, c.how)[0]; });
        CHECK(same_bits(threaded, alone));
    }
}

TEST_CASE("parts are handed out once each, their errors arrive, and parts of parts stay together") {
    execute::workers pool(3, std::make_shared<memory_budget>(std::uint64_t{1} << 30));
    std::vector<int> seen(100, 0);
    bool inside = true;
    pool.for_each(1, [&](std::size_t, execute::arena&) {
        CHECK(runs_parts() != nullptr);
        for_each_part(seen.size(), [&](std::size_t i) {
            ++seen[i];
            if (i == 7) inside = runs_parts() != nullptr;
        });
    });
    CHECK(seen == std::vector<int>(100, 1));
    CHECK_FALSE(inside);
    CHECK(runs_parts() == nullptr);
    CHECK_THROWS_WITH_AS(pool.for_each(1,
                                       [](std::size_t, execute::arena&) {
                                           for_each_part(10, [](std::size_t i) {
                                               if (i == 3) throw error("part 3");
                                           });
                                       }),
                         "part 3", error);
    // There are enough samples for every thread, so each sample is run as a whole.
    bool whole = true;
    pool.for_each(12, [&](std::size_t i, execute::arena&) {
        if (i == 0) whole = runs_parts() == nullptr;
    });
    CHECK(whole);
}
