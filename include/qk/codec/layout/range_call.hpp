// SPDX-License-Identifier: Apache-2.0
// call(begin, count) of any type as one type, so that what takes it is compiled once.
#pragma once

#include <cstddef>

namespace qk::detail {

class range_call {
  public:
    template <class Call>
    explicit range_call(const Call& call) noexcept
        : call_(&call),
          run_([](const void* c, std::size_t begin, std::size_t count) noexcept { (*static_cast<const Call*>(c))(begin, count); }) {}
    void operator()(std::size_t begin, std::size_t count) const noexcept { run_(call_, begin, count); }

  private:
    const void* call_;
    void (*run_)(const void*, std::size_t, std::size_t) noexcept;
};

}  // namespace qk::detail
