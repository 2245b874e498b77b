// SPDX-License-Identifier: Apache-2.0
// Under a full disk, a read-only folder, a file-size limit, a device that accepts nothing, or a kill at twenty moments, inputs stay intact
// and outputs are whole or absent.
#include <doctest/doctest.h>

#include <poll.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace fs = std::filesystem;
using qk_test::background;
using qk_test::content;
using qk_test::outcome;
using qk_test::run_tool;
using qk_test::scratch;
using words = std::vector<std::string>;

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";

/// Returns the content of every file below `folder`, by its path relative to `folder`.
std::map<std::string, std::string> files_in(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) all[fs::relative(entry.path(), folder).string()] = content(entry.path());
    return all;
}

/// The files that verbs read, in a folder apart from their outputs.
struct material {
    scratch place;
    std::string model = place("m.onnx"), x = place("x.npy"), q = place("q.onnx");
    material() {
        fs::copy_file(digits + "digits.onnx", model);
        const auto images = qk::graph::read_npy(digits + "test_images.npy");
        qk::graph::dims shape = images.shape();
        shape[0] = 8;
        qk::graph::write_npy(x, qk::graph::tensor(images.type(), shape, images.buffer()));
        REQUIRE(run_tool({"quantize", model, "-o", q, "--activation", "int8", "--weight", "int8", "--calibration", x}).status == 0);
    }
    /// Returns a command of each verb that writes files, with all of its outputs in `folder`.
    std::vector<words> commands(const std::string& folder) const {
        const std::string at = folder + "/";
        return {{"quantize", model, "--activation", "int8", "--weight", "int8", "--calibration", x, "-o", at + "o.onnx", "--save-plan",
                 at + "p.json", "--encodings", at + "e.json", "--log", at + "l.txt", "--report", at + "r.html"},
                {"search", model, "--inputs", x, "--target-l2", "9", "--max-trials", "2", "-o", at + "o.onnx", "--save-plan", at + "p.json",
                 "--report", at + "r.html"},
                {"sensitivity", model, "--inputs", x, "--layers", "head", "--report", at + "r.html"},
                {"calibrate", model, "--inputs", x, "-o", at + "c.json", "--report", at + "r.html"},
                {"evaluate", model, "--inputs", x, "--output-dir", at + "out"},
                {"inspect", q, "--save-plan", at + "p.json", "--save-float", at + "f.onnx"},
                {"convert", x, at + "y.npy", "--format", "mxfp4", "--packed", at + "y.npz"},
                {"vectors", "--format", "fp4_e2m1", "--out", at + "v"}};
    }
};

/// Mounts a file system of `bytes` bytes, if this process may.
class small_disk {
  public:
    explicit small_disk(std::size_t bytes) {
        mounted_ = ::mount("qk_test", place_.folder().c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
    }
    ~small_disk() {
        if (mounted_) ::umount(place_.folder().c_str());
    }
    bool mounted() const { return mounted_; }
    bool make_read_only() { return ::mount("qk_test", place_.folder().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0; }
    std::string folder() const { return place_.folder().string(); }

  private:
    scratch place_;
    bool mounted_ = false;
};

/// Checks that the command wrote all of `whole` and succeeded, or changed nothing and said why.
void check_all_or_none(const outcome& done, const fs::path& folder, const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& whole) {
    CAPTURE(done.err);
    const auto after = files_in(folder);
    if (done.status == 0) {
        CHECK(after.size() == whole.size());
        for (const auto& [name, text] : whole) CHECK(after.count(name) == 1);
    } else {
        CHECK(done.status == 2);
        if (done.err.size() < 500) CHECK(done.err.find("qk: cannot ") != std::string::npos);  // a file-size limit cuts stderr, too
        CHECK((after == before));
        if (before.empty()) CHECK(fs::is_empty(folder));
    }
}

}  // namespace

TEST_CASE("a full disk") {
    const material m;
    const auto inputs = files_in(m.place.folder());
    if (!small_disk(4096).mounted()) {
        std::cout << "no right to mount a small disk here: the file-size limit below stands for it\n";
        return;
    }
    for (std::size_t k = 0; k < m.commands("").size(); ++k) {
        const scratch complete;
        const words first = m.commands(complete.folder().string())[k];
        REQUIRE(run_tool(first).status == 0);
        const auto whole = files_in(complete.folder());
        std::size_t bytes = 0, failures = 0;  // an output of one page fits even on the smallest disk
        for (const auto& [name, text] : whole) bytes += (text.size() + 4095) / 4096 * 4096;
        for (const std::size_t share : {0, 20, 40, 60, 80, 90}) {
            const small_disk disk(std::max<std::size_t>(4096, bytes * share / 100 / 4096 * 4096));
            CAPTURE(first.front());
            CAPTURE(share);
            const outcome done = run_tool(m.commands(disk.folder())[k]);
            check_all_or_none(done, disk.folder(), {}, whole);
            failures += done.status == 2;
        }
        CHECK((failures > 0) == (bytes > 4096));
    }
    CHECK((files_in(m.place.folder()) == inputs));
}

TEST_CASE("a limit on the size of files, over what stood there before") {
    const material m;
    const auto inputs = files_in(m.place.folder());
    for (std::size_t k = 0; k < m.commands("").size(); ++k) {
        const scratch place;
        const words command = m.commands(place.folder().string())[k];
        REQUIRE(run_tool(command).status == 0);
        const auto whole = files_in(place.folder());
        for (const auto& [name, text] : whole) std::ofstream(place.folder() / name, std::ios::binary) << "what stood there before";
        const auto before = files_in(place.folder());
        std::size_t failures = 0, largest = 0;
        for (const auto& [name, text] : whole) largest = std::max(largest, text.size());
        for (const char* blocks : {"1", "16", "64", "200"}) {  // blocks of 512 or 1024 bytes
            std::string line = std::string("ulimit -f ") + blocks + "; exec '" + QK_TOOL + "'";
            for (const std::string& w : command) line += " '" + w + "'";
            const outcome done = background({"sh", "-c", line}).wait();
            CAPTURE(line);
            if (done.status == 0) {
                check_all_or_none(done, place.folder(), before, whole);
                for (const auto& [name, text] : whole) std::ofstream(place.folder() / name, std::ios::binary) << "what stood there before";
            } else {
                check_all_or_none(done, place.folder(), before, whole);
                ++failures;
            }
        }
        CHECK((failures > 0 || largest <= 1024));
    }
    CHECK((files_in(m.place.folder()) == inputs));
}

TEST_CASE("a read-only folder, and a folder that is not there") {
    const material m;
    const scratch place;
    small_disk disk(1 << 20);
    std::string closed = place("closed");
    fs::create_directory(closed);
    if (disk.mounted() && disk.make_read_only()) closed = disk.folder();
    else if (::geteuid() == 0) closed = "/proc/self";  // a folder in which even root cannot create files
    else ::chmod(closed.c_str(), 0500);
    for (const words& command : m.commands(closed)) {
        const outcome done = run_tool(command);
        CAPTURE(command.front());
        CAPTURE(done.err);
        CHECK(done.status == 2);
        CHECK(done.err.find(closed) != std::string::npos);
    }
    // If one of several outputs cannot be written, the others do not appear either.
    const auto before = files_in(place.folder());
    CHECK(run_tool({"quantize", m.model, "--activation", "int8", "--weight", "int8", "--calibration", m.x, "-o", place("o.onnx"), "--log",
                    closed + "/l.txt"})
              .status == 2);
    CHECK(run_tool({"convert", m.x, place("y.npy"), "--format", "mxfp4", "--packed", closed + "/y.npz"}).status == 2);
    CHECK(run_tool({"convert", m.x, place("y.npy"), "--format", "mxfp4", "--packed", place("nowhere/y.npz")}).status == 2);
    CHECK((files_in(place.folder()) == before));
    ::chmod(place("closed").c_str(), 0700);
}

TEST_CASE("a device that takes nothing, standard output that takes nothing") {
    const material m;
    const scratch place;
    for (const char* option : {"-o", "--log", "--report", "--save-plan"}) {
        words command{"quantize", m.model, "--activation", "int8", "--weight", "int8", "--calibration", m.x};
        for (const char* each : {"-o", "--log", "--report", "--save-plan"}) {
            command.push_back(each);
            command.push_back(std::string(each) == option && std::string(each) != "--report" ? "/dev/full"
                                                                                             : place(std::string("out") + each + ".html"));
        }
        if (std::string(option) == "--report") continue;  // its JSON would be a file in /dev
        const outcome done = run_tool(command);
        CAPTURE(option);
        CAPTURE(done.err);
        CHECK(done.status == 2);
        CHECK(done.err.find("/dev/full") != std::string::npos);
        CHECK(place.files() == 0);
    }
    const outcome closed = background({"sh", "-c", std::string("exec '") + QK_TOOL + "' formats --json > /dev/full"}).wait();
    CHECK(closed.status == 2);
    CHECK(closed.err.find("standard output") != std::string::npos);
    // Writing to a pipe must not replace it.
    const outcome piped =
        background({"sh", "-c", std::string("'") + QK_TOOL + "' convert '" + m.x + "' /dev/stdout --format int8 | head -c 6"}).wait();
    CHECK(piped.out == "\x93NUMPY");
    const outcome redirected =
        background(
            {"sh", "-c", std::string("'") + QK_TOOL + "' convert '" + m.x + "' /dev/stdout --format int8 > '" + place("y.npy") + "'"})
            .wait();
    CHECK(redirected.status == 0);
    CHECK(fs::is_symlink("/dev/stdout"));
    CHECK(qk::graph::read_npy(place("y.npy")).shape()[0] == 8);
}

TEST_CASE("killed at twenty moments of its writing") {
    const material m;
    const auto inputs = files_in(m.place.folder());
    const scratch place;
    const words command = m.commands(place.folder().string()).front();
    REQUIRE(run_tool(command).status == 0);
    const auto whole = files_in(place.folder());
    REQUIRE(whole.size() == 6);
    words line{QK_TOOL};
    line.insert(line.end(), command.begin(), command.end());
    std::size_t killed = 0, leftovers = 0;
    for (int moment = 0; moment < 20; ++moment) {
        const bool replacing = moment % 2 == 1;  // outputs replace existing files, or there are none
        for (const auto& [name, text] : whole) {
            fs::remove(place.folder() / name);
            if (replacing) std::ofstream(place.folder() / name, std::ios::binary) << "old";
        }
        // Kills at the n-th event in the folder (file made, written, closed, renamed or removed).
        const int watch = ::inotify_init1(IN_CLOEXEC);
        REQUIRE(::inotify_add_watch(watch, place.folder().c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE) >= 0);
        background run(line);
        for (int seen = 0; seen <= moment * 3;) {
            ::pollfd ready{watch, POLLIN, 0};
            if (::poll(&ready, 1, 2000) <= 0) break;  // no more events
            alignas(::inotify_event) char events[4096];
            const ::ssize_t n = ::read(watch, events, sizeof events);
            for (const char* at = events; at < events + n;
                 at += sizeof(::inotify_event) + reinterpret_cast<const ::inotify_event*>(at)->len)
                ++seen;
        }
        ::kill(run.pid(), SIGKILL);
        killed += run.wait().status < 0;
        ::close(watch);
        CAPTURE(moment);
        for (const auto& [name, text] : files_in(place.folder())) {
            CAPTURE(name);
            if (name.front() == '.') {
                CHECK(name.find(".qk-") != std::string::npos);  // a leftover is recognisable by its name
                ++leftovers;
            } else {
                REQUIRE(whole.count(name) == 1);
                CHECK((text == whole.at(name) || (replacing && text == "old")));
            }
        }
        if (replacing)
            for (const auto& [name, text] : whole) CHECK(fs::exists(place.folder() / name));
    }
    CHECK(killed >= 10);
    REQUIRE(run_tool(command).status == 0);  // a later run removes leftovers
    CHECK((files_in(place.folder()) == whole));
    CHECK((files_in(m.place.folder()) == inputs));
    MESSAGE(killed, " of 20 runs killed, ", leftovers, " temporary files left by them, none after the next run");
}
