// SPDX-License-Identifier: Apache-2.0
// A component stands above the graph module, which a build or a program may have without it. The module keeps a table of what it asks the
// component for; one call of the program, enter(), fills it. docs/design/rooms.md, Components.
#pragma once

#include <atomic>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

/// The table of one component: `Functions` is a struct of pointers to functions, which lives as long as the program.
template <class Functions>
class component {
  public:
    constexpr component(const char* name, const char* option) : name_(name), option_(option) {}

    /// Fills the table. Any thread may do so at any time, and more than once.
    void enter(const Functions& functions) { functions_.store(&functions, std::memory_order_release); }
    bool is_entered() const { return functions_.load(std::memory_order_acquire) != nullptr; }

    /// Returns the table. Throws an error that says how to get it for `what`, which needs it, where nobody has entered the component.
    const Functions& functions_for(const std::string& what) const {
        if (const Functions* functions = functions_.load(std::memory_order_acquire)) return *functions;
        const std::string name = name_;
        throw error(what + " needs the component " + name + ", which this program lacks: configure qk with -D" + option_ +
                    "=ON; a program of your own also links qk::" + name + " and calls qk::" + name + "::enter()");
    }

  private:
    const char *name_, *option_;
    std::atomic<const Functions*> functions_{nullptr};
};

}  // namespace qk::graph
