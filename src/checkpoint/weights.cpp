// SPDX-License-Identifier: Apache-2.0
// Which stored tensors make a weight: told by names, types and shapes, and by the config where these leave it open. It is long because of
// the systems: each has its names for the parts and its shapes, and all of them share the helpers.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

using shape_t = std::vector<std::uint64_t>;

bool ends(std::string_view name, std::string_view suffix) { return name.size() > suffix.size() && name.ends_with(suffix); }
std::string cut(std::string_view name, std::string_view suffix) { return std::string(name.substr(0, name.size() - suffix.size())); }

std::optional<scale_type> scale_type_of(std::string_view type) {
    if (type == "F32") return scale_type::f32;
    if (type == "F16") return scale_type::f16;
    if (type == "BF16") return scale_type::bf16;
    if (type == "F8_E4M3") return scale_type::e4m3;
    if (type == "F8_E8M0" || type == "U8") return scale_type::e8m0;
    return std::nullopt;
}
bool is_wide_float(std::string_view type) { return type == "F32" || type == "F16" || type == "BF16"; }

/// One matrix: the last number of the shape is its columns, the others make its rows.
void set_plain_matrix(weight& w) {
    w.matrix.columns = w.shape.empty() ? 1 : w.shape.back();
    w.matrix.rows = 1;
    for (std::size_t k = 0; k + 1 < w.shape.size(); ++k) w.matrix.rows *= w.shape[k];
}

/// Finds the weights of one safetensors checkpoint.
class weight_finder {
  public:
    explicit weight_finder(checkpoint& c) : c_(c), used_(c.tensors.size(), false) {
        for (std::size_t i = 0; i < c.tensors.size(); ++i) by_name_.emplace(c.tensors[i].name, static_cast<int>(i));
    }

    void find() {
        for (int i = 0; i < static_cast<int>(c_.tensors.size()); ++i) look_at(i);
        for (int i = 0; i < static_cast<int>(c_.tensors.size()); ++i)
            if (!used_[static_cast<std::size_t>(i)] && is_float_type(tensor(i).type)) plain(i);
        std::ranges::stable_sort(c_.weights, {}, [](const weight& w) { return w.codes; });
        for (const weight& w : c_.weights)
            if (w.problem) c_.findings.push_back(*w.problem);
        const std::string config = c_.config.file.filename().string();
        if (!c_.config.unread.empty() && !told_) note(config, "config_mismatch", config_says());
        for (const std::string& sentence : c_.config.senseless) note(config, "config_mismatch", config + " " + sentence);
        if (c_.system.empty()) c_.system = "plain";
    }

  private:
    const stored_tensor& tensor(int i) const { return c_.tensors[static_cast<std::size_t>(i)]; }
    int index(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? weight::none : found->second;
    }
    int take(const std::string& name) {
        const int i = index(name);
        if (i != weight::none) used_[static_cast<std::size_t>(i)] = true;
        return i;
    }
    void use(int i) { used_[static_cast<std::size_t>(i)] = true; }
    std::string config_says() const { return c_.config.file.filename().string() + " " + c_.config.unread; }
    void note(const std::string& tensor_name, const char* kind, std::string sentence) {
        c_.findings.push_back({tensor_name, kind, std::move(sentence)});
    }
    static void problem(weight& w, const std::string& tensor_name, const char* kind, std::string sentence) {
        if (!w.problem) w.problem = finding{tensor_name, kind, std::move(sentence)};
    }
    weight& begin(const std::string& name, int codes, const char* system) {
        use(codes);
        if (c_.system.empty() || c_.system == "plain") c_.system = system;
        weight& w = c_.weights.emplace_back();
        w.name = name, w.codes = codes, w.quantized = true, w.shape = tensor(codes).shape;
        if (!c_.config.unread.empty()) told_ = true, problem(w, name, "config_mismatch", name + ": " + config_says());
        return w;
    }
    /// Splits a shape into a stack of matrices; the last two numbers are the matrix.
    static void set_matrix(weight& w, const shape_t& stored, std::uint64_t columns) {
        w.matrix.columns = columns;
        w.matrix.rows = stored.size() >= 2 ? stored[stored.size() - 2] : 1;
        w.stack = 1;
        for (std::size_t k = 0; k + 2 < stored.size(); ++k) w.stack *= stored[k];
        w.shape = stored;
        w.shape.back() = columns;
    }
    /// Compares each part's size with what the layout needs.
    void check_sizes(weight& w) {
        if (w.problem) return;
        const plane_sizes one = sizes_of(w.how, w.matrix);
        const auto check = [&](int part, std::size_t bytes) {
            if (part == weight::none || w.problem) return;
            const stored_tensor& t = tensor(part);
            if (t.data.size() != bytes * w.stack)
                problem(w, t.name, "wrong_shape",
                        t.name + " is " + t.type + " " + text_of(t.shape) + "; " + w.format + " of " + text_of(w.shape) + " needs " +
                            std::to_string(bytes * w.stack) + " bytes there");
        };
        check(w.codes, one.codes), check(w.scales, one.scales), check(w.zeros, one.zeros);
        if (!w.problem && one.scales != 0 && w.scales == weight::none) problem(w, w.name, "missing_scale", w.name + " has no scales");
        if (!w.problem && one.zeros != 0 && w.zeros == weight::none) problem(w, w.name, "missing_scale", w.name + " has no zero points");
        if (!w.problem && w.global != weight::none) {
            const stored_tensor& t = tensor(w.global);
            const auto n = t.elements();
            if (t.type != "F32") problem(w, t.name, "wrong_type", t.name + " is " + t.type + " and should be F32");
            else if (n != 1 && n != w.stack)
                problem(w, t.name, "wrong_shape", t.name + " is " + text_of(t.shape) + "; one number for the matrix is expected");
        }
    }

    void look_at(int i) {
        const stored_tensor& t = tensor(i);
        if (used_[static_cast<std::size_t>(i)]) return;
        if (ends(t.name, "_blocks") && t.type == "U8" && t.shape.size() >= 3) return gpt_oss(i, "_");
        if (ends(t.name, ".blocks") && t.type == "U8" && t.shape.size() >= 3) return gpt_oss(i, ".");
        if (ends(t.name, ".qweight")) return words(i);
        if (ends(t.name, "weight_packed") && (t.type == "U8" || t.type == "I8")) return packed_floats(i);
        if (ends(t.name, "weight_packed") && (t.type == "I32" || t.type == "U32")) return packed_integers(i);
        if (index(t.name + "_scale_inv") != weight::none) return deepseek(i, t.name + "_scale_inv");
        if (ends(t.name, "_qdata") && index(cut(t.name, "qdata") + "scale") != weight::none) return unread(i, "torchao's codes");
        if (ends(t.name, ".weight") && t.type == "U32") return mlx(i);
        if (ends(t.name, ".weight") && t.type == "I32" && index(t.name + "_scale") != weight::none) return unread(i, "Quark's int32 words");
        if (ends(t.name, ".weight") && index(cut(t.name, "weight") + "comfy_quant") != weight::none && t.type == "U8")
            return unread(i, "ComfyUI's packed codes");
        if (ends(t.name, ".weight") && t.type.starts_with("F8_E") && !factor_named(t.name).empty()) return named_factor(i);
        const bool is_weight = ends(t.name, "weight") || t.name == "weight";
        const std::string scale = is_weight ? t.name + "_scale" : t.name + "_weight_scale";
        const bool narrow = t.type.starts_with("F8_E") || t.type == "U8" || t.type == "I8" || t.type == "F4";
        if (narrow && (index(scale) != weight::none || index(scale + "_2") != weight::none)) return scaled(i, scale);
        if (ends(t.name, ".weight") && t.type.starts_with("F8_E") && index(cut(t.name, "weight") + "scale") != weight::none)
            return deepseek(i, cut(t.name, "weight") + "scale");
        if (is_weight && (t.type == "U8" || t.type == "I8" || (t.type.starts_with("F8_E") && !c_.config.method.empty()))) missing(i, scale);
    }

    /// Codes of a known writer that are not read.
    void unread(int i, const std::string& whose) {
        weight& w = begin(tensor(i).name, i, "plain");
        w.format = tensor(i).type;
        problem(w, w.name, "wrong_type", w.name + " holds " + whose + ", which are not read; their own package can write floats");
    }
    /// The name under which ComfyUI (scale_weight) or Mistral (qscale_weight) keep the scale of FP8; empty: there is none.
    std::string factor_named(const std::string& codes) const {
        for (const char* leaf : {"scale_weight", "qscale_weight"})
            if (index(cut(codes, "weight") + leaf) != weight::none) return cut(codes, "weight") + leaf;
        return {};
    }
    /// Their FP8: the scale multiplies, in one number or one for each row.
    void named_factor(int i) {
        const std::string scale = factor_named(tensor(i).name);
        weight& w = begin(tensor(i).name, i, scale.ends_with("qscale_weight") ? "mistral" : "comfyui");
        w.scales = take(scale), w.format = "fp8";
        const stored_tensor& s = tensor(w.scales);
        if (!is_wide_float(s.type)) return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float is expected");
        set_bytes(w, *scale_type_of(s.type), arithmetic::float32);
    }

    /// A weight of codes without scales.
    void missing(int i, const std::string& scale) {
        const stored_tensor& t = tensor(i);
        weight& w = begin(t.name, i, c_.config.method.empty() ? "plain" : c_.config.method.c_str());
        w.format = t.type;
        problem(w, t.name, "missing_scale", t.name + " holds " + t.type + " codes, and " + scale + " is missing");
    }

    /// `joint` is '.' in the files that OpenAI publishes, whose experts are not turned by a reader.
    void gpt_oss(int i, const std::string& joint) {
        const stored_tensor& t = tensor(i);
        const std::string name = cut(t.name, joint + "blocks");
        weight& w = begin(name, i, "gpt-oss");
        w.how = layouts::gpt_oss, w.format = "mxfp4", w.transposed = joint == "_";
        const std::size_t d = t.shape.size();
        const std::uint64_t groups = t.shape[d - 2];
        shape_t stored(t.shape.begin(), t.shape.end() - 2);
        stored.push_back(groups * 32);
        set_matrix(w, stored, groups * 32);
        if (w.transposed && stored.size() >= 2) std::swap(w.shape[w.shape.size() - 1], w.shape[w.shape.size() - 2]);
        w.scales = take(name + joint + "scales");
        if (t.shape.back() != 16)
            return problem(w, t.name, "wrong_shape", t.name + " is " + text_of(t.shape) + "; blocks of 32 codes have 16 bytes");
        if (w.scales == weight::none)
            return problem(w, name + joint + "scales", "missing_scale", t.name + " is there, and " + name + joint + "scales is missing");
        const stored_tensor& s = tensor(w.scales);
        if (s.type != "U8" && s.type != "F8_E8M0")
            return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; GPT-OSS's scales are U8");
        if (s.shape != shape_t(t.shape.begin(), t.shape.end() - 1)) return wrong_scales(w, shape_t(t.shape.begin(), t.shape.end() - 1));
        check_sizes(w);
    }

    /// Says in which way the shape of scales is wrong.
    void wrong_scales(weight& w, const shape_t& expected) {
        const stored_tensor& s = tensor(w.scales);
        shape_t turned = expected;
        if (turned.size() >= 2) std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
        const std::size_t groups = groups_of(w.how, w.matrix), rows = scale_rows_of(w.how, w.matrix);
        const std::uint64_t tiles = divide_up(rows, 128) * 128 * divide_up(groups, 4) * 4;
        std::string why = s.name + " is " + text_of(s.shape) + ", and " + w.name + " needs " + text_of(expected);
        const char* kind = "wrong_shape";
        if (s.shape == turned && turned != expected) why += ": it is transposed";
        else if (s.elements() == tiles * w.stack && tiles != rows * groups)
            why += ": it is swizzled for tiles of 128 x 4", kind = "swizzled_scale";
        else if (!s.shape.empty() && !expected.empty() && s.shape.back() != 0 && expected.back() % s.shape.back() == 0 &&
                 s.shape.size() == expected.size() && s.shape.back() != expected.back())
            why += ": a scale there covers " + std::to_string(w.matrix.columns / s.shape.back()) + " values";
        problem(w, s.name, kind, std::move(why));
    }

    /// A config that gives another width than the tensors have.
    void compare_config(const weight& w, int bits, int group) {
        if (c_.config.bits != 0 && bits != 0 && c_.config.bits != bits)
            note(w.name, "config_mismatch",
                 w.name + " has codes of " + std::to_string(bits) + " bits; " + c_.config.file.filename().string() + " says " +
                     std::to_string(c_.config.bits));
        if (c_.config.group != 0 && group != 0 && c_.config.group != group)
            note(w.name, "config_mismatch",
                 w.name + " has a scale for " + std::to_string(group) + " values; " + c_.config.file.filename().string() + " says " +
                     std::to_string(c_.config.group));
    }
    void compare_excluded(const weight& w) {
        std::string module = w.name.ends_with(".weight") ? cut(w.name, ".weight") : w.name;
        if (c_.config.excludes(module))
            note(w.name, "config_mismatch",
                 w.name + " is quantized, though " + c_.config.file.filename().string() + " leaves " + module + " out");
    }
    void compare_method(const weight& w, std::initializer_list<std::string_view> methods) {
        if (c_.config.method.empty() || std::ranges::find(methods, c_.config.method) != methods.end() || told_) return;
        told_ = true;
        note(w.name, "config_mismatch",
             w.name + " is stored as " + c_.system + " stores it; " + c_.config.file.filename().string() + " says " + c_.config.method);
    }

    /// GPTQ's and AWQ's int32 words.
    void words(int i) {
        const stored_tensor& t = tensor(i);
        const std::string base = cut(t.name, "qweight");
        const int scales = take(base + "scales"), zeros = take(base + "qzeros"), order = take(base + "g_idx");
        weight& w = begin(base + "weight", i, c_.config.method == "awq" ? "awq" : "gptq");
        w.format = "int4", w.scales = scales, w.zeros = zeros;
        if (t.type != "I32" && t.type != "U32")
            return problem(w, t.name, "wrong_type", t.name + " is " + t.type + "; words of I32 are read");
        const std::string& method = c_.config.method;
        if (!method.empty() && method != "gptq" && method != "awq")
            return problem(w, t.name, "config_mismatch",
                           t.name + " is named as GPTQ and AWQ name their words; " + c_.config.file.filename().string() + " says " +
                               method + ", and what the words mean is not known");
        if (!c_.config.gemm)
            return problem(w, w.name, "config_mismatch",
                           w.name + ": AWQ's version " + c_.config.algorithm + " orders its words otherwise; gemm is read");
        if (scales == weight::none) return problem(w, base + "scales", "missing_scale", base + "scales is missing");
        const stored_tensor& s = tensor(scales);
        const auto type = scale_type_of(s.type);
        if (!is_wide_float(s.type)) return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float is expected");
        if (t.shape.size() != 2 || s.shape.size() != 2 || s.shape[0] == 0 || s.shape[1] == 0)
            return problem(w, t.name, "wrong_shape",
                           t.name + " is " + text_of(t.shape) + " with scales " + text_of(s.shape) + "; two dimensions each are expected");
        const std::uint64_t rows = s.shape[1], groups = s.shape[0];
        const bool awq = t.shape[1] * 8 == rows && (c_.config.method != "gptq");
        if (awq) return awq_words(w, rows, groups, *type);
        if (method == "awq")
            return problem(w, t.name, "wrong_shape",
                           t.name + " is " + text_of(t.shape) + " with scales " + text_of(s.shape) + "; AWQ's words hold 8 rows each");
        c_.system = "gptq";
        if (t.shape[1] != rows)
            return problem(w, t.name, "wrong_shape",
                           t.name + " is " + text_of(t.shape) + " and " + s.name + " is " + text_of(s.shape) +
                               "; their last numbers should be the same");
        const std::uint64_t bits = gptq_bits(w, order, rows);
        if (c_.config.method.empty())
            return problem(w, w.name, "config_mismatch",
                           base +
                               "qweight needs its config.json (quantization_config): the files of GPTQ's two versions differ only there, "
                               "in their zero points by one");
        if (bits < 1 || bits > 8) return problem(w, t.name, "config_mismatch", t.name + ": the config gives no width of 1 to 8 bits");
        const std::uint64_t columns = t.shape[0] * 32 / bits;
        if (columns == 0 || t.shape[0] * 32 % bits != 0)
            return problem(w, t.name, "wrong_shape",
                           t.name + " is " + text_of(t.shape) + ", no whole number of codes of " + std::to_string(bits) + " bits");
        const auto group =
            static_cast<int>(c_.config.group != 0 && divide_up(columns, static_cast<std::uint64_t>(c_.config.group)) == groups
                                 ? static_cast<std::uint64_t>(c_.config.group)
                                 : divide_up(columns, groups));
        w.format = "int" + std::to_string(bits), w.shape = {rows, columns}, w.matrix = {rows, columns};
        w.how = layouts::gptq(static_cast<int>(bits), groups == 1 ? 0 : group, c_.config.first_version, *type);
        if (zeros == weight::none)
            return problem(w, base + "qzeros", "missing_scale", base + "qzeros is missing: GPTQ's codes have zero points");
        if (divide_up(columns, static_cast<std::uint64_t>(group)) != groups)
            return problem(w, s.name, "wrong_shape",
                           s.name + " is " + text_of(s.shape) + ", which does not divide " + std::to_string(columns) + " values");
        if (order != weight::none) set_order(w, order, groups);
        compare_method(w, {"gptq"});
        if (c_.config.group != 0 && !c_.config.varies)
            compare_config(w, 0, groups == 1 && c_.config.group >= static_cast<int>(columns) ? c_.config.group : group);
        check_sizes(w);
    }
    /// The width of GPTQ's codes: what zero points and g_idx agree on (configs have other widths for single modules under "dynamic"), else
    /// what the config says.
    std::uint64_t gptq_bits(weight& w, int order, std::uint64_t rows) {
        const auto said = static_cast<std::uint64_t>(c_.config.method == "gptq" ? c_.config.bits : 0);
        if (w.zeros == weight::none || tensor(w.zeros).shape.size() != 2 || tensor(w.zeros).shape[1] * 32 % rows != 0) return said;
        const std::uint64_t by_zeros = tensor(w.zeros).shape[1] * 32 / rows, words = tensor(w.codes).shape[0];
        if (said == by_zeros || by_zeros < 1 || by_zeros > 8) return said;
        const bool sure = order != weight::none && tensor(order).elements() * by_zeros == words * 32;
        if (said != 0 && !(sure && c_.config.varies))
            note(w.name, "config_mismatch",
                 tensor(w.zeros).name + " has zero points of " + std::to_string(by_zeros) + " bits; the config says " +
                     std::to_string(said));
        return sure || said == 0 ? by_zeros : said;
    }
    /// GPTQ's g_idx, if it is not the usual order.
    void set_order(weight& w, int order, std::uint64_t groups) {
        const stored_tensor& g = tensor(order);
        if (g.type != "I32" || g.elements() != w.matrix.columns)
            return problem(w, g.name, "wrong_shape",
                           g.name + " is " + g.type + " " + text_of(g.shape) + "; one I32 for each of " + std::to_string(w.matrix.columns) +
                               " columns is expected");
        bool usual = true;
        for (std::size_t k = 0; k < w.matrix.columns; ++k) {
            std::int32_t v = 0;
            std::memcpy(&v, g.data.data() + 4 * k, 4);
            if (v < 0 || static_cast<std::uint64_t>(v) >= groups)
                return problem(w, g.name, "wrong_shape", g.name + " names group " + std::to_string(v) + " of " + std::to_string(groups));
            usual = usual &&
                    (w.how.group_columns == 0 ? v == 0 : v == static_cast<std::int32_t>(k / static_cast<std::size_t>(w.how.group_columns)));
        }
        if (!usual) w.group_of = order;
    }
    void awq_words(weight& w, std::uint64_t rows, std::uint64_t groups, scale_type type) {
        c_.system = "awq";
        const std::uint64_t columns = tensor(w.codes).shape[0];
        const std::uint64_t group = columns == 0 ? 0 : divide_up(columns, groups);
        w.shape = {rows, columns}, w.matrix = {rows, columns};
        if (group == 0 || columns % groups != 0)
            return problem(w, tensor(w.scales).name, "wrong_shape",
                           tensor(w.scales).name + " is " + text_of(tensor(w.scales).shape) + ", which does not divide " +
                               std::to_string(columns) + " values");
        w.how = layouts::awq(static_cast<int>(group), type);
        if (w.zeros == weight::none && !c_.config.symmetric.value_or(false)) {
            const std::string name = cut(w.name, "weight") + "qzeros";
            return problem(w, name, "missing_scale", name + " is missing, and no config says that there are no zero points");
        }
        if (w.zeros == weight::none) w.how.zero = zero_type::none, w.how.offset = 8;
        compare_method(w, {"awq"});
        compare_config(w, 4, c_.config.group >= static_cast<int>(columns) ? 0 : static_cast<int>(group));
        check_sizes(w);
    }

    /// compressed-tensors' FP4 and FP6.
    void packed_floats(int i) {
        const stored_tensor& t = tensor(i);
        const std::string base = cut(t.name, "_packed");
        weight& w = begin(base, i, "compressed-tensors");
        w.format = "nvfp4", w.how = layouts::compressed_tensors_nvfp4;
        w.scales = take(base + "_scale"), w.global = take(base + "_global_scale");
        const std::string module = cut(base, "weight");
        if (t.shape.empty()) return problem(w, t.name, "wrong_shape", t.name + " is a single number");
        if (w.scales == weight::none) return problem(w, base + "_scale", "missing_scale", base + "_scale is missing");
        const stored_tensor& s = tensor(w.scales);
        const std::uint64_t bytes = t.shape.back(), groups = s.shape.empty() ? 0 : s.shape.back();
        if (s.type == "U8" || s.type == "F8_E8M0") {
            const bool six = bytes * 4 == groups * 32 * 3 && bytes * 2 != groups * 32;
            w.format = six ? "mxfp6_e2m3" : "mxfp4";
            w.how = six ? layouts::compressed_tensors_mxfp6 : layouts::compressed_tensors_mxfp4;
            if (w.global != weight::none)
                problem(w, s.name, "wrong_type", s.name + " is " + s.type + " beside a global scale; NVFP4's scales are F8_E4M3");
        } else if (s.type != "F8_E4M3")
            return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; scales of FP4 are F8_E4M3 or U8");
        set_matrix(w, t.shape, bytes * 8 / static_cast<std::uint64_t>(w.how.bits));
        if (w.how.global != global_type::none && w.global == weight::none)
            problem(w, base + "_global_scale", "missing_scale", base + "_global_scale is missing");
        shape_t expected = w.shape;
        expected.back() = groups_of(w.how, w.matrix);
        if (s.shape != expected || w.matrix.columns % static_cast<std::uint64_t>(w.how.group_columns) != 0) wrong_scales(w, expected);
        check_activations(w, module + "input_global_scale", "compressed-tensors");
        compare_method(w, {"compressed-tensors"}), compare_config(w, w.how.bits, w.how.group_columns), compare_excluded(w);
        check_sizes(w);
    }

    /// Weights of a scheme with quantized activations that have none of their scales, or the other way round.
    void check_activations(const weight& w, const std::string& scale, const char* method) {
        const bool there = take_if_known(scale);
        if (c_.config.method == method && c_.config.quantizes_activations) {
            if (*c_.config.quantizes_activations && c_.config.activations_static && !there)
                note(scale, "activation_mismatch",
                     w.name + " is W4A16: " + scale + " is missing; " + c_.config.file.filename().string() +
                         " describes quantized activations (W4A4)");
            if (!*c_.config.quantizes_activations && there)
                note(scale, "activation_mismatch",
                     scale + " is there; " + c_.config.file.filename().string() + " describes weights alone (W4A16)");
        } else if (c_.config.method.empty() && !there && std::string_view(method) == "modelopt")
            note(scale, "activation_mismatch",
                 w.name + " is W4A16: " + scale +
                     " is missing, without which NVFP4 (W4A4) cannot be computed, and no config says W4A16_NVFP4");
    }
    bool take_if_known(const std::string& name) const { return index(name) != weight::none; }

    /// compressed-tensors' integers in int32 words.
    void packed_integers(int i) {
        const stored_tensor& t = tensor(i);
        const std::string base = cut(t.name, "_packed");
        weight& w = begin(base, i, "compressed-tensors");
        w.format = "int4", w.scales = take(base + "_scale"), w.zeros = take(base + "_zero_point");
        const int shape = take(base + "_shape"), order = take(base + "_g_idx");
        if (t.shape.size() < 2)
            return problem(w, t.name, "wrong_shape", t.name + " is " + text_of(t.shape) + "; rows of words are expected");
        if (w.scales == weight::none) return problem(w, base + "_scale", "missing_scale", base + "_scale is missing");
        const stored_tensor& s = tensor(w.scales);
        if (!is_wide_float(s.type)) return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float is expected");
        auto bits = static_cast<std::uint64_t>(c_.config.bits);
        std::uint64_t columns = bits == 0 ? 0 : t.shape.back() * 32 / bits;
        if (shape != weight::none) {
            const stored_tensor& n = tensor(shape);
            if ((n.type != "I64" && n.type != "I32") || n.elements() < 1 || n.elements() > 8)
                return problem(w, n.name, "wrong_type",
                               n.name + " is " + n.type + " " + text_of(n.shape) + "; the shape as I64 is expected");
            std::int64_t last = 0;
            const std::size_t width = n.type == "I64" ? 8 : 4;
            std::memcpy(&last, n.data.data() + n.data.size() - width, width);
            if (last <= 0 || static_cast<std::uint64_t>(last) > t.shape.back() * 32)
                return problem(w, n.name, "wrong_shape",
                               n.name + " says " + std::to_string(last) + " columns, and " + t.name + " has " +
                                   std::to_string(t.shape.back()) + " words in a row");
            columns = static_cast<std::uint64_t>(last);
            if (bits > 1 && bits < 8 && 32 % bits != 0 && divide_up(columns, 32 / bits) == t.shape.back() &&
                divide_up(columns * bits, 32) != t.shape.back())
                return problem(w, t.name, "wrong_shape",
                               t.name + " has " + std::to_string(32 / bits) + " whole codes in a word, as compressed-tensors packed " +
                                   std::to_string(bits) + " bits before it packed them densely; those words are not read");
            if (bits == 0 || divide_up(columns * bits, 32) != t.shape.back()) bits = width_of(columns, t.shape.back(), bits, w);
        }
        if (bits < 1 || bits > 8)
            return problem(w, t.name, "config_mismatch",
                           t.name + ": no width of 1 to 8 bits fits " + text_of(t.shape) + "; the config.json says the width");
        set_matrix(w, t.shape, columns);
        w.format = "int" + std::to_string(bits);
        const std::uint64_t groups = s.shape.size() >= 2 ? s.shape.back() : 1;
        const bool whole = s.elements() == 1 && w.matrix.rows != 1;
        if (groups == 0 || columns % groups != 0)
            return problem(w, s.name, "wrong_shape",
                           s.name + " is " + text_of(s.shape) + ", which does not divide rows of " + std::to_string(columns));
        w.how = layouts::compressed_tensors_int(static_cast<int>(bits), groups == 1 ? 0 : static_cast<int>(columns / groups),
                                                *scale_type_of(s.type), w.zeros != weight::none);
        if (whole) w.how.group_rows = 0;
        if (w.zeros == weight::none && c_.config.symmetric == false && c_.config.method == "compressed-tensors")
            return problem(w, base + "_zero_point", "missing_scale",
                           base + "_zero_point is missing, and the config says that it is not symmetric");
        if (w.zeros != weight::none && tensor(w.zeros).type == "I8") w.how.zero = zero_type::int8, w.how.codes = element::unsigned_integer;
        if (order != weight::none && tensor(order).data.size() >= 4) {
            std::int32_t first = 0;
            std::memcpy(&first, tensor(order).data.data(), 4);
            if (first != -1) set_order(w, order, groups);  // -1: not used
        }
        compare_method(w, {"compressed-tensors"}), compare_excluded(w);
        compare_config(w, static_cast<int>(bits), groups == 1 ? 0 : w.how.group_columns);
        check_sizes(w);
    }
    /// The width at which `columns` codes fill `words` int32 words, if only one does.
    std::uint64_t width_of(std::uint64_t columns, std::uint64_t words, std::uint64_t said, const weight& w) {
        std::uint64_t found = 0;
        for (std::uint64_t b = 1; b <= 8; ++b)
            if (divide_up(columns * b, 32) == words) found = found == 0 ? b : 99;
        if (said != 0 && found <= 8)
            note(w.name, "config_mismatch",
                 w.name + " has codes of " + std::to_string(found) + " bits; the config says " + std::to_string(said));
        return found;
    }

    void deepseek(int i, const std::string& scale) {
        const stored_tensor& t = tensor(i);
        weight& w = begin(t.name, i, "deepseek");
        w.scales = take(scale), w.format = "fp8";
        const stored_tensor& s = tensor(w.scales);
        const auto type = s.type == "F8_E4M3" ? std::nullopt : scale_type_of(s.type);
        if (!type) return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float or F8_E8M0 is expected");
        if (!t.type.starts_with("F8_E4M3") && t.type != "F8_E5M2")
            return problem(w, t.name, "wrong_type", t.name + " is " + t.type + "; block scales belong to F8_E4M3");
        set_bytes(w, *type, arithmetic::float32);
        compare_method(w, {"fp8", "mxfp8", "deepseek", "modelopt", "compressed-tensors"});
        compare_excluded(w);
    }

    /// Codes of 8 bits with scales of whatever shape: one for all, for each row, for groups of a row, or for blocks of rows and columns.
    void set_bytes(weight& w, scale_type type, arithmetic product) {
        const stored_tensor &t = tensor(w.codes), &s = tensor(w.scales);
        if (t.shape.empty()) return problem(w, t.name, "wrong_shape", t.name + " is a single number");
        set_matrix(w, t.shape, t.shape.back());
        const element code = t.type == "I8" ? element::signed_integer : t.type == "F8_E5M2" ? element::e5m2 : element::e4m3;
        if (t.type == "F8_E4M3FNUZ" || t.type == "F8_E5M2FNUZ")
            return problem(w, t.name, "wrong_type", t.name + " is " + t.type + ", whose scaled form is not read");
        shape_t scales = s.shape;  // ModelOpt's [a, 1, b, 1]
        if (scales.size() == t.shape.size() + 2 && scales.back() == 1 && scales[scales.size() - 3] == 1)
            scales = {scales[scales.size() - 4], scales[scales.size() - 2]};
        const std::uint64_t rows = w.matrix.rows, columns = w.matrix.columns, n = s.elements();
        const std::uint64_t a = scales.size() >= 2 ? scales[scales.size() - 2] : 0, b = scales.empty() ? 0 : scales.back();
        const auto side = [](std::uint64_t size, std::uint64_t parts, int said) -> std::uint64_t {
            if (parts == 0) return 0;
            for (const std::uint64_t usual : {static_cast<std::uint64_t>(said), std::uint64_t{128}, divide_up(size, parts)})
                if (usual != 0 && divide_up(size, usual) == parts) return usual;
            return 0;
        };
        int group_rows = -1, group_columns = -1;
        if (n == 1 || n == w.stack) {
            if (n == 1 && w.stack != 1) w.matrix.rows *= w.stack, w.stack = 1;  // one scale for all matrices
            group_rows = 0, group_columns = 0;
        } else if (n == rows * w.stack && (b == 1 || b == rows || scales.size() == 1)) group_rows = 1, group_columns = 0;
        else if (t.shape.size() == 3 && scales.size() == 2 && a == w.stack && b == columns)
            group_rows = 0, group_columns = 1;  // experts whose matrices have their inputs first
        else if (a == rows && b != 0 && columns % b == 0 && n == rows * b * w.stack)
            group_rows = 1, group_columns = static_cast<int>(columns / b);
        else if (n == a * b * w.stack && side(rows, a, c_.config.block_rows) != 0 && side(columns, b, c_.config.block_columns) != 0)
            group_rows = static_cast<int>(side(rows, a, c_.config.block_rows)),
            group_columns = static_cast<int>(side(columns, b, c_.config.block_columns));
        w.how = layouts::bytes(code, std::max(group_rows, 0), std::max(group_columns, 0), type, product);
        if (group_rows < 0) {
            w.how.group_rows = w.how.group_columns = 128;
            return wrong_scales(w, {divide_up(rows, 128), divide_up(columns, 128)});
        }
        check_sizes(w);
    }

    void mlx(int i) {
        const stored_tensor& t = tensor(i);
        const std::string base = cut(t.name, "weight");
        const int scales = index(base + "scales");
        if (scales == weight::none) {
            if (c_.config.method == "mlx" || c_.metadata.find("\"mlx\"") != std::string::npos) missing(i, base + "scales");
            return;
        }
        weight& w = begin(t.name, i, "mlx");
        w.scales = take(base + "scales"), w.zeros = take(base + "biases"), w.format = "int4";
        const stored_tensor& s = tensor(scales);
        const std::uint64_t words = t.shape.empty() ? 0 : t.shape.back(), groups = s.shape.empty() ? 0 : s.shape.back();
        if (words == 0 || groups == 0)
            return problem(w, t.name, "wrong_shape", t.name + " is " + text_of(t.shape) + " with scales " + text_of(s.shape));
        const auto* own = c_.config.of(cut(base, "."));
        const int bits = own != nullptr && own->bits != 0 ? own->bits : c_.config.bits,
                  group = own != nullptr && own->group != 0 ? own->group : c_.config.group;
        if (own != nullptr && own->off) note(w.name, "config_mismatch", w.name + " is quantized, though the config leaves it out");
        if (s.type == "U8") {
            mlx_floats(w, words, groups, own != nullptr && !own->mode.empty() ? own->mode : c_.config.algorithm);
        } else {
            if (!is_wide_float(s.type))
                return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float, or U8 for MX formats, is expected");
            if (bits == 0 || group == 0)
                return problem(w, t.name, "config_mismatch",
                               t.name + " needs its config.json (quantization: bits and group_size): " + std::to_string(words / groups) +
                                   " words to a scale fit several widths");
            if (bits > 8 || words * 32 != groups * static_cast<std::uint64_t>(group) * static_cast<std::uint64_t>(bits))
                return problem(w, t.name, "config_mismatch",
                               t.name + " has " + std::to_string(words) + " words and " + std::to_string(groups) + " scales in a row; " +
                                   std::to_string(bits) + " bits in groups of " + std::to_string(group) +
                                   ", as the config says, do not fit");
            w.format = "int" + std::to_string(bits);
            w.how = layouts::mlx_affine(bits, group, *scale_type_of(s.type));
            if (w.zeros == weight::none) return problem(w, base + "biases", "missing_scale", base + "biases is missing");
            if (tensor(w.zeros).type != s.type || tensor(w.zeros).shape != s.shape)
                return problem(w, base + "biases", "wrong_shape", base + "biases is not of the type and shape of " + s.name);
        }
        set_matrix(w, t.shape, groups * static_cast<std::uint64_t>(w.how.group_columns));
        compare_method(w, {"mlx"});
        check_sizes(w);
    }
    void mlx_floats(weight& w, std::uint64_t words, std::uint64_t groups, const std::string& mode) {
        const std::uint64_t each = words % groups == 0 ? words / groups : 0;
        w.format = each == 2 ? "nvfp4" : each == 4 ? "mxfp4" : "mxfp8_e4m3";
        w.how = each == 2 ? layouts::mlx_nvfp4 : each == 4 ? layouts::mlx_mxfp4 : layouts::mlx_mxfp8;
        if (each != 2 && each != 4 && each != 8)
            problem(w, w.name, "wrong_shape",
                    w.name + " has " + std::to_string(words) + " words and " + std::to_string(groups) +
                        " scales in a row; nvfp4 has 2 words to a scale, mxfp4 4, mxfp8 8");
        if (!mode.empty() && !w.format.starts_with(mode))
            note(w.name, "config_mismatch", w.name + " has the shape of " + w.format + "; the config says " + mode);
    }

    /// `weight` with `weight_scale`: ModelOpt, compressed-tensors, Quark and others.
    void scaled(int i, const std::string& scale) {
        const stored_tensor& t = tensor(i);
        const bool ours = c_.config.method == "compressed-tensors" ||
                          (c_.config.method.empty() && index(scale) != weight::none && tensor(index(scale)).type == "BF16");
        weight& w = begin(t.name, i, ours ? "compressed-tensors" : c_.config.method == "quark" ? "quark" : "modelopt");
        w.scales = take(scale), w.format = "fp8";
        const int second = index(scale + "_2");
        if (t.type == "U8" || t.type == "F4") return fp4(w, scale);
        if (w.scales == weight::none) return problem(w, scale, "missing_scale", scale + " is missing");
        const stored_tensor& s = tensor(w.scales);
        if (t.type == "I8") w.format = "int8";
        if (s.type == "U8" || s.type == "F8_E8M0") {
            w.format = t.type == "F8_E5M2" ? "mxfp8_e5m2" : "mxfp8_e4m3";
            w.how = ours ? layouts::compressed_tensors_mxfp8 : layouts::modelopt_mxfp8;
            if (t.type == "F8_E5M2") w.how.codes = element::e5m2;
            if (t.type == "I8") w.how.codes = element::signed_integer, w.format = "mxint8";
            if (t.shape.empty()) return problem(w, t.name, "wrong_shape", t.name + " is a single number");
            set_matrix(w, t.shape, t.shape.back());
            shape_t expected = w.shape;
            expected.back() = groups_of(w.how, w.matrix);
            if (s.shape != expected) return wrong_scales(w, expected);
            return check_sizes(w);
        }
        if (!is_wide_float(s.type)) return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; a float is expected");
        set_bytes(w, *scale_type_of(s.type), arithmetic::scale);
        const std::string zeros = cut(scale, "scale") + "zero_point";
        if (index(zeros) != weight::none && t.type == "I8") {
            w.zeros = take(zeros);
            if (tensor(w.zeros).type != "I8")
                return problem(w, zeros, "wrong_type", zeros + " is " + tensor(w.zeros).type + "; I8 is expected");
            w.how.zero = zero_type::int8;
            check_sizes(w);
        }
        if (second != weight::none && tensor(second).type == "F32") take(scale + "_2");
        compare_excluded(w);
    }

    /// ModelOpt's packed bytes: NVFP4, MXFP4, or int4 in pairs of rows.
    void fp4(weight& w, const std::string& scale) {
        const stored_tensor& t = tensor(w.codes);
        const int second = index(scale + "_2");
        w.format = "nvfp4", w.how = layouts::modelopt_nvfp4;
        if (t.shape.empty()) return problem(w, t.name, "wrong_shape", t.name + " is a single number");
        const std::uint64_t columns = t.type == "F4" ? t.shape.back() : t.shape.back() * 2;
        set_matrix(w, t.shape, columns);
        if (w.scales == weight::none) return problem(w, scale, "missing_scale", scale + " is missing");
        const stored_tensor& s = tensor(w.scales);
        const bool integers = is_wide_float(s.type) && t.type == "U8";
        if (integers) return int4(w);
        if ((s.type == "U8" || s.type == "F8_E8M0") && second == weight::none) w.format = "mxfp4", w.how = layouts::modelopt_mxfp4;
        else if (s.type != "F8_E4M3") return problem(w, s.name, "wrong_type", s.name + " is " + s.type + "; NVFP4's scales are F8_E4M3");
        const std::size_t d = t.shape.size();
        const bool turned = d == 3 && t.type == "U8" && w.how.global != global_type::none && s.shape.size() == 3 &&
                            s.shape[0] == t.shape[0] && s.shape[1] * 8 == t.shape[1] && s.shape[2] == t.shape[2];
        if (turned) {  // experts whose matrices have their inputs first (Llama 4): pairs, and blocks, down each column
            w.how.order = code_order::row_pairs, w.how.group_rows = w.how.group_columns, w.how.group_columns = 1;
            shape_t stored = t.shape;
            stored[1] *= 2;
            set_matrix(w, stored, stored.back());
        }
        shape_t expected = w.shape;
        expected.back() = groups_of(w.how, w.matrix);
        if (turned) expected[1] /= 16;
        if (w.how.global != global_type::none) {
            w.global = take(scale + "_2");
            if (w.global == weight::none)
                problem(w, scale + "_2", "missing_scale", scale + "_2 is missing: NVFP4's scales are multiplied by it");
            const std::string input = scale.ends_with("weight_scale") ? cut(scale, "weight_scale") + "input_scale" : std::string();
            if (!input.empty()) check_activations(w, input, "modelopt");
        }
        if (s.shape != expected || columns % static_cast<std::uint64_t>(w.how.group_columns) != 0) return wrong_scales(w, expected);
        compare_method(w, {"modelopt", "quark"}), compare_excluded(w);
        compare_config(w, 4, c_.config.algorithm == "NVFP4" ? std::max(w.how.group_columns, w.how.group_rows) : 0);
        check_sizes(w);
    }
    void int4(weight& w) {
        const stored_tensor &t = tensor(w.codes), &s = tensor(w.scales);
        w.format = "int4";
        if (t.shape.size() < 2 || s.shape.size() != t.shape.size())
            return problem(w, s.name, "wrong_shape", s.name + " is " + text_of(s.shape) + " for " + text_of(t.shape) + " bytes");
        shape_t stored = t.shape;
        stored[stored.size() - 2] *= 2;
        set_matrix(w, stored, stored.back());
        const std::uint64_t groups = s.shape.back();
        if (groups == 0 || s.shape[s.shape.size() - 2] != w.matrix.rows || w.matrix.columns % groups != 0)
            return problem(
                w, s.name, "wrong_shape",
                s.name + " is " + text_of(s.shape) + "; " + text_of(w.shape) + " in pairs of rows needs a scale for groups of each row");
        w.how = layouts::modelopt_int4(static_cast<int>(w.matrix.columns / groups));
        w.how.scale = *scale_type_of(s.type);
        compare_config(w, 0, w.how.group_columns), compare_excluded(w);
        check_sizes(w);
    }

    void plain(int i) {
        weight& w = c_.weights.emplace_back();
        const stored_tensor& t = tensor(i);
        w.name = t.name, w.shape = t.shape, w.codes = i;
        w.format = t.type;
        std::ranges::transform(w.format, w.format.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
        set_plain_matrix(w);
    }

    checkpoint& c_;
    std::unordered_map<std::string, int> by_name_;
    std::vector<bool> used_;
    bool told_ = false;
};

}  // namespace

void find_weights(checkpoint& c) { weight_finder(c).find(); }

void find_gguf_weights(checkpoint& c) {
    c.system = "gguf";
    std::map<std::string, int> factor_of;  // of a weight, its NAME.scale: one float, or one for each of its experts
    std::set<std::size_t> factors;
    std::map<std::string, std::size_t> by_name;
    for (std::size_t i = 0; i < c.tensors.size(); ++i) by_name.emplace(c.tensors[i].name, i);
    for (const auto& [name, i] : by_name) {
        const auto scale = name.ends_with(".weight") ? by_name.find(cut(name, "weight") + "scale") : by_name.end();
        if (scale == by_name.end()) continue;
        const stored_tensor &t = c.tensors[i], &s = c.tensors[scale->second];
        const std::uint64_t n = s.elements();
        if (s.type == "f32" && n != 0 && (n == 1 || (t.shape.size() == 3 && n == t.shape[0])))
            factor_of[name] = static_cast<int>(scale->second), factors.insert(scale->second);
    }
    for (std::size_t i = 0; i < c.tensors.size(); ++i) {
        const stored_tensor& t = c.tensors[i];
        const ggml_type type = *ggml_type_named(t.type);
        const ggml_facts f = facts_of(type);
        if (factors.contains(i)) continue;
        if (type == ggml_type::i8 || type == ggml_type::i16 || type == ggml_type::i32 || type == ggml_type::i64) continue;
        weight w;
        w.name = t.name, w.shape = t.shape, w.format = t.type, w.codes = static_cast<int>(i);
        w.quantized = f.values > 1;
        w.how = layouts::ggml(type);
        set_plain_matrix(w);
        if (const auto factor = factor_of.find(t.name); factor != factor_of.end()) {  // llama.cpp multiplies what comes out of the weight
            w.global = factor->second, w.how.global = global_type::multiplies;
            w.stack = c.tensors[static_cast<std::size_t>(w.global)].elements(), w.matrix.rows /= w.stack;
        }
        if (!f.readable) w.problem = finding{t.name, "wrong_type", t.name + " has type " + t.type + ", whose values are not read"};
        c.weights.push_back(std::move(w));
    }
}

}  // namespace qk::checkpoint
