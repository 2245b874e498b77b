// SPDX-License-Identifier: Apache-2.0
#include "feed_checkpoint.hpp"

#include "qk/checkpoint.hpp"

namespace qk_fuzz {
namespace {

namespace checkpoint = qk::checkpoint;

void feed_checkpoint(std::string_view bytes, const char* name) {
    try {
        const checkpoint::checkpoint c = checkpoint::read({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, name);
        for (const checkpoint::weight& w : c.weights) {
            if (w.problem) continue;
            std::uint64_t values = 0;
            c.decode(w, [&](std::span<const float> part) { values += part.size(); });
            if (values != w.elements()) __builtin_trap();  // a weight of its shape, or an error
        }
        checkpoint::lint(c);
        checkpoint::compare(c, c, [](const checkpoint::difference& d) {
            if (d.problem.empty() && !d.same_bits) __builtin_trap();
        });
    } catch (const checkpoint::error&) {
    }
}

}  // namespace

void feed_safetensors(std::string_view bytes) { feed_checkpoint(bytes, "a.safetensors"); }
void feed_gguf(std::string_view bytes) { feed_checkpoint(bytes, "a.gguf"); }

}  // namespace qk_fuzz
