// SPDX-License-Identifier: Apache-2.0
#include "feed_checkpoint.hpp"

#include <array>
#include <deque>
#include <span>
#include <string>

#include "checkpoint/planned.hpp"
#include "temporary.hpp"

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
        std::deque<checkpoint::weight_change> changes;
        checkpoint::requests asked;
        asked.format = format;
        for (const checkpoint::planned_tensor& t : checkpoint::plan_of(c, like, asked, gguf, notes, changes)) {
            std::uint64_t bytes = 0;
            t.produce([&](std::span<const std::byte> part) { bytes += part.size(); });
            if (bytes != t.bytes) __builtin_trap();
        }
    } catch (const checkpoint::error&) {
    }
}

void look_at(const checkpoint::checkpoint& c) {
    decode_all(c);
    checkpoint::lint(c);
    checkpoint::compare(c, c, [](const checkpoint::difference& d) {
        if (d.problem.empty() && !d.same_bits) __builtin_trap();
    });
}

void feed_checkpoint(std::string_view bytes, const char* name, bool gguf) {
    constexpr std::string_view mark = "\nconfig:";  // what follows is the config.json beside the file
    const std::size_t at = bytes.rfind(mark);
    const std::string_view config = at == std::string_view::npos ? "" : bytes.substr(at + mark.size());
    bytes = bytes.substr(0, at);
    try {
        const checkpoint::checkpoint c = checkpoint::read({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, name, config);
        look_at(c);
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

struct part {
    const char *name, *type, *shape;
    std::size_t bytes;
};

/// Returns a .safetensors file of tensors that hold some bytes.
std::string file_of(std::span<const part> parts) {
    std::string header = "{", data;
    for (const part& p : parts) {
        const std::size_t from = data.size();
        for (std::size_t i = 0; i < p.bytes; ++i) data += static_cast<char>(0x30 + (7 * i) % 23);
        header += (header.size() > 1 ? ",\"" : "\"") + std::string(p.name) + "\":{\"dtype\":\"" + p.type + "\",\"shape\":" + p.shape +
                  ",\"data_offsets\":[" + std::to_string(from) + "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    while (header.size() % 8 != 0) header += ' ';
    std::string file(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i & 255);
    return file + header + data;
}

// Weights as AWQ and GPTQ, MLX, DeepSeek and compressed-tensors name them, each in groups of 16 or blocks, and one that is plain.
constexpr std::array some_parts{part{"m.a.qweight", "I32", "[16,2]", 128}, part{"m.a.qzeros", "I32", "[1,2]", 8},
                                part{"m.a.scales", "F16", "[1,16]", 32},   part{"m.b.weight", "U32", "[4,2]", 32},
                                part{"m.b.scales", "F16", "[4,1]", 8},     part{"m.b.biases", "F16", "[4,1]", 8}};
constexpr std::array other_parts{part{"m.c.weight", "F8_E4M3", "[4,4]", 16},       part{"m.c.weight_scale_inv", "F32", "[1,1]", 4},
                                 part{"m.d.weight_packed", "U8", "[4,8]", 32},     part{"m.d.weight_scale", "F8_E4M3", "[4,1]", 4},
                                 part{"m.d.weight_global_scale", "F32", "[1]", 4}, part{"m.e.weight", "BF16", "[2,4]", 16}};

}  // namespace

void feed_safetensors(std::string_view bytes) { feed_checkpoint(bytes, "a.safetensors", false); }
void feed_gguf(std::string_view bytes) { feed_checkpoint(bytes, "a.gguf", true); }

void feed_config(std::string_view bytes) {
    static const std::array files{file_of(some_parts), file_of(other_parts)};
    for (const std::string& file : files) feed_checkpoint(file + "\nconfig:" + std::string(bytes), "a.safetensors", false);
}

void feed_index(std::string_view bytes) {
    static const temporary first(file_of(some_parts), "1.safetensors"), second(file_of(other_parts), "2.safetensors");
    const temporary index(bytes, "model.safetensors.index.json");
    try {
        const checkpoint::checkpoint c = checkpoint::open(index.path());
        look_at(c);
        convert(c, nullptr, "f16", false);
    } catch (const checkpoint::error&) {
    }
}

}  // namespace qk_fuzz
