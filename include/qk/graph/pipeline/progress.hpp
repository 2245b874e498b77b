// SPDX-License-Identifier: Apache-2.0
// Reports the progress of long work.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace qk::graph::pipeline {

/// Called with what is being done ("calibrating"), how much of it is done, and how much there is (0: unknown). Called from one thread at a
/// time.
using progress_function = std::function<void(std::string_view what, std::size_t done, std::size_t all)>;

/// Returns a function that reports one piece of work to `report`, or does nothing if `report` is empty. Refers to `report`.
inline std::function<void(std::size_t, std::size_t)> progress_of(const progress_function& report, const char* what) {
    return [&report, what](std::size_t done, std::size_t all) {
        if (report) report(what, done, all);
    };
}

}  // namespace qk::graph::pipeline
