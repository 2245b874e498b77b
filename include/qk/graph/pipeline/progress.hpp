// SPDX-License-Identifier: Apache-2.0
// What long work says on its way.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace qk::graph::pipeline {

/// Called with what is being done ("calibrating"), how much of it is done, and of how much (0: unknown). From one thread at a time.
using progress_function = std::function<void(std::string_view what, std::size_t done, std::size_t all)>;

/// `report` for one piece of work; nothing where there is nobody to tell.
inline std::function<void(std::size_t, std::size_t)> progress_of(const progress_function& report, const char* what) {
    return [&report, what](std::size_t done, std::size_t all) {
        if (report) report(what, done, all);
    };
}

}  // namespace qk::graph::pipeline
