// SPDX-License-Identifier: Apache-2.0
// Targets that count from the reference, by any measure; what a search with few trials returns; what it says of requests and progress.
#include <doctest/doctest.h>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using nlohmann::json;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model = folder + "digits.onnx";
const std::string examples = std::string(QK_SOURCE_DIR) + "/examples/mixed_precision/";

words search_words(words more) {
    more.insert(more.begin(), {"search", model, "--inputs", folder + "test_images.npy", "--labels", folder + "test_labels.npy", "--threads",
                               "1", "--samples"});
    return more;
}
qk_test::outcome run(const words& more) {
    words all = search_words(more);
    all.push_back("--json");
    return qk_test::run_tool(all);
}
json said(const words& more, int status = 0) {
    const auto done = run(more);
    INFO(done.err);
    REQUIRE(done.status == status);
    return json::parse(done.out);
}

/// A server whose answers are `first` (the reference), then `rest`.
std::string server(const std::string& first, const std::string& rest) {
    return "echo ready; read -r line; echo " + first + "; while read -r line; do echo " + rest + "; done";
}

const words narrow{"40", "--wide", "int8/int8", "--narrow", "int4/int4"};
words with(const words& more) {
    words all = narrow;
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

void refuse(const words& more, const words& says) {
    const auto done = run(with(more));
    INFO(done.err);
    CHECK(done.status == 2);
    for (const std::string& s : says) CHECK(done.err.find(s) != std::string::npos);
    CHECK(done.err.find("--target-user") == std::string::npos);
}

}  // namespace

TEST_CASE("a drop and a share count from what the same function measures of the reference, in the direction of the metric") {
    const auto target = [&](const words& more, int status) { return said(with(more), status)["target"].get<double>(); };
    const auto served = [&](const std::string& first, const std::string& rest, words more) {
        more.insert(more.end(), {"--metric-server", server(first, rest)});
        return more;
    };
    CHECK(target(served("0.77", "0.765", {"--target-drop", "0.01", "--higher-is-better"}), 0) == 0.76);
    CHECK(target(served("0.77", "0.755", {"--target-drop", "0.01", "--higher-is-better"}), 1) == 0.76);
    CHECK(target(served("0.8", "0.792", {"--target-relative", "0.01", "--higher-is-better"}), 0) == 0.792);
    CHECK(target(served("0.8", "0.7919", {"--target-relative", "0.01", "--higher-is-better"}), 1) == 0.792);
    CHECK(target(served("2", "2.2", {"--target-relative", "0.1"}), 0) == 2.2);  // a loss: lower is better
    CHECK(target(served("2", "2.21", {"--target-relative", "0.1"}), 1) == 2.2);
    CHECK(target(served("-4", "-4.4", {"--target-relative", "0.1", "--higher-is-better"}), 0) == -4.4);
    CHECK(target(served("-4", "-4.41", {"--target-relative", "0.1", "--higher-is-better"}), 1) == -4.4);
    CHECK(target({"--metric-command", "echo 5 #", "--target-drop", "0.5"}, 0) == 5.5);

    // Metrics of the tool's own: top1 as its own option has it, and others as well.
    const json a = said(with({"--target-top1-drop", "0.05"})), b = said(with({"--metric", "top1", "--target-drop", "0.05"}));
    CHECK(a["target"] == b["target"]);
    CHECK(a["layers"] == b["layers"]);
    const double reference = a["float_metric"];
    CHECK(said(with({"--metric", "top1", "--target-relative", "0.1"}))["target"].get<double>() == doctest::Approx(0.9 * reference));
    const json loss = said(with({"--metric", "loss", "--target-drop", "0.25"}));
    CHECK(loss["target"].get<double>() == doctest::Approx(loss["float_metric"].get<double>() + 0.25));
    CHECK(loss["metric"] <= loss["target"]);
    CHECK(said(with({"--metric", "l2", "--target-drop", "2"}))["target"] == 2);
    CHECK(said(with({"--metric", "agreement", "--target-relative", "0.25"}))["target"] == 0.75);
}

TEST_CASE("a target from a drop is the number that a person would write") {
    // 0.77 - 0.01 is 0.76 in floating point only after rounding.
    for (const auto& [first, drop, exact] : std::vector<std::array<std::string, 3>>{{"0.77", "0.01", "0.76"},
                                                                                    {"0.81", "0.02", "0.79"},
                                                                                    {"0.9633", "0.02", "0.9433"},
                                                                                    {"0.05", "0.05", "0"},
                                                                                    {"1e-9", "1e-10", "9e-10"}}) {
        const auto done = run(with({"--metric-server", server(first, exact), "--higher-is-better", "--target-drop", drop}));
        INFO(first, " - ", drop, ": ", done.out, done.err);
        CHECK(done.status == 0);
        const json target = json::parse(done.out)["target"];
        CHECK(target == json::parse(exact));
    }
}

TEST_CASE("targets that say nothing are errors, and errors name only options that there are") {
    refuse({"--metric-server", server("1", "1")}, {"--target-metric, --target-drop or --target-relative", "--budget"});
    refuse({"--metric-server", server("1", "1"), "--target-top1-drop", "0.1"},
           {"--target-metric X", "--target-drop X", "--target-relative X"});
    refuse({"--metric", "top1"}, {"--target-top1-drop", "--target-relative"});
    refuse({"--metric", "sqnr", "--target-drop", "3"}, {"reference, whose sqnr is inf", "--target-sqnr"});
    refuse({"--metric", "l2", "--target-relative", "0.1"}, {"reference's l2 is none, since that is 0", "--target-l2", "--target-drop"});
    refuse({"--metric-server", server("0", "1"), "--target-relative", "0.1"},
           {"reference's metric is none, since that is 0", "--target-metric"});
    refuse({"--metric-server", server("nan", "1"), "--target-drop", "0.1"}, {"nan", "--target-metric"});
    refuse({"--metric", "top1", "--target-drop", "1.5"}, {"fraction"});
    refuse({"--target-drop", "-1"}, {"--target-drop", "at least 0"});
    refuse({"--target-drop", "0.1", "--target-relative", "0.1"}, {"one target"});
    refuse({"--target-drop", "0.1", "--target-l2", "1"}, {"one target"});
}

TEST_CASE("a measure of one's own that falls below the reference is questioned where lower counts as better") {
    const json quiet = said(with({"--metric-server", server("0.8", "0.9"), "--target-drop", "0.2"}));
    CHECK(quiet["remarks"].dump().find("--higher-is-better") == std::string::npos);
    const json doubtful = said(with({"--metric-server", server("0.8", "0.1"), "--target-drop", "0.01"}));
    CHECK(doubtful["remarks"].dump().find("say --higher-is-better") != std::string::npos);
}

TEST_CASE("a criterion in a requests file is such a target; a target on the command line counts instead") {
    const qk_test::scratch place;
    const auto file = [&](const std::string& text) {
        std::ofstream(place("requests.json")) << "{\n\"criterion\": " << text << "}";
        return place("requests.json");
    };
    const std::string users = server("0.8", "0.75");
    const auto target = [&](const std::string& text, words more = {}) {
        more.insert(more.end(), {"--plan", file(text), "--metric-server", users, "--higher-is-better"});
        return said(with(more), 0)["target"].get<double>();
    };
    CHECK(target(R"({"relative": 0.1})") == 0.72);
    CHECK(target(R"({"absolute": 0.1})") == 0.7);
    CHECK(target(R"({"absolute": 0.01})", {"--target-metric", "0.5"}) == 0.5);
    const auto wrong = [&](const std::string& text, const words& says) { refuse({"--plan", file(text), "--metric", "top1"}, says); };
    wrong(R"({"relative": 0.1, "absolute": 0.1})", {"requests.json:2", "or"});
    wrong("{}", {"\"relative\": X", "\"absolute\": X"});
    wrong(R"({"relativ": 0.1})", {"Did you mean 'relative'"});
    wrong(R"({"relative": -0.1})", {"requests.json:2", "at least 0"});
    wrong("0.1", {"requests.json:2"});
    const auto quantized = qk_test::run_tool({"quantize", model, "--calibration", folder + "test_images.npy", "--samples", "8", "-o",
                                              place("q.onnx"), "--plan", file(R"({"relative": 0.1})"), "--activation", "int8"});
    CHECK(quantized.status == 2);
    CHECK(quantized.err.find("the goal of `qk search`") != std::string::npos);
}

TEST_CASE("INC's tuning space within a limit: everything narrow first, and no strategy saves less than greedy") {
    const auto found = [&](const std::string& strategy, const words& target, const std::string& trials) {
        words w{"60", "--plan", examples + "inc_tuning_space.json", "--wide", "fp32/fp32", "--strategy", strategy, "--max-trials", trials};
        w.insert(w.end(), target.begin(), target.end());
        return said(w);
    };
    const words easy{"--target-top1-drop", "0.05"}, hard{"--target-sqnr", "35"};
    for (const char* strategy : {"greedy", "basic", "mse", "hawq_v2", "bayesian", "random", "budget", "pareto"}) {
        INFO(strategy);
        const json r = found(strategy, easy, "40");
        CHECK(r["evaluations"] == 2);
        CHECK(r["cost"] < 0.3 * r["wide_cost"].get<double>());
        for (const char* trials : {"10", "30", "100"}) {
            if (trials == std::string("100") && strategy != std::string("basic") && strategy != std::string("random")) continue;
            INFO(trials);
            const json best = found("greedy", hard, trials), own = found(strategy, hard, trials);
            CHECK(best["cost"] < 0.5 * best["wide_cost"].get<double>());
            CHECK(own["cost"] <= best["cost"]);
            CHECK(own["target_met"] == true);
        }
    }
}

TEST_CASE("a limit that leaves every layer wide is exit status 1 and a sentence; not so a search that looked everywhere") {
    const words impossible = with({"--target-l2", "0", "--baseline", "wide"});
    words limited = impossible;
    limited.insert(limited.end(), {"--max-trials", "5"});
    const json stopped = said(limited, 1);
    CHECK(stopped["status"] == "trial limit");
    CHECK(stopped["target_met"] == false);
    CHECK(stopped["remarks"].dump().find("before it found a mix that saves anything") != std::string::npos);
    const json looked = said(impossible);
    CHECK(looked["target_met"] == true);
}

TEST_CASE("a server's search that everything narrow satisfies is over with that") {
    const qk_test::scratch place;
    const std::string log = place("log");
    const std::string counting = "echo ready; while read -r line; do echo x >> " + log + "; echo 0.5; done";
    const json r = said(with({"--metric-server", counting, "--target-drop", "0.1"}));
    CHECK(r["evaluations"] == 2);
    CHECK(qk_test::content(log) == "x\nx\nx\n");  // the reference, all wide, all narrow
}

TEST_CASE("an exclusion in a search is no request without effect, though the wide model has none for it") {
    const qk_test::scratch place;
    const auto file = [&](const std::string& layer) {
        std::ofstream(place("requests.json")) << R"({"requests": [{"layer": ")" << layer << R"(", "exclude": true}]})";
        return words{"100", "--plan", place("requests.json"), "--wide", "fp32/fp32", "--narrow", "uint8/int8", "--target-agreement", "0.9"};
    };
    const json all = said({"100", "--wide", "fp32/fp32", "--narrow", "uint8/int8", "--target-agreement", "0.9"});
    const std::string layer = all["layers"].begin().key();
    const json without = said(file(layer));
    CHECK(without["remarks"].dump().find("has no effect") == std::string::npos);
    CHECK_FALSE(without["layers"].contains(layer));
    CHECK(without["layers"].size() + 1 == all["layers"].size());
    words strict = file(layer);
    strict.push_back("--strict");
    CHECK(said(strict)["layers"] == without["layers"]);
    // One that has no effect under any option is still said, and an error under --strict.
    words none = file("*relu*");
    CHECK(said(none)["remarks"].dump().find("has no effect") != std::string::npos);
    none.push_back("--strict");
    const auto refused = run(none);
    CHECK(refused.status == 2);
    CHECK(refused.err.find("has no effect") != std::string::npos);
}

TEST_CASE("the bar of a search without limits moves") {
    words all = search_words({"200", "--wide", "int8/int8", "--narrow", "int8/int4", "--strategy", "random", "--target-sqnr", "60"});
    all.insert(all.begin(), QK_TOOL);
    std::vector<char*> arguments;
    for (std::string& w : all) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(child >= 0);
    if (child == 0) {
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t n = 0; (n = ::read(terminal, part.data(), part.size())) > 0;) text.append(part.data(), static_cast<std::size_t>(n));
    ::close(terminal);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(text.find("/0 searching") == std::string::npos);
    std::set<std::string> bars;
    for (std::size_t at = text.find(" searching"); at != std::string::npos; at = text.find(" searching", at + 1)) {
        const std::size_t begin = text.rfind('[', at), end = text.find(']', begin);
        if (begin != std::string::npos && end < at) bars.insert(text.substr(begin, end - begin));
    }
    INFO(text);
    CHECK(bars.size() > 1);
    for (const std::string& b : bars) CHECK(b.find('#') != std::string::npos);
}
