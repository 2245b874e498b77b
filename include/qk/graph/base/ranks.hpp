// SPDX-License-Identifier: Apache-2.0
// Divides one search among several processes. Every process runs the whole search and makes the same decisions; the samples are divided
// among them, and what each measured on its own is added up. So a search gives the same result, bit for bit, for any number of processes.
// The tool fills this with MPI (tools/support/processes.cpp); any transport that can add and copy will do.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace qk::graph {

struct ranks {
    int rank = 0;  ///< this process's number, from 0; process 0 writes files
    int size = 1;
    /// Replaces each element by its sum over all processes. All processes must call it in the same order.
    std::function<void(std::span<double>)> sum;
    /// Returns the first process's text on every process.
    std::function<std::string(std::string)> from_first;

    bool alone() const { return size <= 1; }
    bool first() const { return rank == 0; }
    /// Returns whether this process runs the given piece of work.
    bool own(std::size_t piece) const { return alone() || piece % static_cast<std::size_t>(size) == static_cast<std::size_t>(rank); }
    /// Returns true on all processes if `here` is true on any.
    bool any(bool here) const {
        if (alone()) return here;
        double count = here ? 1 : 0;
        sum({&count, 1});
        return count > 0;
    }
};

}  // namespace qk::graph
