// SPDX-License-Identifier: Apache-2.0
#include "support/processes.hpp"

#ifdef QK_HAVE_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/console.hpp"

namespace qk::tool {
namespace {

graph::ranks shared;

#ifdef QK_HAVE_MPI
constexpr std::size_t most = std::size_t{1} << 30;  // MPI counts in int

void sum(std::span<double> values) {
    for (std::size_t at = 0; at < values.size(); at += most)
        MPI_Allreduce(MPI_IN_PLACE, values.data() + at, static_cast<int>(std::min(most, values.size() - at)), MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
}

std::string from_first(std::string text) {
    unsigned long long size = text.size();
    MPI_Bcast(&size, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    text.resize(size);
    for (std::size_t at = 0; at < text.size(); at += most)
        MPI_Bcast(text.data() + at, static_cast<int>(std::min(most, text.size() - at)), MPI_CHAR, 0, MPI_COMM_WORLD);
    return text;
}

using namespace std::chrono_literals;

/// Asks `holds` until it is true or the time is over; returns its last answer.
template <class Holds>
bool wait_until(std::chrono::seconds longest, const Holds& holds) {
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!holds()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

constexpr int failure = 1;  // the tag of the message by which the first process says that it reports a failure

void tell_others() {
    std::vector<MPI_Request> sent(static_cast<std::size_t>(shared.size) - 1);
    for (int rank = 1; rank < shared.size; ++rank)
        MPI_Isend(nullptr, 0, MPI_BYTE, rank, failure, MPI_COMM_WORLD, &sent[static_cast<std::size_t>(rank) - 1]);
    wait_until(1s, [&] {
        int all = 0;
        MPI_Testall(shared.size - 1, sent.data(), &all, MPI_STATUSES_IGNORE);
        return all != 0;
    });
}

bool first_fails_too() {
    return wait_until(5s, [] {
        int told = 0;
        MPI_Iprobe(0, failure, MPI_COMM_WORLD, &told, MPI_STATUS_IGNORE);
        return told != 0;
    });
}

bool launched() {
    return std::ranges::any_of(std::initializer_list<const char*>{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"},
                               [](const char* name) { return std::getenv(name) != nullptr; });
}
#endif

}  // namespace

processes::processes() {
#ifdef QK_HAVE_MPI
    if (!launched()) return;
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &shared.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &shared.size);
    shared.sum = sum;
    shared.from_first = from_first;
#endif
}

processes::~processes() {
#ifdef QK_HAVE_MPI
    int started = 0;
    MPI_Initialized(&started);
    if (started) MPI_Finalize();
#endif
}

const graph::ranks& processes::together() { return shared; }

void processes::fail([[maybe_unused]] std::string_view sentence, [[maybe_unused]] int status) const {
#ifdef QK_HAVE_MPI
    if (shared.alone()) return;
    // A failure that all processes meet is reported by the first, which ends the others.
    if (shared.first()) {
        tell_others();
        report_failure(sentence, status);
    } else if (first_fails_too()) {
        std::this_thread::sleep_for(30s);  // is ended meanwhile
    } else {
        report_failure(fmt::format("process {}: {}", shared.rank, sentence), status);
    }
    std::fflush(nullptr);
    std::this_thread::sleep_for(300ms);  // Open MPI 5 drops what it has not forwarded by then
    MPI_Abort(MPI_COMM_WORLD, status);
#endif
}

}  // namespace qk::tool
