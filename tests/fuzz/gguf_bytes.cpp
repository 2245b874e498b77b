// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for gguf files. cmake --preset fuzz, then
//   build/fuzz/tests/fuzz_gguf_bytes -rss_limit_mb=512 -timeout=10 -max_len=65536 CORPUS tests/fuzz/corpus/gguf
#include <cstdint>
#include <string_view>

#include "feed_checkpoint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    qk_fuzz::feed_gguf({reinterpret_cast<const char*>(data), size});
    return 0;
}
