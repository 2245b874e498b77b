// SPDX-License-Identifier: Apache-2.0
// Tells contents apart by 16 hexadecimal digits: 64-bit FNV-1a. http://www.isthe.com/chongo/tech/comp/fnv/
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "qk/graph/base/names.hpp"

namespace qk::graph {

class content_hash {
  public:
    void add(std::string_view bytes) {
        for (const char c : bytes) take(static_cast<unsigned char>(c));
        take(bytes.size());
    }
    void add(const void* data, std::size_t bytes) { add({static_cast<const char*>(data), bytes}); }
    std::string text() const { return formatted("%016llx", static_cast<unsigned long long>(state_)); }

  private:
    void take(std::uint64_t what) { state_ = (state_ ^ what) * 0x100000001b3u; }
    std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace qk::graph
