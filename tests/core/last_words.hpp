// SPDX-License-Identifier: Apache-2.0
// What a call says before it ends its process.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

/// Returns what the child wrote to standard error before it was aborted; "lived" if it was not.
inline std::string last_words(const std::function<void()>& call) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL);  // the test framework's own handler would report a failure of the test
        ::dup2(ends[1], 2);
        call();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char piece[512];
    for (ssize_t n; (n = ::read(ends[0], piece, sizeof piece)) > 0;) said.append(piece, static_cast<std::size_t>(n));
    ::close(ends[0]);
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT ? said : "lived";
}
