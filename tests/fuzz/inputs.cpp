// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for every reader except that of models. cmake --preset fuzz, then
//   build/fuzz/tests/fuzz_inputs -rss_limit_mb=2048 -timeout=10 -dict=tests/fuzz/inputs.dict CORPUS tests/fuzz/corpus/inputs
#include <cstdint>
#include <string_view>

#include "feed_inputs.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    qk_fuzz::feed_input({reinterpret_cast<const char*>(data), size});
    return 0;
}
