// SPDX-License-Identifier: Apache-2.0
// Runs the built command `qk` and keeps what it said, for tests of the command line.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern char** environ;

namespace qk_test {

/// A folder that goes away with the test.
class scratch {
  public:
    scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "qk_test_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~scratch() { std::filesystem::remove_all(folder_); }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    std::string operator()(const std::string& name) const { return (folder_ / name).string(); }
    const std::filesystem::path& folder() const { return folder_; }
    /// Files whose name is none of the test's own inputs: what an aborted command must not leave.
    std::size_t files() const {
        std::size_t n = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++n;
        return n;
    }

  private:
    std::filesystem::path folder_;
};

inline std::string content(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

struct outcome {
    int status = -1;  ///< of the process; -1: it did not exit by itself
    std::string out, err;
};

inline outcome run_tool(const std::vector<std::string>& arguments) {
    const scratch place;
    const std::string out = place("out"), err = place("err");
    std::vector<char*> argv{const_cast<char*>(QK_TOOL)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    outcome result;
    pid_t child = 0;
    if (::posix_spawn(&child, QK_TOOL, &files, nullptr, argv.data(), environ) == 0) {
        int state = 0;
        ::waitpid(child, &state, 0);
        if (WIFEXITED(state)) result.status = WEXITSTATUS(state);
    }
    posix_spawn_file_actions_destroy(&files);
    result.out = content(out);
    result.err = content(err);
    return result;
}

}  // namespace qk_test
