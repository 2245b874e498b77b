// SPDX-License-Identifier: Apache-2.0
// ggml's block types as functions on rows: sizes, names, and that the bytes are those of the rules.
#include <doctest/doctest.h>

#include <algorithm>

#include "packed_answers.hpp"
#include "qk/systems/ggml.hpp"

using namespace qk;

TEST_CASE("a type is found by its name in either case and by its number in a file") {
    using systems::ggml::find;
    CHECK(find("q4_K") == find("Q4_K"));
    CHECK(find("q4_K") == find(12));
    CHECK(find("MXFP4") == find(39));
    CHECK(find("q4") == nullptr);
    CHECK(find(0) == nullptr);
    for (const auto& t : systems::ggml::types()) {
        CHECK_MESSAGE((find(t.name) == &t && find(t.number) == &t), t.name);
        CHECK_MESSAGE(systems::find("ggml." + std::string(t.name)) != nullptr, t.name);
        CHECK_MESSAGE(systems::find("ggml." + std::string(t.name))->multiple == t.values, t.name);
        CHECK_MESSAGE(systems::find("ggml." + std::string(t.name))->takes_importance == t.takes_importance, t.name);
    }
}

TEST_CASE("a row's blocks do not depend on the rows around it, and decode to the rule's values") {
    const packed_answers data;
    const matrix x = data.input("normal256");
    for (const auto& t : systems::ggml::types()) {
        const auto whole = systems::find("ggml." + std::string(t.name))->convert({x.values, x.rows, x.columns, {}});
        for (std::size_t r = 0; r < x.rows; ++r) {
            std::vector<std::byte> blocks(t.bytes_of(x.columns));
            std::vector<float> back(x.columns);
            t.quantize(std::span(x.values).subspan(r * x.columns, x.columns), {}, blocks);
            t.dequantize(blocks, back);
            CHECK_MESSAGE(std::equal(blocks.begin(), blocks.end(),
                                     whole.find("codes")->bytes.begin() + static_cast<std::ptrdiff_t>(r * blocks.size())),
                          t.name);
            CHECK_MESSAGE(std::equal(back.begin(), back.end(), whole.values.begin() + static_cast<std::ptrdiff_t>(r * x.columns)), t.name);
        }
    }
}

TEST_CASE("any bytes decode") {
    std::uint64_t state = 1;
    for (const auto& t : systems::ggml::types()) {
        std::vector<std::byte> blocks(t.bytes_of(1024));
        for (std::byte& b : blocks) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            b = static_cast<std::byte>(state >> 56);
        }
        std::vector<float> y(1024);
        t.dequantize(blocks, y);
        const bool any = std::any_of(y.begin(), y.end(), [](float v) { return v != 0; });
        CHECK_MESSAGE(any, t.name);
    }
}
