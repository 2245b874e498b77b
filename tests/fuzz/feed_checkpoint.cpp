// SPDX-License-Identifier: Apache-2.0
#include "feed_checkpoint.hpp"

#include "checkpoint/planned.hpp"

namespace qk_fuzz {
namespace {

namespace checkpoint = qk::checkpoint;

/// A weight has as many values as its shape says, or is an error.
void decode_all(const checkpoint::checkpoint& c) {
    for (const checkpoint::weight& w : c.weights) {
        if (w.problem) continue;
        std::uint64_t values = 0;
        c.decode(w, [&](std::span<const float> part) { values += part.size(); });
        if (values != w.elements()) __builtin_trap();
    }
}

/// Every tensor of the file that would be written has the bytes that its header says.
void convert(const checkpoint::checkpoint& c, const checkpoint::checkpoint* like, const char* format, bool gguf) {
    try {
        std::vector<std::string> notes;
        checkpoint::requests asked;
        asked.format = format;
        for (const checkpoint::planned_tensor& t : checkpoint::plan_of(c, like, asked, gguf, notes)) {
            std::uint64_t bytes = 0;
            t.produce([&](std::span<const std::byte> part) { bytes += part.size(); });
            if (bytes != t.bytes) __builtin_trap();
        }
    } catch (const checkpoint::error&) {
    }
}

void feed_checkpoint(std::string_view bytes, const char* name, bool gguf) {
    constexpr std::string_view mark = "\nconfig:";  // what follows is the config.json beside the file
    const std::size_t at = bytes.rfind(mark);
    const std::string_view config = at == std::string_view::npos ? "" : bytes.substr(at + mark.size());
    bytes = bytes.substr(0, at);
    try {
        const checkpoint::checkpoint c = checkpoint::read({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, name, config);
        decode_all(c);
        checkpoint::lint(c);
        checkpoint::compare(c, c, [](const checkpoint::difference& d) {
            if (d.problem.empty() && !d.same_bits) __builtin_trap();
        });
        std::string other(bytes);
        other.back() = static_cast<char>(other.back() ^ 1);  // the data ends the file
        const checkpoint::checkpoint d = checkpoint::read({reinterpret_cast<const std::byte*>(other.data()), other.size()}, name, config);
        checkpoint::compare(c, d, [](const checkpoint::difference&) {});
        convert(c, &d, "", gguf);
        convert(c, nullptr, "f16", !gguf);
        convert(c, nullptr, "mxfp4", true);
    } catch (const checkpoint::error&) {
    }
}

}  // namespace

void feed_safetensors(std::string_view bytes) { feed_checkpoint(bytes, "a.safetensors", false); }
void feed_gguf(std::string_view bytes) { feed_checkpoint(bytes, "a.gguf", true); }

}  // namespace qk_fuzz
