// SPDX-License-Identifier: Apache-2.0
// One search over several MPI processes on this machine: it has the result of one process, and loses no trials when a process dies.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "run_tool.hpp"

using namespace qk_test;

#ifdef QK_MPIRUN

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";

std::vector<std::string> search(const std::vector<std::string>& more) {
    std::vector<std::string> command{"search",    digits + "digits.onnx",
                                     "--inputs",  digits + "test_images.npy",
                                     "--samples", "50",
                                     "--threads", "1",
                                     "--json",    "--wide",
                                     "int8/int8", "--narrow",
                                     "int8/int4"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

std::vector<std::string> launched(int processes, const std::vector<std::string>& arguments) {
    std::vector<std::string> command{QK_MPIRUN, "-n", std::to_string(processes), "--oversubscribe"};
    if (::geteuid() == 0) command.push_back("--allow-run-as-root");
    command.push_back(QK_TOOL);
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

/// Returns the search's JSON without its times.
nlohmann::json said(const outcome& o) {
    CAPTURE(o.err);
    auto json = nlohmann::json::parse(o.out, nullptr, false);
    REQUIRE(json.is_object());
    for (const char* name : {"seconds", "peak_bytes", "cached"}) json.erase(name);
    return json;
}

std::size_t lines(const std::string& file) {
    const std::string text = content(file);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Returns the child processes of the launcher, which are the processes of the search.
std::vector<pid_t> children(pid_t parent) {
    std::vector<pid_t> all;
    std::istringstream list(content("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
    for (pid_t child = 0; list >> child;) all.push_back(child);
    return all;
}

}  // namespace

TEST_CASE("any number of processes gives the result of one") {
    for (const std::vector<std::string>& how :
         {std::vector<std::string>{"--target-l2", "1.5"}, {"--strategy", "pareto", "--metric", "sqnr"}}) {
        const auto alone = said(run_tool(search(how)));
        for (const int n : {2, 3}) {
            CAPTURE(n);
            CHECK(said(background(launched(n, search(how))).wait()) == alone);
        }
    }
}

TEST_CASE("sensitivities, too") {
    const std::vector<std::string> command{"sensitivity", digits + "digits.onnx", "--inputs", digits + "test_images.npy", "--samples", "20",
                                           "--json"};
    CHECK(said(background(launched(2, command)).wait()) == said(run_tool(command)));
}

TEST_CASE("a command of the user's runs once for each measurement, not once for each process") {
    const scratch place;
    const std::string log = place("log");
    const outcome o =
        background(launched(2, search({"--target-metric", "1", "--metric-command", "echo 1 >> " + log + "; echo 0.5 #"}))).wait();
    CHECK(o.status == 0);
    CHECK(lines(log) == said(o)["evaluations"].get<std::size_t>() + 1);  // the log also holds the reference
}

TEST_CASE("a process that dies ends the run, and the cache goes on from there") {
    const scratch place;
    const std::string cache = place("cache");
    const std::vector<std::string> how{"--target-metric", "1",   "--metric-command", "sleep 0.2; echo 0.5 #",
                                       "--cache",         cache, "--max-trials",     "40"};
    background run(launched(2, search(how)));
    for (int i = 0; i < 600 && lines(cache) < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::vector<pid_t> processes = children(run.pid());
    REQUIRE(!processes.empty());
    ::kill(processes.back(), SIGKILL);
    CHECK(run.wait().status != 0);
    const std::size_t kept = lines(cache);
    REQUIRE(kept >= 2);
    const outcome resumed = run_tool(search(how));
    CHECK(resumed.status == 0);
    CHECK(nlohmann::json::parse(resumed.out)["cached"].get<std::size_t>() >= kept - 1);  // the last line may be torn
}

TEST_CASE("wrong use is said once, and only search and sensitivity divide their work") {
    const outcome missing =
        background(launched(2, {"search", "nowhere.onnx", "--inputs", digits + "test_images.npy", "--target-l2", "1"})).wait();
    CHECK(missing.status == 2);
    CHECK(missing.err.find("nowhere.onnx") != std::string::npos);
    CHECK(missing.err.find("nowhere.onnx") == missing.err.rfind("nowhere.onnx"));
    CHECK(background(launched(2, {"formats"})).wait().status == 2);
    for (const auto& [more, says] :
         {std::pair{std::vector<std::string>{"--plan", "-"}, "--plan -: several processes have no standard input"},
          std::pair{std::vector<std::string>{"--save-plan", "-"}, "--save-plan -: several processes have no standard output"}}) {
        std::vector<std::string> command{"search", digits + "digits.onnx", "--inputs", digits + "test_images.npy", "--target-l2", "1"};
        command.insert(command.end(), more.begin(), more.end());
        const outcome dash = background(launched(2, command)).wait();
        CAPTURE(dash.err);
        CHECK(dash.status == 2);
        CHECK(dash.err.find(says) != std::string::npos);
    }
}

TEST_CASE("a failure that all processes meet is said once, however slowly the launcher ends them") {
    const scratch place;
    const std::string table = place("table.json");  // takes some seconds until its error
    std::ofstream(table) << std::string(std::size_t{200} << 20, ' ') << "no JSON";
    background run(launched(2, search({"--target-l2", "1", "--latency-table", table})));
    for (int i = 0; i < 100 && children(run.pid()).size() < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));  // by now both read
    ::kill(run.pid(), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ::kill(run.pid(), SIGCONT);
    const outcome failed = run.wait();
    CAPTURE(failed.err);
    CHECK(failed.status == 2);
    CHECK(failed.err.find("table.json") != std::string::npos);
    CHECK(failed.err.find("table.json") == failed.err.rfind("table.json"));
    CHECK(said(failed)["status"] == "error");
}

TEST_CASE("outputs of several processes: written once, whole, and never over what is read") {
    const scratch place;
    const std::string model = place("m.onnx"), page = place("r.html");
    std::filesystem::copy_file(digits + "digits.onnx", model);
    std::filesystem::create_hard_link(model, place("same.onnx"));
    const auto two = [&](const std::vector<std::string>& more) {
        std::vector<std::string> command{"search",      model, "--inputs", digits + "test_images.npy", "--samples", "20", "--threads", "1",
                                         "--target-l2", "9",   "--json"};
        command.insert(command.end(), more.begin(), more.end());
        return background(launched(2, command)).wait();
    };
    const std::string before = content(model);
    for (const std::vector<std::string>& over : {std::vector<std::string>{"-o", place("same.onnx")},
                                                 {"--cache", model},
                                                 {"--save-plan", place("./m.onnx")},
                                                 {"--save-plan", place("r.json"), "--report", page}}) {
        const outcome refused = two(over);
        CAPTURE(refused.err);
        CHECK(refused.status == 2);
        const std::string says = over.size() == 2 ? "would replace" : "two outputs";
        CHECK(refused.err.find(says) != std::string::npos);
        CHECK(refused.err.find(says) == refused.err.rfind(says));
        CHECK(said(refused)["status"] == "error");
        CHECK(content(model) == before);
        CHECK(place.files() == 2);
    }
    const outcome done = two({"-o", place("o.onnx"), "--save-plan", place("p.json"), "--report", page});
    CAPTURE(done.err);
    CHECK(done.status == 0);
    CHECK(place.files() == 6);
    CHECK(two({"-o", place("o.onnx"), "--save-plan", "/dev/full", "--report", place("other.html")}).status == 2);
    CHECK(place.files() == 6);
}

#else

TEST_CASE("several processes") { MESSAGE("skipped: built without MPI"); }

#endif
