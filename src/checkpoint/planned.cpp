// SPDX-License-Identifier: Apache-2.0
// Plans what each weight becomes: copied as it is, its codes moved to another layout, or decoded and encoded again.
#include "planned.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace qk::checkpoint {
namespace {

std::function<block_quantizer(ggml_type)>& more_quantizers() {
    static std::function<block_quantizer(ggml_type)> more;
    return more;
}

matrix_quantizer& matrix_rule() {
    static matrix_quantizer rule;
    return rule;
}

std::string lower(std::string s) {
    std::ranges::transform(s, s.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    return s;
}

/// The types of single numbers that both kinds of files have.
std::optional<scale_type> plain_type(std::string_view format) {
    if (format == "f32" || format == "fp32" || format == "float32") return scale_type::f32;
    if (format == "f16" || format == "fp16" || format == "float16") return scale_type::f16;
    if (format == "bf16" || format == "bfloat16") return scale_type::bf16;
    return std::nullopt;
}
std::string type_name(scale_type t, bool gguf) {
    const std::string name = t == scale_type::f32 ? "F32" : t == scale_type::f16 ? "F16" : "BF16";
    return gguf ? lower(name) : name;
}

/// Appends floats in a plain type.
std::vector<std::byte> stored_floats(scale_type type, std::span<const float> x) {
    const auto width = static_cast<std::size_t>(bits_of(type) / 8);
    std::vector<std::byte> out(x.size() * width);
    if (type == scale_type::f32) std::memcpy(out.data(), x.data(), out.size());
    else
        for (std::size_t i = 0; i < x.size(); ++i) {
            const std::uint32_t bits = layout_parts::store_scale(type, x[i]).bits;
            std::memcpy(out.data() + i * width, &bits, width);
        }
    return out;
}

class planner {
  public:
    planner(const checkpoint& c, const checkpoint* like, const requests& asked, bool gguf, std::vector<std::string>& notes)
        : c_(c), like_(like), asked_(asked), gguf_(gguf), notes_(notes) {}

    std::vector<planned_tensor> plan() {
        for (const auto& [glob, format] : asked_.rules)
            if (std::ranges::none_of(c_.weights, [&](const weight& w) { return named_by(glob, w); }))
                throw error("no weight of " + c_.path.string() + " fits '" + glob + "', for which format " + format + " is asked");
        if (like_ != nullptr) return as_like();
        std::map<int, const weight*> by_codes;
        for (const weight& w : c_.weights) by_codes[w.codes] = &w;
        const std::map<int, const weight*> owner = owners_in(c_);
        std::set<const weight*> changed;
        for (const weight& w : c_.weights)
            if (const std::string format = format_for(w); !format.empty()) change(w, format, changed);
        note_other_blocks();
        for (int i = 0; i < static_cast<int>(c_.tensors.size()); ++i) {
            const auto found = owner.find(i);
            if (found == owner.end() || !changed.contains(found->second)) copy(c_.tensors[static_cast<std::size_t>(i)]);
            else if (by_codes.contains(i))
                for (planned_tensor& t : replaced_[found->second]) out_.push_back(std::move(t));
        }
        return std::move(out_);
    }

  private:
    /// The weight that each stored tensor is a part of.
    static std::map<int, const weight*> owners_in(const checkpoint& c) {
        std::map<int, const weight*> owner;
        for (const weight& w : c.weights)
            for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
                if (part != weight::none) owner[part] = &w;
        return owner;
    }
    void note(const std::string& sentence) {
        if (std::ranges::find(notes_, sentence) == notes_.end()) notes_.push_back(sentence);
    }

    static bool named_by(const std::string& glob, const weight& w) { return fits(glob, w.name) || fits(glob + ".weight", w.name); }
    /// The format asked for a weight; "" leaves it as it is.
    std::string format_for(const weight& w) const {
        std::string format = w.shape.size() >= 2 ? asked_.format : "";
        for (const auto& [glob, of_glob] : asked_.rules)
            if (named_by(glob, w)) format = of_glob;
        if (format.empty() && gguf_ && c_.kind != container::gguf)
            format = w.quantized ? std::string("same") : w.shape.size() < 2 ? "f32" : w.format;
        return format;
    }

    void copy(const stored_tensor& t) {
        planned_tensor p{t.name, t.type, t.shape, t.data.size(), {}};
        if (gguf_ && c_.kind == container::safetensors) {
            p.type = lower(t.type);
            if (!ggml_type_named(p.type) || t.shape.size() > 4)
                return note(t.name + " (" + t.type + " " + text_of(t.shape) + ") has no place in a .gguf and is left out");
        }
        if (!gguf_ && c_.kind == container::gguf) {
            std::ranges::transform(p.type, p.type.begin(), [](unsigned char ch) { return static_cast<char>(std::toupper(ch)); });
            if (bits_of_type(p.type) == 0)
                throw error(t.name + " has type " + t.type +
                            ", which safetensors does not have; give --format f32, f16, bf16 or a system's format");
            if (t.swapped) return swapped(t, p);
        }
        p.produce = [&c = c_, &t](const byte_sink& sink) {
            constexpr std::size_t at_once = std::size_t{8} << 20;
            for (std::size_t i = 0; i < t.data.size(); i += at_once) {
                const auto part = t.data.subspan(i, std::min(at_once, t.data.size() - i));
                sink(part);
                if (t.file < c.files.size()) c.files[t.file]->release(part);
            }
        };
        out_.push_back(std::move(p));
    }
    void swapped(const stored_tensor& t, planned_tensor p) {
        const auto width = static_cast<std::size_t>(bits_of_type(p.type) / 8);
        p.produce = [&t, width](const byte_sink& sink) {
            std::vector<std::byte> turned(t.data.begin(), t.data.end());
            for (std::size_t i = 0; i + width <= turned.size(); i += width)
                std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(i), turned.begin() + static_cast<std::ptrdiff_t>(i + width));
            sink(turned);
        };
        out_.push_back(std::move(p));
    }

    static std::function<void(const byte_sink&)> copier(const stored_tensor& t) {
        return [&t](const byte_sink& sink) { sink(t.data); };
    }
    /// What describes a quantized weight beside its codes and scales, and is not made of them: compressed-tensors' shapes, the usual g_idx.
    bool describes(const stored_tensor& t) const {
        if (t.type != "I32" && t.type != "I64") return false;
        for (const std::string_view ending : {"_shape", "_g_idx", "g_idx"})
            if (t.name.ends_with(ending)) {
                const std::string base = t.name.substr(0, t.name.size() - ending.size());
                return c_.find_weight(base) != nullptr || c_.find_weight(base + "weight") != nullptr;
            }
        return false;
    }

    /// The order of the other checkpoint, and its layouts.
    std::vector<planned_tensor> as_like() {
        if (std::ranges::none_of(like_->weights, [&](const weight& v) { return c_.find_weight(v.name) != nullptr; }))
            throw error("no weight of " + c_.path.string() + " has the name of one in " + like_->path.string() + " (" +
                        (c_.weights.empty() ? std::string("none") : c_.weights.front().name) + " here, " +
                        (like_->weights.empty() ? std::string("none") : like_->weights.front().name) +
                        " there), so that --like says nothing about it" +
                        (c_.kind != like_->kind ? "; between Hugging Face's names and those of a .gguf llama.cpp's converter stands" : ""));
        const std::map<int, const weight*> owner = owners_in(*like_);
        for (int i = 0; i < static_cast<int>(like_->tensors.size()); ++i) {
            const stored_tensor& model = like_->tensors[static_cast<std::size_t>(i)];
            const auto found = owner.find(i);
            if (found == owner.end()) {
                if (const stored_tensor* own = c_.find(model.name)) copy(*own);
                else if (describes(model)) out_.push_back({model.name, model.type, model.shape, model.data.size(), copier(model)});
                else note(model.name + " is not in " + c_.path.string() + " and is left out");
                continue;
            }
            const weight& v = *found->second;
            const weight* w = c_.find_weight(v.name);
            if (w == nullptr) {
                note(v.name + " is not in " + c_.path.string() + " and is left out");
                continue;
            }
            like_part(*w, v, i, model);
        }
        for (const weight& w : c_.weights)
            if (like_->find_weight(w.name) == nullptr) {
                note(w.name + " is not in " + like_->path.string() + " and stays as it is");
                for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
                    if (part != weight::none) copy(c_.tensors[static_cast<std::size_t>(part)]);
            }
        return std::move(out_);
    }

    bool same(const weight& w, const weight& v) const {
        return w.quantized == v.quantized && w.stack == v.stack && w.matrix.rows == v.matrix.rows && w.matrix.columns == v.matrix.columns &&
               c_.big_endian == like_->big_endian &&
               (w.quantized ? w.how == v.how && w.transposed == v.transposed : w.format == v.format) &&
               (w.scales == weight::none) == (v.scales == weight::none) && (w.group_of == weight::none) == (v.group_of == weight::none);
    }

    void like_part(const weight& w, const weight& v, int part, const stored_tensor& model) {
        if (w.problem) throw error(c_.path.string() + ": " + w.problem->sentence);
        if (v.problem) throw error(like_->path.string() + ": " + v.problem->sentence);
        if (same(w, v)) {
            const int own = part == v.codes    ? w.codes
                            : part == v.scales ? w.scales
                            : part == v.zeros  ? w.zeros
                            : part == v.global ? w.global
                                               : w.group_of;
            stored_tensor const& t = c_.tensors[static_cast<std::size_t>(own)];
            copy(t);
            out_.back().name = model.name;
            return;
        }
        if (w.shape != v.shape && !(w.transposed != v.transposed))
            throw error(w.name + " is " + text_of(w.shape) + " here and " + text_of(v.shape) + " in " + like_->path.string());
        planned_tensor p{model.name, model.type, model.shape, model.data.size(), {}};
        if (!v.quantized) {
            const auto type = plain_type(v.format);
            if (!type)
                throw error(v.name + " is " + v.format + " in " + like_->path.string() + ", which is not written from other formats");
            p.produce = plain_producer(w, *type);
        } else p.produce = like_producer(w, v, part);
        out_.push_back(std::move(p));
    }

    /// Whether codes can go to another layout without becoming floats.
    bool movable(const weight& w, const layout& to, std::uint64_t stack, matrix_shape matrix) const {
        return w.quantized && compare_layouts(w.how, to).possible && w.group_of == weight::none && !c_.big_endian &&
               stack * matrix.rows == w.stack * w.matrix.rows && matrix.columns == w.matrix.columns;
    }
    std::function<void(const byte_sink&)> like_producer(const weight& w, const weight& v, int part) {
        const int plane = part == v.codes ? 0 : part == v.scales ? 1 : part == v.zeros ? 2 : part == v.global ? 3 : 4;
        const bool by_rule = !movable(w, v.how, v.stack, v.matrix) && v.how.order != code_order::ggml_blocks && w.shape == v.shape;
        if (!by_rule) return moved_producer(w, v.how, v.stack, v.matrix, plane);
        if (plane == 0) note(w.name + " is quantized anew, by the rule of " + like_->system);
        if (plane == 4) return copier(like_->tensors[static_cast<std::size_t>(v.group_of)]);
        return [&c = c_, &like = *like_, &w, &v, system = like_->system, plane](const byte_sink& sink) {
            const bool symmetric = like.config.symmetric.value_or(false);
            const std::span<const std::byte> group_of =
                v.group_of == weight::none ? std::span<const std::byte>() : like.tensors[static_cast<std::size_t>(v.group_of)].data;
            std::vector<float> values;
            const std::size_t rows = v.matrix.rows, columns = v.matrix.columns;
            c.decode(w, [&](std::span<const float> some) {
                values.insert(values.end(), some.begin(), some.end());
                while (values.size() >= rows * columns && rows * columns != 0) {
                    std::vector<float> matrix(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rows * columns));
                    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rows * columns));
                    if (v.transposed) matrix = turned(matrix, columns, rows);
                    auto made = quantized_like(system, symmetric, v, group_of, matrix);
                    if (!made && matrix_rule() && group_of.empty()) made = matrix_rule()(system, v, matrix);
                    if (!made) throw error(w.name + ": no rule is known that makes " + v.format + " as " + system + " has it");
                    const plane_sizes n = sizes_of(v.how, v.matrix);
                    const std::span<const std::byte> bytes = plane == 0   ? made->codes
                                                             : plane == 1 ? made->scales
                                                             : plane == 2 ? made->zeros
                                                                          : std::as_bytes(std::span(&made->global, 1));
                    const std::size_t needed = plane == 0 ? n.codes : plane == 1 ? n.scales : plane == 2 ? n.zeros : 4;
                    if (bytes.size() != needed)
                        throw error(w.name + ": the rule of " + system + " packs " + v.format + " otherwise than this file");
                    sink(bytes);
                }
            });
        };
    }
    static std::vector<float> turned(const std::vector<float>& x, std::size_t rows, std::size_t columns) {
        std::vector<float> y(x.size());
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
        return y;
    }

    std::function<void(const byte_sink&)> plain_producer(const weight& w, scale_type type) const {
        return [&c = c_, &w, type](const byte_sink& sink) {
            c.decode(w, [&](std::span<const float> part) { sink(stored_floats(type, part)); });
        };
    }

    /// Codes, scales, zeros or global scale (plane 0 to 3) of a weight in another layout.
    std::function<void(const byte_sink&)> moved_producer(const weight& w, const layout& to, std::uint64_t stack, matrix_shape matrix,
                                                         int plane) {
        const layout_changes changes = compare_layouts(w.how, to);
        const bool blocks = to.order == code_order::ggml_blocks;
        if (!movable(w, to, stack, matrix) || plane == 4) {
            if (blocks)
                if (const block_quantizer quantize = quantizer_of(to.block)) return quantized_producer(w, to.block, quantize);
            std::string why = w.name + " is " + w.format + " here, and its codes cannot be moved to the layout that is asked for";
            if (w.quantized && changes.count > 0) why += ": " + std::string(changes.says[0]);
            if (!w.quantized) why = w.name + " is " + w.format + ", and no rule is known that quantizes it as asked";
            throw error(why);
        }
        for (int k = 0; k < changes.count; ++k) note(w.format + ": " + std::string(changes.says[static_cast<std::size_t>(k)]));
        return [this_c = &c_, &w, to, plane](const byte_sink& sink) {
            const plane_sizes n = sizes_of(to, w.matrix);
            std::vector<std::uint8_t> scratch(w.matrix.columns);
            for (std::uint64_t m = 0; m < w.stack; ++m) {
                std::vector<std::byte> codes(n.codes), scales(n.scales), zeros(n.zeros);
                float global = 1;
                const repack_result made = repack(w.how, w.matrix, planes_of(*this_c, w, m), to, {codes, scales, zeros, &global}, scratch);
                if (made.scales_rounded != 0)
                    throw error(w.name + ": " + std::to_string(made.scales_rounded) +
                                " scales do not exist in the other layout; its values must be quantized anew");
                if (made.zeros_lost != 0)
                    throw error(w.name + ": " + std::to_string(made.zeros_lost) + " zero points do not fit the other layout");
                if (plane < 3) sink(plane == 0 ? codes : plane == 1 ? scales : zeros);
                else sink(std::as_bytes(std::span(&global, 1)));
            }
        };
    }
    std::function<void(const byte_sink&)> quantized_producer(const weight& w, ggml_type type, block_quantizer quantize) const {
        const auto importance = [&w, type, asked = asked_.importance] {
            return importance_rows(w, asked ? asked(w, type) : std::vector<float>());
        };
        importance();  // a wrong one is an error before anything is written
        return [&c = c_, &w, type, quantize = std::move(quantize), importance, threads = asked_.threads](const byte_sink& sink) {
            const ggml_facts f = facts_of(type);
            const importance_rows columns = importance();
            std::uint64_t before = 0;  // rows
            std::vector<float> rest;
            std::vector<std::byte> blocks;
            const std::size_t row = w.shape.empty() ? 1 : w.shape.back();
            c.decode(w, [&](std::span<const float> part) {
                rest.insert(rest.end(), part.begin(), part.end());
                const std::size_t whole = rest.size() / row * row;
                blocks.assign(whole / f.values * f.bytes, std::byte{0});
                in_parts(whole / row, threads, [&](std::size_t first, std::size_t last) {
                    for (std::size_t r = first; r < last; ++r)
                        quantize(std::span(rest).subspan(r * row, row), columns.of(before + r),
                                 std::span(blocks).subspan(r * row / f.values * f.bytes, row / f.values * f.bytes));
                });
                before += whole / row;
                sink(blocks);
                rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(whole));
            });
        };
    }

    void change(const weight& w, const std::string& asked, std::set<const weight*>& changed) {
        std::string format = lower(asked);
        if (format == "same") format = w.how.codes == element::e2m1 ? (w.how.group_columns == 16 ? "nvfp4" : "mxfp4") : "f32";
        if (w.problem) throw error(c_.path.string() + ": " + w.problem->sentence);
        if (format == w.format && !w.quantized && (!gguf_ || plain_type(format))) {
            if (gguf_ == (c_.kind == container::gguf) && !c_.big_endian) return;
        }
        if (w.shape.size() > 4 && gguf_) throw error(w.name + " has " + std::to_string(w.shape.size()) + " dimensions; GGUF has at most 4");
        if (const auto type = plain_type(format)) {
            changed.insert(&w);
            replaced_[&w].push_back({w.name, type_name(*type, gguf_), w.shape,
                                     w.elements() * static_cast<std::uint64_t>(bits_of(*type) / 8), plain_producer(w, *type)});
            return;
        }
        auto type = ggml_type_named(format);
        if (!gguf_ || !type) {
            if (const std::string hint = mix_of(format); gguf_ && !hint.empty())
                throw error(w.name + ": " + asked + " is a mix that llama.cpp's quantizer makes by the names of tensors; give --format " +
                            hint + ", and others their own by --tensor, as '*ffn_down*=q6_k', or let qk search choose");
            if (gguf_ || ggml_type_named(format))
                throw error(w.name + ": format " + asked + " is not one that a " + (gguf_ ? ".gguf" : ".safetensors") +
                            " can have here; f32, f16, bf16" + (gguf_ ? " and ggml's types are" : " are, or a file to be --like"));
            throw error(w.name + ": format " + asked +
                        " is unknown here; f32, f16 and bf16 are known, and --like FILE takes a system's layout");
        }
        type = possible_for(w, *type);
        if (w.quantized && c_.kind == container::gguf && w.how.block == *type) return;
        block(w, *type, changed);
    }

    /// The type of which llama.cpp's mix "q4_k_m" has most; "" if the name is none of a mix.
    static std::string mix_of(const std::string& format) {
        for (const std::string_view ending : {"_s", "_m", "_l", "_xl", "_moe"})
            if (format.ends_with(ending))
                if (const std::string base = format.substr(0, format.size() - ending.size()); ggml_type_named(base)) return base;
        return {};
    }
    /// A type whose blocks are 256 values is replaced where rows are whole blocks of 32 alone, by the one that llama.cpp takes there.
    ggml_type possible_for(const weight& w, ggml_type type) {
        using enum ggml_type;
        const std::uint64_t row = w.shape.empty() ? 1 : w.shape.back();
        if (row % facts_of(type).values == 0 || row % 32 != 0) return type;
        const ggml_type other = type == q4_k                                     ? q5_0
                                : type == q5_k                                   ? q5_1
                                : type == q6_k                                   ? q8_0
                                : type == q2_k || type == q3_k || type == iq4_xs ? iq4_nl
                                : type == tq1_0 || type == tq2_0                 ? q4_0
                                                                                 : type;
        if (other == type) return type;
        auto& [count, first] = other_blocks_[{type, other}];
        if (count++ == 0) first = w.name + " with " + std::to_string(row);
        return other;
    }
    void note_other_blocks() {
        for (const auto& [types, seen] : other_blocks_)
            note(std::string(facts_of(types.first).name) + ": the rows of " + std::to_string(seen.first) +
                 (seen.first == 1 ? " matrix (" : " matrices (as ") + seen.second + " values) are no whole blocks of " +
                 std::to_string(facts_of(types.first).values) + "; " + (seen.first == 1 ? "it is " : "they are ") +
                 std::string(facts_of(types.second).name) + " instead, as llama.cpp has it");
    }

    void block(const weight& w, ggml_type type, std::set<const weight*>& changed) {
        const ggml_facts f = facts_of(type);
        const layout to = layouts::ggml(type);
        const bool moves = movable(w, to, w.stack, w.matrix);
        std::vector<std::uint64_t> shape = w.shape;
        if (w.transposed && moves) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
        const std::uint64_t row = shape.empty() ? 1 : shape.back();
        if (row % f.values != 0) {
            note(w.name + ": rows of " + std::to_string(row) + " values are no whole blocks of " + std::string(f.name) +
                 "; it stays a float");
            return change(w, w.quantized || !plain_type(w.format) ? "f32" : w.format, changed);
        }
        changed.insert(&w);
        if (w.transposed && moves) note(w.name + " is stored by rows of its outputs, " + text_of(shape));
        replaced_[&w].push_back(
            {w.name, std::string(f.name), shape, w.elements() / f.values * f.bytes, moved_producer(w, to, w.stack, w.matrix, 0)});
        if (moves && w.global != weight::none) {  // llama.cpp's place for it
            const std::string name = (w.name.ends_with(".weight") ? w.name.substr(0, w.name.size() - 7) : w.name) + ".scale";
            replaced_[&w].push_back({name, "f32", {w.stack}, 4 * w.stack, [&c = c_, &w](const byte_sink& sink) {
                                         for (std::uint64_t m = 0; m < w.stack; ++m) {
                                             const float given = planes_of(c, w, m).global,
                                                         g = w.how.global == global_type::divides ? 1 / given : given;
                                             sink(std::as_bytes(std::span(&g, 1)));
                                         }
                                     }});
            note(w.format + ": each global scale is beside its weight as NAME.scale, and multiplies");
        }
    }

    const checkpoint& c_;
    const checkpoint* like_;
    const requests& asked_;
    bool gguf_;
    std::vector<std::string>& notes_;
    std::vector<planned_tensor> out_;
    std::map<const weight*, std::vector<planned_tensor>> replaced_;
    std::map<std::pair<ggml_type, ggml_type>, std::pair<std::size_t, std::string>> other_blocks_;  ///< asked, taken: how many, the first
};

}  // namespace

block_quantizer quantizer_of(ggml_type type) {
    if (type == ggml_type::f32 || type == ggml_type::f16 || type == ggml_type::bf16)
        return [type](std::span<const float> row, std::span<const float>, std::span<std::byte> blocks) {
            const auto bytes = stored_floats(type == ggml_type::f32   ? scale_type::f32
                                             : type == ggml_type::f16 ? scale_type::f16
                                                                      : scale_type::bf16,
                                             row);
            std::memcpy(blocks.data(), bytes.data(), std::min(bytes.size(), blocks.size()));
        };
    return more_quantizers() ? more_quantizers()(type) : block_quantizer();
}
void use_matrix_quantizer(matrix_quantizer rule) { matrix_rule() = std::move(rule); }
void use_block_quantizers(std::function<block_quantizer(ggml_type)> more) { more_quantizers() = std::move(more); }

std::vector<planned_tensor> plan_of(const checkpoint& c, const checkpoint* like, const requests& asked, bool gguf,
                                    std::vector<std::string>& notes) {
    return planner(c, like, asked, gguf, notes).plan();
}

std::string architecture_of(const checkpoint& c) {
    const std::filesystem::path file = (c.path.has_parent_path() ? c.path.parent_path() : ".") / "config.json";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return "unknown";
    const nlohmann::json root = parse_json(read_text(file, 64u << 20), file.string());
    const auto found = root.is_object() ? root.find("model_type") : root.end();
    return root.is_object() && found != root.end() && found->is_string() ? found->get<std::string>() : "unknown";
}

}  // namespace qk::checkpoint
