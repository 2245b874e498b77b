// SPDX-License-Identifier: Apache-2.0
// `qk convert --system` and `qk formats --systems`: the files that they write, and what they refuse.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "qk/graph/files/npy.hpp"
#include "qk/systems.hpp"
#include "run_tool.hpp"

namespace {

using qk_test::run_tool;
namespace graph = qk::graph;

std::string ramp(const qk_test::scratch& place, const char* name, std::vector<std::int64_t> shape) {
    std::vector<float> v(graph::element_count(shape));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 8.0f;
    graph::write_npy(place(name), graph::make_tensor<float>(std::move(shape), v));
    return place(name);
}

}  // namespace

TEST_CASE("convert --system writes the values and the planes that the system keeps") {
    const qk_test::scratch place;
    const std::string x = ramp(place, "x.npy", {2, 2, 64}), y = place("y.npy"), p = place("p.npz");
    const auto done = run_tool({"convert", x, y, "--system", "compressed_tensors.nvfp4", "--packed", p});
    REQUIRE_MESSAGE(done.status == 0, done.err);
    const graph::tensor in = graph::read_npy(x), out = graph::read_npy(y);
    CHECK(out.shape() == graph::dims{2, 2, 64});
    const auto made = qk::systems::find("compressed_tensors.nvfp4")->convert({in.as<float>(), 4, 64, {}});
    CHECK(std::equal(made.values.begin(), made.values.end(), out.as<float>().begin()));
    const auto planes = graph::read_npz(p);
    REQUIRE(planes.size() == 3);
    CHECK(planes[0].name == "codes");
    CHECK(planes[0].value.type() == graph::data_type::uint8);
    CHECK(planes[0].value.shape() == graph::dims{2, 2, 32});  // as the packages have it that take three dimensions
    CHECK(planes[1].name == "scales");
    CHECK(planes[1].value.shape() == graph::dims{2, 2, 4});
    CHECK(planes[2].name == "global");
    CHECK(planes[2].value.type() == graph::data_type::float32);
    CHECK(planes[2].value.shape() == graph::dims{1});
    REQUIRE(run_tool({"convert", x, y, "--system", "mlx.affine4_g64", "--packed", p}).status == 0);
    const auto words = graph::read_npz(p);
    CHECK(words.at(0).value.shape() == graph::dims{2, 2, 8});
    CHECK(words.at(1).value.shape() == graph::dims{2, 2, 2, 1});  // scales and biases
}

TEST_CASE("an importance changes what ggml finds; a vector stays a vector; codes of UE5M3 read back") {
    const qk_test::scratch place;
    const std::string x = ramp(place, "x.npy", {1, 256}), v = ramp(place, "v.npy", {256}), y = place("y.npy"), z = place("z.npy");
    graph::tensor weights = graph::read_npy(v);
    for (float& w : weights.as<float>()) w = std::abs(w) + 0.25f;
    graph::write_npy(v, weights);
    REQUIRE(run_tool({"convert", x, y, "--system", "ggml.q4_K"}).status == 0);
    REQUIRE(run_tool({"convert", x, z, "--system", "ggml.q4_K", "--importance", v}).status == 0);
    CHECK(qk_test::content(y) != qk_test::content(z));

    const std::string line = ramp(place, "line.npy", {50}), codes = place("codes.npz"), back = place("back.npy");
    REQUIRE(run_tool({"convert", line, y, "--system", "auto_round.ue5m3", "--packed", codes}).status == 0);
    CHECK(graph::read_npy(y).shape() == graph::dims{50});
    const auto planes = graph::read_npz(codes);
    CHECK(planes.at(0).value.shape() == graph::dims{50});
    graph::write_npy(place("codes.npy"), planes.at(0).value);
    REQUIRE(run_tool({"convert", place("codes.npy"), back, "--system", "auto_round.ue5m3"}).status == 0);
    CHECK(qk_test::content(back) == qk_test::content(y));
}

TEST_CASE("formats --systems lists every rule, as a table and as JSON") {
    const auto table = run_tool({"formats", "--systems"});
    REQUIRE(table.status == 0);
    for (const auto& rule : qk::systems::rules()) CHECK_MESSAGE(table.out.find(rule.name()) != std::string::npos, rule.name());
    const auto some = run_tool({"formats", "--systems", "mlx.mx", "--json"});
    const auto list = nlohmann::json::parse(some.out)["systems"];
    CHECK(list.size() == 4);
    CHECK(list[0]["name"] == "mlx.mxfp4");
    CHECK(list[0]["keeps"] == "codes scales");
    CHECK(run_tool({"formats", "--systems", "nothing_like_it"}).status == 2);
}

TEST_CASE("what does not fit --system is a sentence, and nothing is written") {
    const qk_test::scratch place;
    const std::string x = ramp(place, "x.npy", {2, 48}), v = ramp(place, "v.npy", {7}), y = place("y.npy");
    const std::size_t before = place.files();
    const auto refuse = [&](std::vector<std::string> options, const std::string& says) {
        options.insert(options.begin(), {"convert", x, y});
        const auto done = run_tool(options);
        CHECK(done.status == 2);
        CHECK_MESSAGE(done.err.find(says) != std::string::npos, done.err);
        CHECK(place.files() == before);
    };
    refuse({"--system", "mlx.mxpf4"}, "Did you mean 'mlx.mxfp4'");
    refuse({"--system", "ggml.q4_K"}, "takes columns in multiples of 256, and here are 48");
    refuse({"--system", "auto_round.nvfp4", "--format", "nvfp4"}, "leave --format out");
    refuse({"--system", "auto_round.nvfp4", "--scale-rule", "even"}, "leave --scale-rule out");
    refuse({"--system", "auto_round.nvfp4", "--count"}, "--count");
    refuse({"--system", "auto_round.nvfp4", "--importance", v}, "does not look at an importance");
    refuse({"--format", "mxfp4", "--importance", v}, "--importance is for --system");
    refuse({"--system", "auto_round.nvfp4", "--importance", place("none.npy")}, "none.npy");
}
