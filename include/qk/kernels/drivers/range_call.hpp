// SPDX-License-Identifier: Apache-2.0
// Calls of any type with std::size_t's, as one type, so that what takes them is compiled once.
#pragma once

#include <cstddef>

namespace qk::kernels {

template <class... Sizes>
class call_with {
  public:
    template <class Call>
    explicit call_with(const Call& call) noexcept
        : call_(&call), run_([](const void* c, Sizes... sizes) noexcept { (*static_cast<const Call*>(c))(sizes...); }) {}
    void operator()(Sizes... sizes) const noexcept { run_(call_, sizes...); }

  private:
    const void* call_;
    void (*run_)(const void*, Sizes...) noexcept;
};

using range_call = call_with<std::size_t, std::size_t>;  ///< (begin, count)

}  // namespace qk::kernels
