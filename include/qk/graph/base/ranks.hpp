// SPDX-License-Identifier: Apache-2.0
// Several processes on one search. Every process runs the whole search and decides the same; the samples are divided among them, and what
// each measured on its own is added up. So a search gives the same result, bit for bit, for any number of processes.
// The tool fills this with MPI (tools/support/processes.cpp); any transport that can add and copy will do.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace qk::graph {

struct ranks {
    int rank = 0;  ///< of this process, from 0; the first one writes files
    int size = 1;
    /// Replaces each element by its sum over all processes. Called by all of them in the same order.
    std::function<void(std::span<double>)> sum;
    /// The first process's text, on every process.
    std::function<std::string(std::string)> from_first;

    bool alone() const { return size <= 1; }
    bool first() const { return rank == 0; }
    /// Whether this process runs the given piece of work.
    bool own(std::size_t piece) const { return alone() || piece % static_cast<std::size_t>(size) == static_cast<std::size_t>(rank); }
    /// True on all if true on any.
    bool any(bool here) const {
        if (alone()) return here;
        double count = here ? 1 : 0;
        sum({&count, 1});
        return count > 0;
    }
};

}  // namespace qk::graph
