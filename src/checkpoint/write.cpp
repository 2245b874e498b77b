// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint as .safetensors or .gguf: what each tensor becomes is planned first, so that the header is known; then tensor after
// tensor is made. Where two layouts hold the same codes they are moved (qk/layout.hpp); floats are made only where they do not.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "parts.hpp"
#include "planned.hpp"
#include "resumed_file.hpp"

namespace qk::checkpoint {
namespace {

void put_little(std::string& s, std::uint64_t v, int width, bool swapped) {
    for (int i = 0; i < width; ++i) s += static_cast<char>(v >> (8 * (swapped ? width - 1 - i : i)) & 255);
}

std::string safetensors_header(const std::vector<planned_tensor>& plan, const std::string& metadata) {
    std::string text = "{";
    if (!metadata.empty()) text += "\"__metadata__\":{" + metadata + "}";
    std::uint64_t offset = 0;
    for (const planned_tensor& t : plan) {
        std::string shape;
        for (const std::uint64_t d : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
        text += (text.size() == 1 ? "" : ",") + nlohmann::json(t.name).dump() + ":{\"dtype\":\"" + t.type + "\",\"shape\":[" + shape +
                "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + t.bytes) + "]}";
        offset += t.bytes;
    }
    text += "}";
    text.append((8 - text.size() % 8) % 8, ' ');
    std::string head;
    put_little(head, text.size(), 8, false);
    return head + text;
}

void put_text(std::string& s, std::string_view text, bool swapped) {
    put_little(s, text.size(), 8, swapped);
    s += text;
}

struct gguf_header {
    std::string head;
    std::uint64_t alignment = 32;
    bool swapped = false;
};

gguf_header header_of(const checkpoint& keys, const std::vector<planned_tensor>& plan) {
    gguf_header h;
    std::uint64_t count = 0;
    std::string values;
    if (keys.kind == container::gguf) {
        h.alignment = keys.alignment, h.swapped = keys.big_endian;
        values.assign(reinterpret_cast<const char*>(keys.key_values.data()), keys.key_values.size());
        count = keys.key_value_count;
        if (keys.paths.size() > 1) values = without_split(keys, count);
    } else {
        put_text(values, "general.architecture", false), put_little(values, 8, 4, false), put_text(values, architecture_of(keys), false);
        put_text(values, "general.quantization_version", false), put_little(values, 4, 4, false), put_little(values, 2, 4, false);
        count = 2;
    }
    h.head = "GGUF";
    put_little(h.head, keys.kind == container::gguf ? keys.version : 3, 4, h.swapped), put_little(h.head, plan.size(), 8, h.swapped),
        put_little(h.head, count, 8, h.swapped);
    h.head += values;
    std::uint64_t offset = 0;
    for (const planned_tensor& t : plan) {
        put_text(h.head, t.name, h.swapped), put_little(h.head, t.shape.size(), 4, h.swapped);
        for (std::size_t k = t.shape.size(); k-- > 0;) put_little(h.head, t.shape[k], 8, h.swapped);
        put_little(h.head, static_cast<std::uint32_t>(*ggml_type_named(t.type)), 4, h.swapped), put_little(h.head, offset, 8, h.swapped);
        offset += divide_up(t.bytes, h.alignment) * h.alignment;
    }
    h.head.append((h.alignment - h.head.size() % h.alignment) % h.alignment, '\0');
    return h;
}

/// Writes the tensors behind their header, after those that an earlier run has written.
std::size_t write_tensors(resumed_file& file, const std::string& head, const std::vector<planned_tensor>& plan, std::uint64_t alignment,
                          const progress& told) {
    std::uint64_t at = head.size(), total = head.size();
    for (const planned_tensor& t : plan) total += divide_up(t.bytes, alignment) * alignment;
    std::string before(head.size(), '\0');
    std::size_t done = 0;
    if (file.size() >= head.size() && file.read_at(0, before.data(), before.size()) && before == head)
        while (done < plan.size() && at + plan[done].bytes <= file.size()) at += divide_up(plan[done].bytes, alignment) * alignment, ++done;
    if (done > 0) at -= divide_up(plan[--done].bytes, alignment) * alignment;  // the last may have been cut off within its padding
    file.cut(done == 0 ? 0 : at);
    if (done == 0) file.append(head), at = head.size();
    for (std::size_t k = done; k < plan.size(); ++k) {
        const std::uint64_t begin = file.size();
        plan[k].produce([&](std::span<const std::byte> bytes) {
            file.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
            if (told) told(file.size(), total);
        });
        if (file.size() - begin != plan[k].bytes)
            throw error(plan[k].name + ": made " + std::to_string(file.size() - begin) + " bytes, and " + std::to_string(plan[k].bytes) +
                        " were planned");
        file.append(std::string(divide_up(plan[k].bytes, alignment) * alignment - plan[k].bytes, '\0'));
    }
    return done;
}

}  // namespace

std::size_t write(const checkpoint& c, const std::filesystem::path& target, const requests& asked, std::vector<std::string>& notes,
                  const progress& told) {
    const bool gguf = target.extension() == ".gguf";
    if (!gguf && target.extension() != ".safetensors")
        throw error(target.string() + ": is written as .npz, .safetensors or .gguf, told by the end of its name");
    std::optional<checkpoint> like;
    if (asked.like) like = open(*asked.like);
    if (like && gguf != (like->kind == container::gguf))
        throw error(target.string() + ": --like " + asked.like->string() + " is of the other kind; name a file that ends like it");
    const std::vector<planned_tensor> plan = plan_of(c, like ? &*like : nullptr, asked, gguf, notes);
    std::string what = std::string(gguf ? "gguf " : "safetensors ") + asked.format;
    for (const auto& [glob, format] : asked.rules) what += "\n" + glob + "=" + format;
    std::vector<std::filesystem::path> inputs = c.paths;
    if (like) inputs.insert(inputs.end(), like->paths.begin(), like->paths.end());
    resumed_file file(target, inputs, what);
    std::size_t done = 0;
    if (gguf) {
        const gguf_header h = header_of(c.kind == container::gguf ? c : like ? *like : c, plan);
        done = write_tensors(file, h.head, plan, h.alignment, told);
    } else
        done = write_tensors(file, safetensors_header(plan, like && !like->metadata.empty() ? like->metadata : c.metadata), plan, 1, told);
    file.put();
    return done;
}

}  // namespace qk::checkpoint
