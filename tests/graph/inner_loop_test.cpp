// SPDX-License-Identifier: Apache-2.0
// An operator whose parts are run side by side gives the bits that it gives alone, in whatever order they are run.
#include "qk/graph/base/inner_loop.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>

#include "build_model.hpp"
#include "call_op.hpp"
#include "qk/graph/evaluate/execute/workers.hpp"

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
            {"MatMul", 13, {random_tensor({3, 8, 41, 65}, 11, 1), random_tensor({8, 65, 43}, 12, 1)}, {}}};
}

bool same_bits(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

}  // namespace

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
    // Enough samples for every thread: each sample is run as a whole.
    bool whole = true;
    pool.for_each(12, [&](std::size_t i, execute::arena&) {
        if (i == 0) whole = runs_parts() == nullptr;
    });
    CHECK(whole);
}
