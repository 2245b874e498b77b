// SPDX-License-Identifier: Apache-2.0
// The schemes that `requests::to` takes: a row for each, the names of the parts, and which weights a system quantizes by default.
#include "schemes.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

namespace qk::checkpoint {
namespace {

using kind = part_form::kind;
using side = part_form::side;

constexpr part_form packed_integers[] = {{kind::codes, "weight_packed", "I32", side::rows, side::column_words},
                                         {kind::scales, "weight_scale", "", side::scale_rows, side::groups},
                                         {kind::zeros, "weight_zero_point", "I32", side::row_words, side::groups},
                                         {kind::shape, "weight_shape", "I64", side::two}};
constexpr part_form scaled_int8[] = {{kind::codes, "weight", "I8", side::rows, side::columns},
                                     {kind::scales, "weight_scale", "", side::scale_rows, side::groups}};
constexpr part_form scaled_fp8[] = {{kind::codes, "weight", "F8_E4M3", side::rows, side::columns},
                                    {kind::scales, "weight_scale", "", side::scale_rows, side::groups}};
constexpr part_form packed_fp4[] = {{kind::codes, "weight_packed", "U8", side::rows, side::column_bytes},
                                    {kind::scales, "weight_scale", "", side::rows, side::groups},
                                    {kind::global, "weight_global_scale", "F32", side::one}};
constexpr part_form modelopt_fp4[] = {{kind::codes, "weight", "U8", side::rows, side::column_bytes},
                                      {kind::scales, "weight_scale", "", side::rows, side::groups},
                                      {kind::global, "weight_scale_2", "F32"}};
constexpr part_form modelopt_fp8[] = {{kind::codes, "weight", "F8_E4M3", side::rows, side::columns},
                                      {kind::scales, "weight_scale", "", side::scale_rows}};
constexpr part_form awq_words[] = {{kind::codes, "qweight", "I32", side::columns, side::row_words},
                                   {kind::zeros, "qzeros", "I32", side::groups, side::row_words},
                                   {kind::scales, "scales", "", side::groups, side::rows}};
constexpr part_form gptq_words[] = {{kind::codes, "qweight", "I32", side::column_words, side::rows},
                                    {kind::zeros, "qzeros", "I32", side::groups, side::row_words},
                                    {kind::scales, "scales", "", side::groups, side::rows},
                                    {kind::order, "g_idx", "I32", side::columns}};
constexpr part_form mlx_words[] = {{kind::codes, "weight", "U32", side::rows, side::column_words},
                                   {kind::scales, "scales", "", side::rows, side::groups},
                                   {kind::zeros, "biases", "", side::rows, side::groups}};
constexpr part_form mlx_blocks[] = {{kind::codes, "weight", "U32", side::rows, side::column_words},
                                    {kind::scales, "scales", "U8", side::rows, side::groups}};

constexpr scale_type of_floats = scale_type::f32;  // stands for the type of each weight's floats

/// The schemes with a name of their own. Weights of those whose activations are quantized need no calibration: their scales are dynamic.
std::vector<scheme> named_schemes() {
    const auto ct = [](const char* name, const char* format, const layout& how, std::string_view algorithm, std::string_view activations,
                       std::span<const part_form> parts) {
        const bool own = how.scale == of_floats;
        return scheme{"compressed-tensors", name, format, how, own, how.zero == zero_type::none, algorithm, activations, parts};
    };
    const auto rows = [](element codes) { return layouts::bytes(codes, 1, 0, of_floats, arithmetic::scale); };
    const auto words = [](int bits, bool zeros) { return layouts::compressed_tensors_int(bits, 128, of_floats, zeros); };
    return {
        ct("W4A16", "int4", words(4, false), "pack-quantized", "", packed_integers),
        ct("W4A16_ASYM", "int4", words(4, true), "pack-quantized", "", packed_integers),
        ct("W8A16", "int8", words(8, false), "pack-quantized", "", packed_integers),
        ct("W8A8", "int8", rows(element::signed_integer), "int-quantized", "token", scaled_int8),
        ct("FP8_DYNAMIC", "fp8", rows(element::e4m3), "float-quantized", "token", scaled_fp8),
        ct("FP8_BLOCK", "fp8", layouts::bytes(element::e4m3, 128, 128, of_floats, arithmetic::scale), "float-quantized", "group",
           scaled_fp8),
        ct("NVFP4A16", "nvfp4", layouts::compressed_tensors_nvfp4, "nvfp4-pack-quantized", "", packed_fp4),
        ct("MXFP4A16", "mxfp4", layouts::compressed_tensors_mxfp4, "mxfp4-pack-quantized", "", packed_fp4),
        ct("MXFP8A16", "mxfp8_e4m3", layouts::compressed_tensors_mxfp8, "mxfp8-quantized", "", scaled_fp8),
        {"modelopt", "nvfp4", "nvfp4", layouts::modelopt_nvfp4, false, true, "W4A16_NVFP4", "", modelopt_fp4},
        {"modelopt", "fp8", "fp8", layouts::bytes(element::e4m3, 1, 0, scale_type::f32, arithmetic::scale), false, true,
         "FP8_PER_CHANNEL_PER_TOKEN", "", modelopt_fp8},
        {"mlx", "mxfp4", "mxfp4", layouts::mlx_mxfp4, false, true, "mxfp4", "", mlx_blocks},
        {"mlx", "mxfp8", "mxfp8_e4m3", layouts::mlx_mxfp8, false, true, "mxfp8", "", mlx_blocks},
        {"mlx", "nvfp4", "nvfp4", layouts::mlx_nvfp4, false, true, "nvfp4", "", mlx_blocks},
    };
}

/// A system whose schemes are a width and a group.
struct numbered_scheme {
    std::string_view system;
    std::initializer_list<int> bits;
    std::initializer_list<int> groups;  ///< empty: any
};
const numbered_scheme numbered_schemes[] = {{"awq", {4}, {}}, {"gptq", {2, 3, 4, 8}, {}}, {"mlx", {2, 3, 4, 5, 6, 8}, {32, 64, 128}}};

std::string lower(std::string_view s) {
    std::string low(s);
    std::ranges::transform(low, low.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    return low;
}
std::string joined(const std::vector<std::string>& words, std::string_view last) {
    std::string all;
    for (std::size_t i = 0; i < words.size(); ++i)
        all += (i == 0 ? "" : i + 1 < words.size() ? ", " : " " + std::string(last) + " ") + words[i];
    return all;
}
std::string joined(std::initializer_list<int> numbers) {
    std::vector<std::string> words;
    for (const int n : numbers) words.push_back(std::to_string(n));
    return joined(words, "or");
}

/// "4,128" as two numbers.
std::optional<std::pair<int, int>> two_numbers(std::string_view text) {
    int bits = 0, group = 0;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, bits);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',') return std::nullopt;
    const auto second = std::from_chars(first.ptr + 1, end, group);
    if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
    return std::pair(bits, group);
}

scheme numbered(const numbered_scheme& s, int bits, int group, const std::string& text) {
    if (std::ranges::find(s.bits, bits) == s.bits.end())
        throw error("--to " + shown(text) + ": " + std::string(s.system) + " has codes of " + joined(s.bits) + " bits");
    if (s.groups.size() != 0 ? std::ranges::find(s.groups, group) == s.groups.end() : group < 8 || group > 1 << 16 || group % 8 != 0)
        throw error("--to " + shown(text) + ": " + std::string(s.system) + " has groups of " +
                    (s.groups.size() != 0 ? joined(s.groups) : "a multiple of 8") + " values");
    scheme made{};
    made.system = s.system, made.name = std::to_string(bits) + "," + std::to_string(group), made.format = "int" + std::to_string(bits);
    if (s.system == "awq") made.how = layouts::awq(group), made.symmetric = false, made.algorithm = "gemm", made.parts = awq_words;
    else if (s.system == "gptq") made.how = layouts::gptq(bits, group, true), made.algorithm = "gptq", made.parts = gptq_words;
    else
        made.how = layouts::mlx_affine(bits, group, of_floats), made.scales_as_floats = true, made.algorithm = "affine",
        made.parts = mlx_words;
    return made;
}

}  // namespace

std::vector<std::string> scheme_words() {
    std::vector<std::string> words;
    for (const scheme& s : named_schemes()) words.push_back(s.text());
    for (const numbered_scheme& s : numbered_schemes) words.push_back(std::string(s.system) + ":BITS,GROUP");
    return words;
}

scheme scheme_named(std::string_view text) {
    const std::string asked = lower(text);
    for (scheme& s : named_schemes())
        if (asked == lower(s.text())) return std::move(s);
    for (const numbered_scheme& s : numbered_schemes)
        if (asked.starts_with(std::string(s.system) + ":"))
            if (const auto numbers = two_numbers(std::string_view(asked).substr(s.system.size() + 1)))
                return numbered(s, numbers->first, numbers->second, std::string(text));
    std::string why = "--to " + shown(text) + " names no scheme of a system; " + joined(scheme_words(), "and") + " are known";
    if (asked == "compressed-tensors:fp8" || asked == "compressed-tensors:nvfp4")
        why += ". Scales of activations that lie in the file come from calibration: " +
               std::string(asked.ends_with("fp8") ? "FP8_DYNAMIC" : "NVFP4A16") + " has the same codes without them";
    throw error(why);
}

namespace {

/// Modules that systems leave floats by default, as globs of their names: heads, what looks at pictures, predictors of further tokens, and
/// projections into single numbers. MLX leaves routers alone, and quantizes embeddings and heads like the rest.
constexpr std::string_view routers[] = {"gate", "*.gate", "*router*", "*shared_expert_gate"};
constexpr std::string_view others[] = {
    "*lm_head*",      "output",         "*output_layer",  "*proj_out", "score",      "classifier",
    "*vision_tower*", "*vision_model*", "*embed_vision*", "visual.*",  "*.visual.*", "mtp.*",
    "*.mtp.*",        "*in_proj_a",     "*in_proj_b",     "*conv1d",   "*norm",      "*multi_modal_projector*"};
/// Of the last part of a name.
constexpr std::string_view embeddings[] = {"*embed*", "wte", "wpe", "relative_attention_bias"};

bool any_fits(std::span<const std::string_view> globs, std::string_view name) {
    return std::ranges::any_of(globs, [&](std::string_view glob) { return fits(glob, name); });
}
std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }
bool is_embedding(std::string_view module) { return any_fits(embeddings, last_part(module)); }
bool left_by_default(const scheme& s, std::string_view module) {
    return any_fits(routers, module) || (s.system != "mlx" && (any_fits(others, module) || is_embedding(module)));
}

std::string module_of(const weight& w) { return w.name.substr(0, w.name.size() - std::string_view(".weight").size()); }

std::optional<scale_type> float_type(std::string_view type) {
    if (type == "F32") return scale_type::f32;
    if (type == "F16") return scale_type::f16;
    if (type == "BF16") return scale_type::bf16;
    return std::nullopt;
}
std::string_view type_of(scale_type t) {
    return t == scale_type::f32    ? "F32"
           : t == scale_type::f16  ? "F16"
           : t == scale_type::bf16 ? "BF16"
           : t == scale_type::e4m3 ? "F8_E4M3"
                                   : "U8";
}

class template_maker {
  public:
    template_maker(const checkpoint& c, const scheme& s, const requests& asked, std::vector<std::string>& notes)
        : c_(c), s_(s), asked_(asked), notes_(notes), source_floats_(usual_floats()) {}

    scheme_template make() {
        describe_system();
        find_own_descriptions();
        std::map<int, const weight*> owner, first;
        for (const weight& w : c_.weights) {
            for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
                if (part != weight::none) owner[part] = &w;
            first[w.codes] = &w;
        }
        for (int i = 0; i < static_cast<int>(c_.tensors.size()); ++i) {
            const stored_tensor& t = c_.tensors[static_cast<std::size_t>(i)];
            if (dropped_.contains(t.name)) continue;
            if (!owner.contains(i)) add(t.name, t.type, t.shape);
            else if (const auto w = first.find(i); w != first.end()) put(*w->second);
        }
        std::string unfit;
        for (const auto& [why, of] : unfit_) {
            unfit = of.first + (of.second == 1 ? "" : " (and likewise " + std::to_string(of.second - 1) + " more)") + ": " + why;
            notes_.push_back(unfit + "; it stays a float");
        }
        if (!any_) throw error(c_.path.string() + " has no matrix that " + s_.text() + " quantizes" + (unfit.empty() ? "" : "; " + unfit));
        tell_defaults();
        made_.source = c_;
        std::erase_if(made_.source.weights, [&](const weight& w) { return dropped_.contains(w.name); });
        return std::move(made_);
    }

  private:
    void describe_system() {
        checkpoint& like = made_.like;
        like.path = s_.text();
        like.system = s_.system;
        like.config.symmetric = s_.symmetric;
        like.metadata = s_.system == "mlx" ? R"("format":"mlx")" : R"("format":"pt")";
        if (s_.system != "mlx") like.config.excluded.push_back("lm_head");  // also where it is tied and has no tensor
    }
    /// The type that most matrices of floats have.
    std::string_view usual_floats() const {
        std::map<std::string_view, std::size_t> count;
        for (const weight& w : c_.weights)
            if (const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w.codes)]; !w.quantized && float_type(t.type)) ++count[t.type];
        const auto most = std::ranges::max_element(count, {}, [](const auto& of_type) { return of_type.second; });
        return most == count.end() ? "BF16" : most->first;
    }
    /// Tensors that say how the source is quantized, and mean nothing beside other codes.
    void find_own_descriptions() {
        std::set<std::string, std::less<>> names;
        for (const stored_tensor& t : c_.tensors) names.insert(t.name);
        for (const weight& w : c_.weights) {
            if (!w.quantized || !w.name.ends_with("weight")) continue;
            const std::string base = w.name.substr(0, w.name.size() - 6);
            if (w.input_factor != weight::none)
                dropped_.insert(c_.tensors[static_cast<std::size_t>(w.input_factor)].name);  // multiplied in
            for (const char* name : {"input_scale", "input_global_scale", "input_zero_point", "weight_shape", "weight_g_idx", "g_idx"})
                if (names.contains(base + name)) dropped_.insert(base + name);
        }
    }

    int add(const std::string& name, std::string_view type, std::vector<std::uint64_t> shape, std::span<const std::byte> data = {}) {
        made_.like.tensors.push_back({name, std::string(type), std::move(shape), data});
        return static_cast<int>(made_.like.tensors.size()) - 1;
    }

    /// What the requests say about a weight; "" where none does.
    std::string asked_of(const weight& w) const {
        std::string format;
        for (const auto& [glob, of_glob] : asked_.rules)
            if (fits(glob, w.name) || fits(glob + ".weight", w.name)) format = of_glob;
        return lower(format);
    }

    void put(const weight& w) {
        const std::string format = asked_of(w);
        const bool is_module = w.name.ends_with(".weight") && w.shape.size() == 2 && w.elements() != 0;
        if (!format.empty()) {
            std::string_view type = format == "f32" || format == "fp32" || format == "float32"   ? "F32"
                                    : format == "f16" || format == "fp16" || format == "float16" ? "F16"
                                    : format == "bf16" || format == "bfloat16"                   ? "BF16"
                                                                                                 : "";
            if (!type.empty()) return keep(w, type, is_module);
            if (format != lower(s_.text()) && format != lower(s_.name))
                throw error(w.name + ": format " + format + " has no place beside --to " + s_.text() +
                            "; f32, f16 and bf16 leave a tensor a float, and " + s_.name + " quantizes it");
            const std::string why = why_not(w);
            if (!why.empty()) throw error(w.name + " cannot be " + s_.text() + ": " + why);
            return quantize(w);
        }
        if (!is_module) return keep(w, "", false);
        if (left_by_default(s_, module_of(w))) {
            ++left_[std::string(last_part(module_of(w)))];
            return keep(w, "", true);
        }
        if (const std::string why = why_not(w); !why.empty()) {
            auto& of = unfit_[why];
            if (of.second++ == 0) of.first = w.name;
            return keep(w, "", true);
        }
        quantize(w);
    }

    /// Leaves a weight a float of `type`, or of its own.
    void keep(const weight& w, std::string_view type, bool is_module) {
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w.codes)];
        if (type.empty()) type = w.quantized ? source_floats_ : std::string_view(t.type);
        weight left = w;
        left.codes = add(w.name, type, w.shape), left.format = lower(type), left.quantized = false;
        left.scales = left.zeros = left.global = left.group_of = weight::none;
        made_.like.weights.push_back(std::move(left));
        if (!is_module) return;
        const std::string module = module_of(w);
        auto& excluded = made_.like.config.excluded;
        const bool expected = s_.system == "mlx" || !is_embedding(module);  // a reader looks for codes there
        if (expected && std::ranges::find(excluded, module) == excluded.end()) excluded.push_back(module);
    }

    layout layout_of(const weight& w) const {
        layout how = s_.how;
        if (!s_.scales_as_floats) return how;
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w.codes)];
        how.scale = *float_type(!w.quantized && float_type(t.type) ? std::string_view(t.type) : source_floats_);
        return how;
    }
    /// Why the scheme does not take a weight; "" where it does.
    std::string why_not(const weight& w) const {
        if (!w.name.ends_with(".weight") || w.shape.size() != 2) return "it is no matrix of a module";
        const auto rows = w.shape[0], columns = w.shape[1];
        const auto bits = static_cast<std::uint64_t>(s_.how.bits), group = static_cast<std::uint64_t>(s_.how.group_columns);
        if (rows == 0 || columns == 0) return "it is empty";
        if (group != 0 && columns % group != 0)
            return "rows of " + std::to_string(columns) + " values are no whole groups of " + std::to_string(group);
        const auto tall = static_cast<std::uint64_t>(s_.how.group_rows);
        if (tall > 1 && rows % tall != 0) return std::to_string(rows) + " rows are no whole blocks of " + std::to_string(tall);
        const bool across = s_.how.zero == zero_type::packed_words || s_.how.zero == zero_type::packed_words_m1;
        if (across && rows * bits % 32 != 0)
            return std::to_string(rows) + " rows of " + std::to_string(bits) + " bits are no whole words of 32";
        if (s_.how.order == code_order::columns && columns * bits % 32 != 0)
            return std::to_string(columns) + " columns of " + std::to_string(bits) + " bits are no whole words of 32";
        return "";
    }

    void quantize(const weight& w) {
        any_ = true;
        std::erase(made_.like.config.excluded, module_of(w));  // lm_head, where a request names it
        weight made;
        made.name = w.name, made.shape = w.shape, made.format = s_.format, made.quantized = true, made.how = layout_of(w);
        made.matrix = {static_cast<std::size_t>(w.shape[0]), static_cast<std::size_t>(w.shape[1])};
        for (const part_form& p : s_.parts) {
            if (p.what == kind::zeros && made.how.zero == zero_type::none) continue;
            if (p.what == kind::global && made.how.global == global_type::none) continue;
            const std::string name = module_of(w) + "." + std::string(p.name);
            std::vector<std::uint64_t> shape;
            for (const side each : {p.first, p.second})
                if (each != side::none) shape.push_back(length_of(each, made));
            const int number = add(name, p.type.empty() ? type_of(made.how.scale) : p.type, shape,
                                   p.what == kind::shape   ? shape_data(made)
                                   : p.what == kind::order ? order_data(made)
                                                           : std::span<const std::byte>());
            if (p.what == kind::codes) made.codes = number;
            if (p.what == kind::scales) made.scales = number;
            if (p.what == kind::zeros) made.zeros = number;
            if (p.what == kind::global) made.global = number;
        }
        made_.like.weights.push_back(std::move(made));
    }

    static std::uint64_t length_of(side s, const weight& w) {
        const auto bits = static_cast<std::uint64_t>(w.how.bits);
        switch (s) {
            case side::none:
            case side::one: return 1;
            case side::two: return 2;
            case side::rows: return w.matrix.rows;
            case side::columns: return w.matrix.columns;
            case side::groups: return groups_of(w.how, w.matrix);
            case side::scale_rows: return scale_rows_of(w.how, w.matrix);
            case side::row_words: return divide_up(w.matrix.rows * bits, 32);
            case side::column_words: return divide_up(w.matrix.columns * bits, 32);
            case side::column_bytes: return divide_up(w.matrix.columns * bits, 8);
        }
        return 0;
    }
    std::span<const std::byte> kept(const void* data, std::size_t bytes) {
        std::vector<std::byte>& own = made_.made.emplace_back(bytes);
        std::memcpy(own.data(), data, bytes);
        return own;
    }
    std::span<const std::byte> shape_data(const weight& w) {
        const std::int64_t shape[] = {static_cast<std::int64_t>(w.matrix.rows), static_cast<std::int64_t>(w.matrix.columns)};
        return kept(shape, sizeof shape);
    }
    /// The group of each column, in order.
    std::span<const std::byte> order_data(const weight& w) {
        std::vector<std::int32_t> groups(w.matrix.columns);
        for (std::size_t k = 0; k < groups.size(); ++k)
            groups[k] = static_cast<std::int32_t>(k / static_cast<std::size_t>(w.how.group_columns));
        return kept(groups.data(), groups.size() * sizeof groups[0]);
    }

    /// "embed_tokens, lm_head and 48 x gate stay floats".
    void tell_defaults() {
        std::vector<std::string> words;
        for (const auto& [name, count] : left_) words.push_back((count == 1 ? "" : std::to_string(count) + " x ") + name);
        if (!words.empty())
            notes_.push_back(joined(words, "and") + (left_.size() == 1 && left_.begin()->second == 1 ? " stays a float" : " stay floats") +
                             ", as " + s_.text() + " leaves such by default; --tensor GLOB=" + s_.name + " quantizes them");
    }

    const checkpoint& c_;
    const scheme& s_;
    const requests& asked_;
    std::vector<std::string>& notes_;
    std::string_view source_floats_;
    std::set<std::string> dropped_;
    std::map<std::string, std::size_t> left_;
    std::map<std::string, std::pair<std::string, std::size_t>> unfit_;  ///< why: the first of such weights, and how many there are
    bool any_ = false;
    scheme_template made_;
};

}  // namespace

scheme_template template_of(const checkpoint& c, const scheme& s, const requests& asked, std::vector<std::string>& notes) {
    if (c.kind != container::safetensors)
        throw error(c.path.string() + ": --to is for .safetensors, whose tensors have the names that " + std::string(s.system) + " reads");
    if (asked.like) throw error("--to " + s.text() + " and --like " + asked.like->string() + " both say what weights become; give one");
    if (!asked.format.empty())
        throw error("--to " + s.text() + " says what every matrix becomes; leave --format " + asked.format +
                    " out, or name tensors: --tensor GLOB=" + asked.format);
    return template_maker(c, s, asked, notes).make();
}

}  // namespace qk::checkpoint
