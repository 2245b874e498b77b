// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for model bytes (docs/reference/malformed_input.md). cmake --preset fuzz, then
//   build/fuzz/tests/fuzz_model_bytes -rss_limit_mb=512 -timeout=10 CORPUS tests/fuzz/corpus/model
#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string_view>

#include "feed_model.hpp"
#include "mutate_model.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

/// Writes the model to the fuzzer's buffer. Returns its size, or 0 if it is too large.
std::size_t write(const onnx::ModelProto& m, std::uint8_t* data, std::size_t most) {
    const std::size_t size = m.ByteSizeLong();
    return size <= most && m.SerializePartialToArray(data, static_cast<int>(size)) ? size : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    qk_fuzz::feed_model({reinterpret_cast<const char*>(data), size});
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
    qk_fuzz::random_source random(seed);
    onnx::ModelProto m;
    if (random() / 3 % 20 == 0 || !m.ParsePartialFromArray(data, static_cast<int>(size))) return LLVMFuzzerMutate(data, size, most);
    qk_fuzz::mutate_model(m, m, random, LLVMFuzzerMutate);
    if (const std::size_t n = write(m, data, most)) return n;
    return LLVMFuzzerMutate(data, size, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* a, std::size_t a_size, const std::uint8_t* b, std::size_t b_size,
                                                 std::uint8_t* out, std::size_t most, unsigned int seed) {
    qk_fuzz::random_source random(seed);
    onnx::ModelProto m, donor;
    if (!m.ParsePartialFromArray(a, static_cast<int>(a_size)) || !donor.ParsePartialFromArray(b, static_cast<int>(b_size))) return 0;
    qk_fuzz::mutate_model(m, donor, random, LLVMFuzzerMutate);
    return write(m, out, most);
}
