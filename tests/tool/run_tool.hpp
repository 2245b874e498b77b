// SPDX-License-Identifier: Apache-2.0
// Runs the built command `qk` and keeps its output, for tests of the command line.
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

/// A temporary folder that is removed with the object.
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
    /// Returns the number of entries in the folder, for checks that an aborted command leaves no file.
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
    int status = -1;  ///< exit status; -1 if the process did not exit by itself
    std::string out, err;
};

/// Runs a program in the background and keeps its output in files.
class background {
  public:
    explicit background(const std::vector<std::string>& command) {
        std::vector<char*> argv;
        for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
        argv.push_back(nullptr);
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        const std::string out = place_("out"), err = place_("err");
        posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        started_ = ::posix_spawnp(&child_, argv[0], &files, nullptr, argv.data(), environ) == 0;
        posix_spawn_file_actions_destroy(&files);
    }
    pid_t pid() const { return child_; }
    outcome wait() {
        outcome result;
        int state = 0;
        if (started_ && ::waitpid(child_, &state, 0) == child_ && WIFEXITED(state)) result.status = WEXITSTATUS(state);
        result.out = content(place_("out"));
        result.err = content(place_("err"));
        return result;
    }

  private:
    scratch place_;
    pid_t child_ = 0;
    bool started_ = false;
};

inline outcome run_tool(const std::vector<std::string>& arguments) {
    std::vector<std::string> command{QK_TOOL};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return background(command).wait();
}

}  // namespace qk_test
