// SPDX-License-Identifier: Apache-2.0
// What the configs beside a checkpoint say about quantization: Hugging Face's quantization_config in its dialects, ModelOpt's
// hf_quant_config.json, AutoGPTQ's quantize_config.json, MLX's quantization.
#include <algorithm>
#include <cctype>
#include <regex>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

using nlohmann::json;

std::string word(const json& j, const char* key) {
    const auto found = j.is_object() ? j.find(key) : j.end();
    return j.is_object() && found != j.end() && found->is_string() ? found->get<std::string>() : std::string();
}
int whole(const json& j, const char* key) {
    const auto found = j.is_object() ? j.find(key) : j.end();
    if (!j.is_object() || found == j.end() || !found->is_number_integer()) return 0;
    const auto v = found->get<std::int64_t>();
    return v > 0 && v <= 1 << 20 ? static_cast<int>(v) : 0;
}
const json& member(const json& j, const char* key) {
    static const json empty;
    const auto found = j.is_object() ? j.find(key) : j.end();
    return j.is_object() && found != j.end() ? *found : empty;
}
std::vector<std::string> words(const json& j) {
    std::vector<std::string> all;
    if (j.is_array())
        for (const json& w : j)
            if (w.is_string()) all.push_back(w.get<std::string>());
    return all;
}
std::string upper(std::string s) {
    std::ranges::transform(s, s.begin(), [](unsigned char ch) { return static_cast<char>(std::toupper(ch)); });
    return s;
}

/// Notes what stands under `key` and is no width or group size. Group sizes of -1 mean a scale for each row, and of null none.
void check_number(const json& j, const char* key, bool group, quantization_config& c) {
    const json& v = member(j, key);
    if (v.is_null() || v.is_array() || v.is_object()) return;  // absent, or a block of rows and columns
    const auto n = v.is_number_integer() ? v.get<std::int64_t>() : 0;
    const bool right = v.is_number_integer() && (group ? n == -1 || (n > 0 && n <= 1 << 20) : n >= 1 && n <= 32);
    if (!right)
        c.senseless.push_back(std::string("says ") + key + " " + v.dump() + (group ? ", which is no group size" : ", which is no width"));
}

void read_block(const json& sides, quantization_config& c) {
    if (!sides.is_array() || sides.size() != 2 || !sides[0].is_number_integer() || !sides[1].is_number_integer()) return;
    const auto rows = sides[0].get<std::int64_t>(), columns = sides[1].get<std::int64_t>();
    if (rows > 0 && columns > 0 && rows <= 1 << 20 && columns <= 1 << 20)
        c.block_rows = static_cast<int>(rows), c.block_columns = static_cast<int>(columns);
}
std::optional<bool> truth(const json& j, const char* key) {
    const json& v = member(j, key);
    return v.is_boolean() ? std::optional(v.get<bool>()) : std::nullopt;
}

/// What ModelOpt's names of algorithms say of activations.
void read_algorithm(quantization_config& c) {
    const std::string a = upper(c.algorithm);
    if (a.empty() || a == "MIXED_PRECISION") return;
    const bool weights_only = a.starts_with("W4A16") || a == "W8A16" || a == "FP8_PB_WO";
    c.quantizes_activations = !weights_only;
    c.activations_static =
        !weights_only && a != "MXFP8" && a != "FP8_PER_CHANNEL_PER_TOKEN" && a != "FP8_PB_REAL" && !a.starts_with("W4A8_MXFP4");
}

void read_groups(const json& groups, quantization_config& c) {
    if (!groups.is_object()) return;
    for (const json& g : groups) {
        const json& weights = member(g, "weights");
        check_number(weights, "num_bits", false, c), check_number(weights, "group_size", true, c);
        if (c.bits == 0) c.bits = whole(weights, "num_bits");
        if (c.group == 0) c.group = whole(weights, "group_size");
        read_block(member(weights, "block_structure"), c);
        if (!c.symmetric) c.symmetric = truth(weights, "symmetric");
        const json& input = member(g, "input_activations");
        if (!c.quantizes_activations) c.quantizes_activations = input.is_object();
        if (input.is_object()) {
            const json& dynamic = member(input, "dynamic");
            c.activations_static =
                c.activations_static || (dynamic.is_boolean() && !dynamic.get<bool>()) || (dynamic.is_string() && dynamic == "local");
        }
    }
    if (groups.size() > 1) c.bits = c.group = c.block_rows = c.block_columns = 0, c.symmetric.reset();  // the tensors tell them apart
}

void read_mlx(const json& q, quantization_config& c) {
    c.method = "mlx";
    check_number(q, "bits", false, c), check_number(q, "group_size", true, c);
    c.bits = whole(q, "bits"), c.group = whole(q, "group_size"), c.algorithm = word(q, "mode");
    for (const auto& [key, value] : q.items()) {
        if (value.is_object()) c.layers.push_back({key, whole(value, "bits"), whole(value, "group_size"), word(value, "mode"), false});
        else if (value.is_boolean() && !value.get<bool>()) c.layers.push_back({.module = key, .mode = {}, .off = true});
    }
}

void read_modelopt(const json& q, quantization_config& c) {
    c.method = "modelopt";
    c.algorithm = word(q, "quant_algo");
    if (c.group == 0) c.group = whole(q, "group_size");
    for (const auto& name : words(member(q, "exclude_modules"))) c.excluded.push_back(name);
    for (const auto& name : words(member(q, "ignore"))) c.excluded.push_back(name);
    for (const auto& [key, value] : member(q, "quantized_layers").items())
        c.layers.push_back({key, 0, whole(value, "group_size"), word(value, "quant_algo"), false});
    read_algorithm(c);
}

/// What auto-round's packing says: whose layout the words have, and whether zero points are stored minus one. It has both of GPTQ's
/// versions without `checkpoint_format` (auto_round/inference/backend.py).
void read_packing(const json& q, quantization_config& c) {
    const std::string packing = word(q, "packing_format"), type = word(q, "data_type");
    const auto has = [&](const char* part) { return packing.find(part) != std::string::npos; };
    c.method = "gptq";
    if (type.starts_with("mx_int")) c.unread = "says data_type " + type + ", whose codes of sign and magnitude are not read";
    else if (has("nvfp4_e5m3") || type.find("e5m3") != std::string::npos) c.unread = "says scales of E5M3, which are not read";
    else if (has("llm_compressor") || type.starts_with("mx_fp") || type.starts_with("nv_fp")) c.method = "compressed-tensors";
    else if (has("fp8") || type.starts_with("fp8") || type == "fp") c.method = "fp8";
    else if (has("awq")) c.method = "awq";
    else if (!packing.empty() && packing != "auto") c.first_version = has("gptq") && !has("gptqmodel");
    if (c.method == "compressed-tensors" || c.method == "fp8") c.symmetric.reset(), c.quantizes_activations.reset();
}

/// GPTQ's, AWQ's and auto-round's words.
void read_words(const json& q, quantization_config& c) {
    for (const char* key : {"bits", "w_bit"}) check_number(q, key, false, c);
    for (const char* key : {"group_size", "q_group_size"}) check_number(q, key, true, c);
    c.bits = whole(q, "bits");
    if (c.bits == 0) c.bits = whole(q, "w_bit");
    c.group = whole(q, "group_size");
    if (c.group == 0) c.group = whole(q, "q_group_size");
    c.symmetric = truth(q, "sym");
    if (const auto zeros = truth(q, "zero_point")) c.symmetric = !*zeros;
    const std::string format = word(q, "checkpoint_format").empty() ? word(q, "format") : word(q, "checkpoint_format");
    c.first_version = format != "gptq_v2" && format != "gptq_p";
    c.varies = member(q, "dynamic").is_object() || member(q, "extra_config").is_object();
    if (format == "gptq_p" && c.bits != 2 && c.bits != 4 && c.bits != 8)
        c.unread = "says " + format + ", whose words of split planes are not read for " + std::to_string(c.bits) + " bits";
    for (const char* other : {"marlin", "bitblas", "qqq", "exl3", "paroquant", "vptq"})
        if (format == other) c.unread = "says checkpoint_format " + format + ", whose order of words is not read";
    if (truth(q, "is_marlin_format").value_or(false)) c.unread = "says is_marlin_format, whose order of words is not read";
    c.quantizes_activations = false;
    if (c.method.ends_with("auto-round")) read_packing(q, c);
    const std::string version = word(q, "version").empty() ? format : word(q, "version");
    c.gemm = c.method != "awq" || version.empty() || upper(version) == "GEMM";
    c.algorithm = version;
}

/// Systems whose codes are not read. A method that stands in neither list is judged by the tensors, where these say enough.
constexpr std::string_view unread_methods[] = {"aqlm",       "bitblas", "bitnet", "bitsandbytes", "eetq",      "exl2", "exl3",
                                               "fp_quant",   "gguf",    "higgs",  "hqq",          "paroquant", "qqq",  "quip",
                                               "quip_sharp", "quanto",  "sinq",   "spqr",         "torchao",   "vptq"};

void read_method(const json& q, quantization_config& c) {
    c.method = word(q, "quant_method");
    if (c.method.empty() && q.contains("config_groups")) c.method = "compressed-tensors";
    if (c.method.empty() && !word(q, "quant_algo").empty()) c.method = "modelopt";
    if (c.method == "sparseml") c.method = "compressed-tensors";
    if (c.method == "modelopt" || c.method.starts_with("modelopt_")) return read_modelopt(q, c);
    if (c.method == "compressed-tensors") {
        c.algorithm = word(q, "format");
        if (c.algorithm.starts_with("sparse-") || c.algorithm == "marlin-24")
            c.unread = "says format " + c.algorithm + ", whose sparse codes are not read";
        read_groups(member(q, "config_groups"), c);
        c.excluded = words(member(q, "ignore"));
    } else if (c.method == "gptq" || c.method == "awq" || c.method.ends_with("auto-round")) {
        read_words(q, c);
    } else {
        if (std::ranges::find(unread_methods, c.method) != std::end(unread_methods))
            c.unread = "says quant_method " + c.method + ", whose codes are not read; its own package can write them as floats";
        c.bits = whole(q, "bits");
        read_block(member(q, "weight_block_size"), c);
        c.excluded = words(member(q, "modules_to_not_convert"));
        c.algorithm = word(q, "fmt");
    }
}

}  // namespace

bool quantization_config::excludes(std::string_view module) const {
    return std::ranges::any_of(excluded, [&](const std::string& e) {
        if (e.starts_with("re:")) {
            if (e.size() > 300 || module.size() > 1000) return false;
            auto how = std::regex::ECMAScript;
#ifdef __GLIBCXX__
            how |=
                std::regex_constants::__polynomial;  // (a+)+b takes no exponential time; what it refuses, back-references, matches nothing
#endif
            try {
                return std::regex_match(std::string(module), std::regex(e.substr(3), how));
            } catch (const std::regex_error&) {
                return false;
            }
        }
        return fits(e, module) || (module.size() > e.size() && module.starts_with(e) && module[e.size()] == '.');
    });
}

const quantization_config::override_of_layer* quantization_config::of(std::string_view module) const {
    for (const override_of_layer& o : layers)
        if (o.module == module) return &o;
    return nullptr;
}

quantization_config parse_config(const json& root, const std::filesystem::path& file) {
    quantization_config c;
    c.file = file;
    for (const char* key : {"quantization_config", "compression_config"})
        for (const json* place : {&root, &member(root, "text_config"), &member(root, "llm_config")}) {
            const json& q = member(*place, key);
            if (!q.is_object() || !c.method.empty()) continue;
            if (word(q, "packing_format").ends_with("mlx") && member(root, "quantization").is_object())
                continue;  // auto-round's MLX export
            if (q.contains("quant_method") || q.contains("config_groups") || q.contains("quant_algo")) read_method(q, c);
        }
    for (const char* key : {"quantization", "quantization_config"}) {
        const json& q = member(root, key);
        if (!c.method.empty() || !q.is_object()) continue;
        if (!word(q, "quant_algo").empty() || q.contains("quantized_layers")) read_modelopt(q, c);
        else if (q.contains("bits") && q.contains("group_size")) read_mlx(q, c);
    }
    if (c.method.empty() && root.is_object() && (root.contains("bits") || root.contains("w_bit"))) {  // AutoGPTQ's quantize_config.json
        json q = root;
        if (!q.contains("quant_method")) q["quant_method"] = q.contains("w_bit") ? "awq" : "gptq";
        read_method(q, c);
    }
    return c;
}

quantization_config read_config(const std::filesystem::path& folder) {
    quantization_config found;
    for (const char* name : {"config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
        const std::filesystem::path file = folder / name;
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(file, ignored)) continue;
        const json root = parse_json(read_text(file, 64u << 20), file.string());
        quantization_config c = parse_config(root, file);
        if (found.file.empty()) found.file = file;
        if (found.method.empty() && !c.method.empty()) found = std::move(c);
        else if (found.method == "modelopt" && c.method == "modelopt") {
            for (auto& e : c.excluded)
                if (std::ranges::find(found.excluded, e) == found.excluded.end()) found.excluded.push_back(e);
            if (found.layers.empty()) found.layers = std::move(c.layers);
            if (found.algorithm.empty()) {
                found.algorithm = c.algorithm, found.quantizes_activations = c.quantizes_activations;
                found.activations_static = c.activations_static;
            }
            if (found.group == 0) found.group = c.group;
        }
    }
    return found;
}

}  // namespace qk::checkpoint
