// SPDX-License-Identifier: Apache-2.0
// What is said of a plan's notes: weights of remarks, and one line for the same thing about several layers.
#include <doctest/doctest.h>

#include "qk/graph/quantize/remarks.hpp"

using namespace qk::graph;
using kind = plan_note::kind;

TEST_CASE("what is wrong or has to be done is a warning; what happened as it should is none") {
    for (const kind k :
         {kind::unmatched, kind::contradictory, kind::unrealised, kind::unchanged, kind::destroyed, kind::requantized, kind::unused}) {
        CHECK(is_warning({k, "layer 'a'", "text"}));
        CHECK(remark_line({k, "layer 'a'", "text", "r.json:3"}) == "warning: " + std::string(name_of(k)) + ": r.json:3: layer 'a': text");
    }
    for (const kind k :
         {kind::overridden, kind::boundary, kind::propagated, kind::moved, kind::adjusted, kind::left_out, kind::renamed, kind::absent,
          kind::tied, kind::embedding, kind::cache, kind::scaled, kind::rotated, kind::together, kind::recurrent}) {
        CHECK_FALSE(is_warning({k, "layer 'a'", "text"}));
        CHECK(remark_line({k, "layer 'a'", "text"}) == std::string(name_of(k)) + ": layer 'a': text");
    }
}

TEST_CASE("the same thing about several layers is one line with their number, where the first of them stood") {
    const std::vector<plan_note> notes{{kind::left_out, "layer 'a'", "the target has no Relu"},
                                       {kind::unused, "option --symmetric", "has no effect"},
                                       {kind::left_out, "layer 'b'", "the target has no Relu"},
                                       {kind::destroyed, "tensor 'x'", "2.5 dB are left beside 'y' of 3"},
                                       {kind::left_out, "layer 'c'", "the target has no Relu", "r.json:1"},
                                       {kind::destroyed, "tensor 'z'", "0.25 dB are left beside 'other' of 12"},
                                       {kind::left_out, "tensor 'a'", "the target has no Relu"},
                                       {kind::unused, "option --dual", "has no effect"},
                                       {kind::tied, "bias 'p' of 'q'", "it's shared"},
                                       {kind::tied, "bias 'r' of 's'", "it's shared"}};
    CHECK(remark_lines(notes) ==
          std::vector<std::string>{"left_out: 2 layers ('a', ...): the target has no Relu",
                                   "warning: unused: option --symmetric: has no effect",
                                   "warning: destroyed: 2 tensors ('x', ...): the first: 2.5 dB are left beside 'y' of 3",
                                   "left_out: r.json:1: layer 'c': the target has no Relu", "left_out: tensor 'a': the target has no Relu",
                                   "warning: unused: option --dual: has no effect", "tied: 2 biases ('p', ...): it's shared"});
    const std::vector<plan_note> apart{{kind::adjusted, "model 'm'", "3 changes"}, {kind::adjusted, "model 'm'", "4 changes"}};
    CHECK(remark_lines(apart).size() == 2);
    const std::vector<plan_note> named{{kind::renamed, "tensor 'a'", "is 'b' now"}, {kind::renamed, "tensor 'c'", "is 'd' now"}};
    CHECK(remark_lines(named).size() == 2);
    CHECK(remark_lines({}).empty());
}

TEST_CASE("tensors between two formats have one line for all") {
    const std::vector<plan_note> notes{{kind::boundary, "tensor 'a'", "one"}, {kind::boundary, "tensor 'b'", "two"}};
    const widened_tensors widened{{{"bf16", "bfp16"}, {"a", "b"}}};
    const std::vector<std::string> lines = remark_lines(notes, widened);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0] == "boundary: " + boundary_line(widened));
    CHECK(remark_lines(notes).size() == 2);
}
