// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for every reader except that of models. tests/fuzz.sh runs it; by hand, after cmake --preset fuzz:
//   build/fuzz/tests/fuzz_inputs -rss_limit_mb=512 -timeout=10 -max_len=65536 -dict=tests/fuzz/inputs.dict CORPUS tests/fuzz/corpus/inputs
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

#include "feed_inputs.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    qk_fuzz::feed_input({reinterpret_cast<const char*>(data), size});
    return 0;
}

/// Puts what opens a bracket, or closes one, somewhere, up to ten thousand times: depth that changes of single bytes never reach.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
    std::minstd_rand random(seed);
    if (random() / 3 % 100 != 0 || size == 0) return LLVMFuzzerMutate(data, size, most);
    static constexpr std::array<std::string_view, 8> brackets{"[", "{\"a\":", "(", "]", "}", ")", "[[],", "{"};
    const std::string_view what = brackets[random() / 3 % brackets.size()];
    const std::size_t at = 1 + random() / 3 % size, asked = std::array<std::size_t, 4>{10, 100, 1000, 10000}[random() / 3 % 4];
    const std::size_t times = std::min(asked, (most - size) / what.size());
    std::memmove(data + at + times * what.size(), data + at, size - at);
    for (std::size_t i = 0; i < times; ++i) std::memcpy(data + at + i * what.size(), what.data(), what.size());
    return size + times * what.size();
}
