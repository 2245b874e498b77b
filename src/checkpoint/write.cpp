// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint as .safetensors or .gguf: what each tensor becomes is planned first, so that the header is known; then tensor after
// tensor is made. Where two layouts hold the same codes they are moved (qk/layout.hpp); floats are made only where they do not.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "parts.hpp"
#include "planned.hpp"
#include "resumed_file.hpp"
#include "schemes.hpp"

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

/// Where a file stands among those that a split GGUF is written into.
struct gguf_split {
    std::size_t number = 0, count = 1, tensors = 0;
};

void put_split(std::string& values, std::uint64_t& count, const gguf_split& split, bool swapped) {
    put_text(values, "split.no", swapped), put_little(values, 2, 4, swapped), put_little(values, split.number, 2, swapped);
    put_text(values, "split.count", swapped), put_little(values, 2, 4, swapped), put_little(values, split.count, 2, swapped);
    put_text(values, "split.tensors.count", swapped), put_little(values, 5, 4, swapped), put_little(values, split.tensors, 4, swapped);
    count += 3;
}

/// llama.cpp's number for a file whose matrices are mostly of a type; of its mixes the medium one.
std::optional<std::uint32_t> file_type_of(ggml_type type) {
    using enum ggml_type;
    constexpr std::pair<ggml_type, std::uint32_t> all[] = {
        {f32, 0},   {f16, 1},   {q4_0, 2},    {q4_1, 3},    {q8_0, 7},  {q5_0, 8},   {q5_1, 9},   {q2_k, 10},  {q3_k, 12},  {q4_k, 15},
        {q5_k, 17}, {q6_k, 18}, {iq4_nl, 25}, {iq4_xs, 30}, {bf16, 32}, {tq1_0, 36}, {tq2_0, 37}, {mxfp4, 38}, {nvfp4, 39}, {q1_0, 40}};
    for (const auto& [t, number] : all)
        if (t == type) return number;
    return std::nullopt;
}

/// Returns the type of most matrices; among equals that of most values.
ggml_type most_frequent(const std::vector<planned_tensor>& plan) {
    std::map<std::string, std::pair<std::size_t, std::uint64_t>> seen;
    for (const planned_tensor& t : plan)
        if (t.shape.size() >= 2) {
            auto& [matrices, values] = seen[t.type];
            ++matrices, values += product_of(t.shape).value_or(0);
        }
    const auto most = std::ranges::max_element(seen, {}, [](const auto& s) { return s.second; });
    return most == seen.end() ? ggml_type::f32 : ggml_type_named(most->first).value_or(ggml_type::f32);
}

/// The keys that say what types the tensors have, as llama.cpp writes them. A file whose types stay as they were keeps its own.
std::map<std::string, std::optional<std::uint32_t>> type_keys(const checkpoint& c, const std::vector<planned_tensor>& plan) {
    const bool same = c.kind == container::gguf && std::ranges::all_of(plan, [&](const planned_tensor& t) {
                          const stored_tensor* own = c.find(t.name);
                          return own != nullptr && own->type == t.type;
                      });
    if (same) return {};
    std::map<std::string, std::optional<std::uint32_t>> keys;
    keys["general.file_type"] = file_type_of(most_frequent(plan));
    const bool quantized =
        std::ranges::any_of(plan, [](const planned_tensor& t) { return t.type != "f32" && t.type != "f16" && t.type != "bf16"; });
    if (quantized || c.kind != container::gguf) keys["general.quantization_version"] = 2;
    return keys;
}

/// The first file of a split one has all keys, the others have those of the split alone.
gguf_header header_of(const checkpoint& keys, const std::vector<planned_tensor>& plan, const gguf_split& split,
                      const std::map<std::string, std::optional<std::uint32_t>>& types) {
    gguf_header h;
    std::uint64_t count = 0;
    std::string values;
    if (keys.kind == container::gguf) {
        h.swapped = keys.big_endian;
        if (split.number == 0) {
            h.alignment = keys.alignment;
            values = key_values_with(keys, {keys.paths.size() > 1 || split.count > 1, types}, count);
        }
    } else if (split.number == 0) {
        put_text(values, "general.architecture", false), put_little(values, 8, 4, false), put_text(values, architecture_of(keys), false);
        count = 1;
        for (const auto& [key, number] : types)
            if (number) put_text(values, key, false), put_little(values, 4, 4, false), put_little(values, *number, 4, false), ++count;
    }
    if (split.count > 1) put_split(values, count, split, h.swapped);
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
    file.flush();
    return done;
}

/// Cuts a plan into files of at most `limit` bytes of tensors; a tensor that is larger has a file of its own. 0: one file.
std::vector<std::vector<planned_tensor>> cut_plan(std::vector<planned_tensor> plan, std::uint64_t limit) {
    std::vector<std::vector<planned_tensor>> parts(1);
    std::uint64_t bytes = 0;
    for (planned_tensor& t : plan) {
        if (limit != 0 && !parts.back().empty() && bytes + t.bytes > limit) parts.emplace_back(), bytes = 0;
        bytes += t.bytes;
        parts.back().push_back(std::move(t));
    }
    return parts;
}
std::filesystem::path part_name(const std::filesystem::path& target, std::size_t number, std::size_t count) {
    char text[48];
    std::snprintf(text, sizeof text, "-%05zu-of-%05zu", number + 1, count);
    return target.parent_path() / (target.stem().string() + text + target.extension().string());
}
/// Whether a name has a numbered layer, as "model.layers.0.mlp.up_proj.weight" has.
bool has_layer(const std::string& name) {
    static constexpr std::array<std::string_view, 6> words{"layers", "layer", "h", "block", "blocks", "decoder_layers"};
    std::string before;
    for (std::size_t begin = 0; begin < name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        const std::string part = name.substr(begin, end - begin);
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos && std::ranges::find(words, before) != words.end())
            return true;
        before = part, begin = end + 1;
    }
    return false;
}
std::filesystem::path index_name(const std::filesystem::path& target) { return target.string() + ".index.json"; }

/// The index of shards as transformers writes it.
std::string index_of(const std::vector<std::vector<planned_tensor>>& parts, const std::filesystem::path& target) {
    nlohmann::ordered_json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < parts.size(); ++k)
        for (const planned_tensor& t : parts[k]) {
            index["weight_map"][t.name] = part_name(target, k, parts.size()).filename().string();
            total += t.bytes;
        }
    index["metadata"]["total_size"] = total;
    return index.dump(2) + "\n";
}

std::unique_ptr<resumed_file> whole_file(const std::filesystem::path& name, const std::vector<std::filesystem::path>& inputs,
                                         const std::string& what, const std::string& text) {
    auto file = std::make_unique<resumed_file>(name, inputs, what);
    file->cut(0);
    file->append(text);
    return file;
}

/// Both checkpoints that are read; the second is that of --like or --to.
struct sources {
    const checkpoint& first;
    std::optional<checkpoint> like;
    void check() const {
        first.check();
        if (like) like->check();
    }
};

/// Makes the parts of all files, which `files` gets; returns how many tensors an earlier run had done.
std::size_t make_parts(sources& from, const std::filesystem::path& target, const requests& asked, std::vector<std::string>& notes,
                       const progress& told, std::vector<weight_change>* changes, std::vector<std::unique_ptr<resumed_file>>& files) {
    const checkpoint& c = from.first;
    std::optional<checkpoint>& like = from.like;
    const bool gguf = target.extension() == ".gguf";
    if (gguf && !asked.names_as_they_are) check_names(c);
    if (!gguf && target.extension() != ".safetensors")
        throw error(target.string() + ": is written as .npz, .safetensors or .gguf, told by the end of its name");
    std::optional<scheme> to;
    std::optional<scheme_template> form;
    if (!asked.to.empty()) {
        to = scheme_named(asked.to);
        if (gguf) throw error(target.string() + ": --to " + to->text() + " makes a .safetensors; name a file that ends so");
        form = template_of(c, *to, asked, notes);
        like = form->like;
    } else if (asked.like) like = open(*asked.like);
    if (asked.like && (!asked.format.empty() || !asked.rules.empty()))
        throw error("--like " + asked.like->string() + " gives each weight the layout that it has there; leave other formats (" +
                    (asked.format.empty() ? asked.rules.front().second : asked.format) + ") out");
    const auto configs = to ? configs_of(c, *to, *like, target) : decltype(configs_of(c, *to, *like, target))();
    if (like && gguf != (like->kind == container::gguf))
        throw error(target.string() + ": --like " + asked.like->string() + " is of the other kind; name a file that ends like it");
    if (asked.lossless && asked.requantize)
        throw error(target.string() + ": --lossless refuses what --requantize asks for; give one of them");
    std::deque<weight_change> became;
    std::vector<planned_tensor> plan = plan_of(form ? form->source : c, like ? &*like : nullptr, asked, gguf, notes, became);
    std::string what = std::string(gguf ? "gguf " : "safetensors ") + asked.format;
    for (const auto& [glob, format] : asked.rules) what += "\n" + glob + "=" + format;
    what += asked.lossless ? "\nlossless" : asked.requantize ? "\nrequantize" : "";
    if (asked.shard_bytes != 0) what += "\nshards of " + std::to_string(asked.shard_bytes);
    if (to) what += "\nto " + to->text();
    std::vector<std::filesystem::path> inputs = c.paths;
    if (like) inputs.insert(inputs.end(), like->paths.begin(), like->paths.end());
    if (!asked.importance_file.empty()) inputs.push_back(asked.importance_file);
    const auto types = gguf ? type_keys(c.kind == container::gguf ? c : like ? *like : c, plan) : decltype(type_keys(c, plan))();
    const std::size_t tensors = plan.size();
    const std::vector<std::vector<planned_tensor>> parts = cut_plan(std::move(plan), asked.shard_bytes);
    if (gguf && parts.size() > 65535)
        throw error(target.string() + ": " + std::to_string(parts.size()) +
                    " parts, and a split GGUF has at most 65535: cut it less finely");
    const bool shards = parts.size() > 1;
    std::vector<std::filesystem::path> names;
    for (std::size_t k = 0; k < parts.size(); ++k) names.push_back(shards ? part_name(target, k, parts.size()) : target);
    if (shards && !gguf) names.push_back(index_name(target));
    for (const auto& [file, text] : configs) names.push_back(file);
    if (asked.check_output)
        for (const std::filesystem::path& name : names) asked.check_output(name);
    std::size_t done = 0;
    std::uint64_t before = 0, total = 0;
    for (const auto& part : parts)
        for (const planned_tensor& t : part) total += t.bytes;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        files.push_back(std::make_unique<resumed_file>(names[k], inputs, what));
        const progress here = [&](std::uint64_t now, std::uint64_t all) {
            if (told) told(before + now, shards ? std::max(total, before + now) : all);
        };
        if (gguf) {
            const gguf_header h = header_of(c.kind == container::gguf ? c : like ? *like : c, parts[k], {k, parts.size(), tensors}, types);
            done += write_tensors(*files[k], h.head, parts[k], h.alignment, here);
        } else {
            const std::string& metadata = like && !like->metadata.empty() ? like->metadata : c.metadata;
            done += write_tensors(*files[k], safetensors_header(parts[k], metadata), parts[k], 1, here);
        }
        before += files[k]->size();
    }
    if (shards && !gguf) files.push_back(whole_file(index_name(target), inputs, what, index_of(parts, target)));
    for (const auto& [file, text] : configs) {
        files.push_back(whole_file(file, inputs, what, text));
        notes.push_back(file.string() + " says that the weights are " + to->text());
    }
    if (changes != nullptr) changes->assign(became.begin(), became.end());
    return done;
}

}  // namespace

void check_names(const checkpoint& c) {
    if (c.kind != container::safetensors) return;
    const nlohmann::json root = config_beside(c);
    const auto found = root.find("architectures");
    if (found == root.end() || !found->is_array() || found->empty()) return;
    const auto layered = std::ranges::find_if(c.weights, [](const weight& w) { return has_layer(w.name); });
    if (layered == c.weights.end()) return;
    throw error(c.path.string() + " is a Hugging Face model (" +
                (found->front().is_string() ? found->front().get<std::string>() : "architectures") + " in config.json, " + layered->name +
                "), and a .gguf of these names is none that llama.cpp loads: its names, permutations and tokenizer are made by llama.cpp's "
                "convert_hf_to_gguf.py, and qk takes it from there, for qk moves numbers, not architectures. Give --names-as-they-are to "
                "write it all the same");
}

std::size_t write(const checkpoint& c, const std::filesystem::path& target, const requests& asked, std::vector<std::string>& notes,
                  const progress& told, std::vector<weight_change>* changes) {
    // All parts are made before the first is put in its place, so that a run that is stopped leaves nothing that looks whole.
    sources from{c, std::nullopt};
    std::vector<std::unique_ptr<resumed_file>> files;
    const std::size_t done = disk::unchanged(from, [&] { return make_parts(from, target, asked, notes, told, changes, files); });
    put_all(files, asked.put_others);
    return done;
}

}  // namespace qk::checkpoint
