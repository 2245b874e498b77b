// SPDX-License-Identifier: Apache-2.0
#include "support/processes.hpp"

#ifdef QK_HAVE_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

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
    // A failure that all processes meet is reported by the first, which ends the others before they repeat it.
    if (!shared.first()) std::this_thread::sleep_for(std::chrono::seconds(1));
    report_failure(shared.first() ? std::string(sentence) : fmt::format("process {}: {}", shared.rank, sentence), status);
    MPI_Abort(MPI_COMM_WORLD, status);
#endif
}

}  // namespace qk::tool
