// SPDX-License-Identifier: Apache-2.0
// The configs that the readers of the schemes need: compressed-tensors', ModelOpt's, AWQ's and GPTQ's quantization_config, MLX's
// quantization, in what they call their own words.
#include <algorithm>

#include "schemes.hpp"

namespace qk::checkpoint {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

ordered_json compressed_tensors(const scheme& s, const std::vector<std::string>& left) {
    const layout& l = s.how;
    const bool whole = l.codes == element::signed_integer || l.codes == element::unsigned_integer, blocks = l.group_rows > 1;
    const ordered_json none;
    ordered_json weights = {{"num_bits", l.bits},
                            {"type", whole ? "int" : "float"},
                            {"symmetric", s.symmetric},
                            {"group_size", l.group_columns == 0 || blocks ? none : ordered_json(l.group_columns)},
                            {"strategy", blocks                          ? "block"
                                         : l.group_columns == 0          ? "channel"
                                         : l.global != global_type::none ? "tensor_group"
                                                                         : "group"},
                            {"block_structure", blocks ? ordered_json{l.group_rows, l.group_columns} : none},
                            {"dynamic", false}};
    if (!s.scales_as_floats) weights["scale_dtype"] = l.scale == scale_type::e4m3 ? "torch.float8_e4m3fn" : "torch.uint8";
    ordered_json activations;
    if (!s.activations.empty())
        activations = {{"num_bits", 8},
                       {"type", whole ? "int" : "float"},
                       {"symmetric", true},
                       {"group_size", s.activations == "group" ? ordered_json(128) : none},
                       {"strategy", s.activations},
                       {"dynamic", true}};
    return {{"config_groups",
             {{"group_0",
               {{"targets", {"Linear"}},
                {"weights", weights},
                {"input_activations", activations},
                {"output_activations", none},
                {"format", s.algorithm}}}}},
            {"quant_method", "compressed-tensors"},
            {"kv_cache_scheme", none},
            {"format", s.algorithm},
            {"quantization_status", "compressed"},
            {"global_compression_ratio", none},
            {"ignore", left}};
}

/// ModelOpt's own words, as hf_quant_config.json has them.
ordered_json modelopt_file(const scheme& s, const std::vector<std::string>& left) {
    ordered_json q = {{"quant_algo", s.algorithm}, {"kv_cache_quant_algo", nullptr}};
    if (s.how.group_columns != 0) q["group_size"] = s.how.group_columns;
    q["exclude_modules"] = left;
    return {{"producer", {{"name", "qk"}}}, {"quantization", q}};
}
ordered_json modelopt(const scheme& s, const std::vector<std::string>& left) {
    ordered_json weights = {{"dynamic", false}, {"num_bits", s.how.bits}, {"type", "float"}};
    if (s.how.group_columns != 0) weights["group_size"] = s.how.group_columns;
    else weights["strategy"] = "channel";
    ordered_json group = {{"weights", weights}, {"targets", {"Linear"}}};
    if (s.how.bits == 8) group["input_activations"] = {{"dynamic", true}, {"num_bits", 8}, {"type", "float"}, {"strategy", "token"}};
    return {{"config_groups", {{"group_0", group}}},
            {"ignore", left},
            {"quant_algo", s.algorithm},
            {"producer", {{"name", "qk"}}},
            {"quant_method", "modelopt"}};
}

ordered_json mlx(const scheme& s, const std::vector<std::string>& left) {
    ordered_json q = {{"group_size", s.how.group_columns}, {"bits", s.how.bits}, {"mode", s.algorithm}};
    for (const std::string& module : left) q[module] = false;
    return q;
}

ordered_json awq(const scheme& s, const std::vector<std::string>& left) {
    return {{"quant_method", "awq"},      {"bits", s.how.bits},     {"group_size", s.how.group_columns},
            {"zero_point", !s.symmetric}, {"version", s.algorithm}, {"modules_to_not_convert", left}};
}

/// Modules that stay floats are negative matches of "dynamic", GPTQModel's way to say so; the head has a word of its own.
ordered_json gptq(const checkpoint& c, const scheme& s, const std::vector<std::string>& left) {
    const bool ordered = std::ranges::any_of(c.weights, [](const weight& w) { return w.group_of != weight::none; });  // and may stay so
    ordered_json q = {{"quant_method", "gptq"},
                      {"bits", s.how.bits},
                      {"group_size", s.how.group_columns},
                      {"desc_act", ordered},
                      {"sym", s.symmetric},
                      {"checkpoint_format", s.algorithm},
                      {"pack_dtype", "int32"},
                      {"lm_head", std::ranges::find(left, "lm_head") == left.end()}};
    for (const std::string& module : left) {
        if (module == "lm_head") continue;
        std::string expression = "-:^";
        for (const char ch : module) expression += std::string(ch == '.' ? "\\" : "") + ch;
        q["dynamic"][expression + "$"] = ordered_json::object();
    }
    return q;
}

ordered_json read_object(const fs::path& file) {
    const std::string text = read_text(file, 64u << 20);
    if (!parse_json(text, file.string()).is_object()) throw error(file.string() + ": is no JSON object");  // and is not nested too deep
    return ordered_json::parse(text);
}
ordered_json without_quantization(ordered_json config) {
    for (const char* key : {"quantization_config", "quantization", "compression_config"}) config.erase(key);
    for (const char* inner : {"text_config", "llm_config"})
        if (config.contains(inner) && config[inner].is_object()) config[inner].erase("quantization_config");
    return config;
}
fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

}  // namespace

std::vector<std::pair<fs::path, std::string>> configs_of(const checkpoint& c, const scheme& s, const checkpoint& like,
                                                         const fs::path& target) {
    const std::vector<std::string>& left = like.config.excluded;
    const fs::path own = folder_of(c.path) / "config.json", made = folder_of(target) / "config.json",
                   beside = folder_of(target) / "hf_quant_config.json";
    std::error_code failed;
    const bool own_there = fs::is_regular_file(own, failed), there = fs::exists(made, failed);
    ordered_json config = own_there ? without_quantization(read_object(own)) : ordered_json::object();
    const bool of_another_model =
        there && !(own_there && fs::equivalent(own, made, failed)) && without_quantization(read_object(made)) != config;
    if (s.system == "mlx") config["quantization"] = config["quantization_config"] = mlx(s, left);
    else
        config["quantization_config"] = s.system == "modelopt" ? modelopt(s, left)
                                        : s.system == "awq"    ? awq(s, left)
                                        : s.system == "gptq"   ? gptq(c, s, left)
                                                               : compressed_tensors(s, left);
    const auto refuse = [&](const fs::path& file, const char* whose) {
        throw error(file.string() + ": is " + whose + ", and " + s.text() + " needs another; name an output in a folder of its own");
    };
    if (of_another_model) refuse(made, "of another model");
    const bool source_folder = there && own_there && fs::equivalent(own, made, failed);
    std::vector<std::pair<fs::path, std::string>> files;
    if (s.system == "modelopt") {
        const ordered_json content = modelopt_file(s, left);
        const bool other = source_folder && fs::exists(beside, failed) && read_object(beside) != content;
        if (other) refuse(beside, "that of the source");
        files.emplace_back(beside, content.dump(2) + "\n");
    }
    if (source_folder) {
        if (s.system != "modelopt" && read_object(made) != config) refuse(made, "that of the source");
        return files;
    }
    files.emplace_back(made, config.dump(2) + "\n");
    return files;
}

}  // namespace qk::checkpoint
