// SPDX-License-Identifier: Apache-2.0
// --metric-server: sensitivity and search use one process for all trials, and a server that fails in any way is an error that names it.
#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using qk_test::content;
using qk_test::run_tool;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model = folder + "digits.onnx";
const std::string python = std::string(QK_SOURCE_DIR) + "/build/venv/bin/python";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

qk_test::outcome measured(const std::string& verb, words more) {
    more.insert(more.begin(), {verb, model, "--inputs", folder + "test_images.npy", "--labels", folder + "test_labels.npy", "--samples",
                               "40", "--wide", "int8/int8", "--narrow", "int4/int4", "--threads", "1", "--json"});
    return run_tool(more);
}

/// Returns a server as a shell script, which runs `answer` for each trial; $line is the request.
std::string server(const std::string& answer, const std::string& greeting = "ready") {
    return "echo '" + greeting + "'; while read -r line; do " + answer + "; done";
}

void refuse(const std::string& command, const words& says, const words& more = {}) {
    words all{"--metric-server", command};
    all.insert(all.end(), more.begin(), more.end());
    const auto done = measured("sensitivity", all);
    INFO(command, ": ", done.err);
    CHECK(done.status == 2);
    const std::size_t at = done.err.find("qk: --metric-server '" + command + "'");  // the server's own standard error comes first
    REQUIRE(at != std::string::npos);
    for (const std::string& s : says) CHECK(done.err.find(s, at) != std::string::npos);
    CHECK(std::count(done.err.begin() + static_cast<std::ptrdiff_t>(at), done.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("one process answers every trial of a sensitivity analysis and of a search") {
    const qk_test::scratch place;
    const std::string log = place("log");
    const std::string counting = "echo start >> " + log + "; " + server("echo \"$line\" >> " + log + "; echo 0.5; [ \"$line\" ] || exit");
    const auto done = measured("sensitivity", {"--metric-server", counting});
    INFO(done.err);
    REQUIRE(done.status == 0);
    const std::string said = content(log);
    CHECK(said.starts_with("start\n{"));
    CHECK(said.find("start", 1) == std::string::npos);
    const auto rows = nlohmann::json::parse(done.out);
    const std::size_t trials = static_cast<std::size_t>(std::count(said.begin(), said.end(), '\n')) - 1;
    CHECK(trials > 5);
    // Each request is a line of JSON that names existing files.
    const auto first = nlohmann::json::parse(said.substr(6, said.find('\n', 6) - 6));
    CHECK(first["trial"] == 1);
    CHECK(first["output"].get<std::string>().ends_with("output.npy"));
    CHECK(first["reference"].get<std::string>().ends_with("reference.npy"));
    CHECK(first["labels"].get<std::string>().ends_with("labels.npy"));
    CHECK_FALSE(first.contains("model"));
    CHECK_FALSE(std::filesystem::exists(std::filesystem::path(first["output"].get<std::string>()).parent_path()));  // removed at the end
    CHECK(rows["layer_evaluations"] > 0);  // counted for a user's metric as well
    CHECK(rows["naive_layer_evaluations"] >= rows["layer_evaluations"]);
    const auto search = measured("search", {"--metric-server", server("echo 0.25"), "--target-metric", "1"});
    INFO(search.err);
    CHECK(search.status == 0);
    CHECK(nlohmann::json::parse(search.out)["metric"] == 0.25);
}

TEST_CASE("a server that dies, hangs, or says what is no answer is an error that names the command and what it said") {
    refuse("no_such_program_of_qk", {"ended with status 127", "not found"});
    refuse("exit 3", {"ended with status 3"});
    refuse("echo hello; cat > /dev/null", {"began with 'hello'", "'ready model'"});
    refuse("echo ready; echo the GPU is gone >&2; exit 5", {"ended with status 5", "the GPU is gone"});
    refuse("echo ready; kill -9 $$", {"signal 9"});
    refuse(server("echo garbage"), {"'garbage', which is no number"});
    refuse(server("echo 0.5 and more"), {"'0.5 and more', which is no number"});
    refuse(server("echo"), {"which is no number"});
    refuse(server("printf '\\033[31mred\\n'"), {"'?[31mred'"});          // control characters do not reach the terminal
    refuse(server("echo 0.5; echo 0.6"), {"0.6", "nothing asked for"});  // a slow second line would be reported a trial later
    refuse(server("echo error: no such label"), {"reports of trial 1: 'no such label'"});
    refuse(server("echo 0.5; read -r line; exit 4"), {"ended with status 4", "trial 2"});
    refuse("sleep 30", {"in 0.3 seconds", "--metric-timeout"}, {"--metric-timeout", "0.3"});
    refuse(server("sleep 30"), {"trial 1 in 0.3 seconds"}, {"--metric-timeout", "0.3"});
    refuse("yes | tr -d '\\n'", {"began with 'yyyyyy", "...'"});
}

TEST_CASE("one measure at a time; the target of a server's is --target-metric") {
    const auto both = measured("sensitivity", {"--metric-server", "x", "--metric", "l2"});
    CHECK(both.status == 2);
    CHECK(has(both.err, "one of --metric, --metric-command and --metric-server"));
    const auto killed = measured("sensitivity", {"--metric-command", "kill -9 $$ #"});
    CHECK(killed.status == 2);
    CHECK(has(killed.err, "was killed by signal 9"));
    const auto target = measured("search", {"--metric-server", "x", "--target-l2", "1"});
    CHECK(target.status == 2);
    CHECK(has(target.err, "--target-metric"));
}

TEST_CASE("a server gets the model of each trial, and the example measures it as the search itself would") {
    if (!std::filesystem::exists(python)) {
        std::cout << "skipped: no " << python << "\n";
        return;
    }
    // qk and onnxruntime round differently, but top-1 of 40 images counts right answers, so they differ by one answer at most.
    const std::string example = python + " " + QK_SOURCE_DIR + "/examples/metric_server/server.py " + folder + "test_images.npy";
    const auto served = measured("sensitivity", {"--metric-server", example, "--higher-is-better"});
    INFO(served.err);
    REQUIRE(served.status == 0);
    const auto own = measured("sensitivity", {"--metric", "top1"});
    REQUIRE(own.status == 0);
    const auto metrics = [](const std::string& text) {
        std::vector<std::pair<std::string, double>> all;
        const auto json = nlohmann::json::parse(text);
        for (const auto& row : json.at("sensitivity"))
            all.emplace_back(row.value("layer", "") + row.value("option", "") + row.value("part", ""), row.at("metric").get<double>());
        std::sort(all.begin(), all.end());
        return all;
    };
    const auto a = metrics(served.out), b = metrics(own.out);
    REQUIRE(a.size() == b.size());
    REQUIRE(!a.empty());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].first == b[i].first);
        CHECK(a[i].second == doctest::Approx(b[i].second).epsilon(0).scale(1).epsilon(0.026));  // one answer of 40
    }
}
