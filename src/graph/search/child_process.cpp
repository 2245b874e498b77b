// SPDX-License-Identifier: Apache-2.0
#include "graph/search/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "qk/graph/base/error.hpp"

extern char** environ;

namespace qk::graph {
namespace {

using clock = std::chrono::steady_clock;

void shut(int& descriptor) {
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
}

/// Pairs of descriptors that are closed on exec: the child gets only those that are duplicated for it.
struct plumbing {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    bool open() {
        // Standard input is a socket: writing to one whose reader is gone gives an error instead of a signal.
        return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0 && ::pipe2(out, O_CLOEXEC) == 0 &&
               ::pipe2(err, O_CLOEXEC) == 0;
    }
    ~plumbing() {
        for (int* pair : {in, out, err})
            for (int i = 0; i < 2; ++i) shut(pair[i]);
    }
};

}  // namespace

std::string detail::ending_of(int wait_status) {
    if (WIFSIGNALED(wait_status)) return "was killed by signal " + std::to_string(WTERMSIG(wait_status));
    return "ended with status " + std::to_string(WEXITSTATUS(wait_status));
}

child_process::child_process(const std::string& command) {
    plumbing pipes;
    if (!pipes.open()) throw error("cannot run '" + command + "': " + std::strerror(errno));
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pipes.in[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, pipes.out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, pipes.err[1], STDERR_FILENO);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    std::string shell = "sh", flag = "-c", line = command;
    std::array<char*, 4> argv{shell.data(), flag.data(), line.data(), nullptr};
    const int failed = ::posix_spawn(&pid_, "/bin/sh", &files, &how, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    if (failed != 0) throw error("cannot run '" + command + "': " + std::strerror(failed));
    std::swap(to_, pipes.in[0]);
    std::swap(from_, pipes.out[0]);
    std::swap(errors_, pipes.err[0]);
}

child_process::~child_process() {
    shut(to_);
    const auto end = clock::now() + std::chrono::seconds(2);
    while (!status_ && clock::now() < end) {
        receive(20);
        reap(false);
        if (from_ < 0 && !status_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(-pid_, SIGKILL);  // also what is left of its group
    if (!status_) reap(true);
    shut(from_);
    shut(errors_);
}

bool child_process::send(std::string_view text) {
    std::string line(text);
    line += '\n';
    for (std::size_t done = 0; done < line.size();) {
        const ssize_t n = ::send(to_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) done += static_cast<std::size_t>(n);
    }
    return true;
}

bool child_process::receive(int milliseconds) {
    std::array<pollfd, 2> wanted{pollfd{from_, POLLIN, 0}, pollfd{errors_, POLLIN, 0}};  // poll ignores negative descriptors
    if (::poll(wanted.data(), wanted.size(), milliseconds) <= 0) return from_ >= 0;
    std::array<char, 4096> part;
    if (wanted[1].revents != 0) {
        const ssize_t n = ::read(errors_, part.data(), part.size());
        if (n <= 0) {
            shut(errors_);
        } else {
            (void)!::write(STDERR_FILENO, part.data(), static_cast<std::size_t>(n));
            error_tail_.append(part.data(), static_cast<std::size_t>(n));
            if (error_tail_.size() > 4000) error_tail_.erase(0, error_tail_.size() - 2000);
        }
    }
    if (wanted[0].revents != 0) {
        const ssize_t n = ::read(from_, part.data(), part.size());
        if (n <= 0) shut(from_);
        else output_.append(part.data(), static_cast<std::size_t>(n));
    }
    return from_ >= 0;
}

child_process::outcome child_process::read_line(std::string& line, double seconds) {
    const auto start = clock::now();
    constexpr std::size_t longest = 1 << 16;  // longer text without a line end is cut here and returned as a line
    for (;;) {
        const std::size_t end = output_.find('\n');
        if (end != std::string::npos || output_.size() > longest || (from_ < 0 && !output_.empty())) {
            line = output_.substr(0, std::min(end, longest));
            output_.erase(0, end == std::string::npos ? output_.size() : end + 1);
            if (line.ends_with('\r')) line.pop_back();
            return outcome::line;
        }
        if (from_ < 0) break;
        if (seconds > 0 && std::chrono::duration<double>(clock::now() - start).count() > seconds) return outcome::late;
        receive(100);
    }
    // Collects the rest of its standard error, and its exit status.
    for (int i = 0; i < 50 && !status_; ++i) {
        receive(20);
        reap(false);
    }
    while (errors_ >= 0 && status_ && error_tail_.size() < 4000) {
        const int before = errors_;
        const std::size_t had = error_tail_.size();
        receive(0);
        if (errors_ == before && error_tail_.size() == had) break;
    }
    return outcome::ended;
}

std::string child_process::unread() {
    receive(0);
    return output_;
}

void child_process::reap(bool wait) {
    int state = 0;
    if (!status_ && pid_ > 0 && ::waitpid(pid_, &state, wait ? 0 : WNOHANG) == pid_) status_ = state;
}

std::string child_process::ending() {
    reap(false);
    if (!status_) return "";
    return detail::ending_of(*status_);
}

std::string child_process::last_error() const {
    const std::size_t end = error_tail_.find_last_not_of(" \r\n\t");
    if (end == std::string::npos) return "";
    const std::size_t begin = error_tail_.find_last_of('\n', end);
    return error_tail_.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace qk::graph
