// SPDX-License-Identifier: Apache-2.0
// References to callables of any type, as one type, so that a function that takes one is compiled once. The callable must outlive the
// reference.
#pragma once

#include <cstddef>

#include "qk/isa.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

template <class Result, class... Given>
class call_of {
  public:
    template <class Call>
    explicit call_of(const Call& call) noexcept
        : call_(&call), run_([](const void* c, Given... given) noexcept -> Result { return (*static_cast<const Call*>(c))(given...); }) {}
    Result operator()(Given... given) const noexcept { return run_(call_, given...); }

  private:
    const void* call_;
    Result (*run_)(const void*, Given...) noexcept;
};
template <class... Given>
using call_with = call_of<void, Given...>;

using range_call = call_with<std::size_t, std::size_t>;  ///< (begin, count)

}  // namespace QK_ISA
}  // namespace qk::kernels
