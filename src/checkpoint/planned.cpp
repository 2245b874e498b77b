// SPDX-License-Identifier: Apache-2.0
// Plans what each weight becomes: copied as it is, its codes moved to another layout, or decoded and encoded again.
#include "planned.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "remade.hpp"

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
    planner(const checkpoint& c, const checkpoint* like, const requests& asked, bool gguf, std::vector<std::string>& notes,
            std::deque<weight_change>& changes)
        : c_(c), like_(like), asked_(asked), gguf_(gguf), notes_(notes), changes_(changes) {}

    std::vector<planned_tensor> plan() {
        for (const auto& [glob, format] : asked_.rules)
            if (std::ranges::none_of(c_.weights,
                                     [&, &wanted = glob](const weight& w) { return named_by(wanted, w); }))  // clang 14 captures no binding
                throw error("no weight of " + c_.path.string() + " fits '" + glob + "', for which format " + format + " is asked");
        if (like_ != nullptr) as_like();
        else by_formats();
        for (const auto& [sentence, of] : told_)
            notes_.push_back(of.first + (of.count == 1 ? "" : " (and likewise " + std::to_string(of.count - 1) + " more)") + sentence);
        return std::move(out_);
    }

  private:
    void by_formats() {
        std::map<int, const weight*> by_codes;
        for (const weight& w : c_.weights) by_codes[w.codes] = &w;
        const std::map<int, const weight*> owner = owners_in(c_);
        std::set<const weight*> changed;
        for (const weight& w : c_.weights) {
            if (const std::string format = format_for(w); !format.empty()) change(w, format, changed);
            if (!changed.contains(&w)) kept(w);
        }
        note_other_blocks();
        std::set<int> applied;  // factors that are in the values now
        for (const weight* w : changed)
            if (w->input_factor != weight::none) applied.insert(w->input_factor), note_factor(*w);
        for (int i = 0; i < static_cast<int>(c_.tensors.size()); ++i) {
            if (applied.contains(i)) continue;
            const auto found = owner.find(i);
            if (found == owner.end() || !changed.contains(found->second)) copy(c_.tensors[static_cast<std::size_t>(i)]);
            else if (by_codes.contains(i))
                for (planned_tensor& t : replaced_[found->second]) out_.push_back(std::move(t));
        }
    }

    /// The weight that each stored tensor is a part of.
    static std::map<int, const weight*> owners_in(const checkpoint& c) {
        std::map<int, const weight*> owner;
        for (const weight& w : c.weights)
            for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
                if (part != weight::none) owner[part] = &w;
        return owner;
    }
    static void add_note(std::vector<std::string>& notes, const std::string& sentence) {
        if (std::ranges::find(notes, sentence) == notes.end()) notes.push_back(sentence);
    }
    void note(const std::string& sentence) { add_note(notes_, sentence); }
    /// Says something of one name; where others have the same said of them, it becomes one line.
    void note(const std::string& name, const std::string& sentence) {
        auto& of = told_[sentence];
        if (of.count++ == 0) of.first = name;
    }
    void kept(const weight& w) { changes_.push_back({.name = w.name, .from = w.format, .to = w.format}); }
    weight_change& begin_change(const weight& w, std::string_view to) {
        return changes_.emplace_back(weight_change{
            .name = w.name, .from = w.format, .to = std::string(to), .how = weight_change::kind::quantized, .measured = false});
    }

    void note_factor(const weight& w) {
        note(w.name + ": " + c_.tensors[static_cast<std::size_t>(w.input_factor)].name +
             " is multiplied in, for readers that do not multiply a layer's input by it");
    }
    /// Whether a weight's values take up the factor of its input: the other checkpoint has no place for it.
    bool applies_factor(const weight& w) const {
        if (w.input_factor == weight::none) return false;
        const weight* v = like_ == nullptr ? nullptr : like_->find_weight(w.name);
        return v == nullptr || v->input_factor == weight::none;
    }
    /// Returns what hands on a weight's floats as the output is to hold them. It outlives the planner.
    auto values_of(const weight& w) const {
        return [&c = c_, &w, applied = applies_factor(w)](const std::function<void(std::span<const float>)>& take) {
            if (applied) c.decode_with_factor(w, take);
            else c.decode(w, take);
        };
    }
    /// Returns what says which of a weight's numbers were lost in `format`.
    auto sayer_for(const weight& w, std::string format) const {
        return [&c = c_, &w, format = std::move(format), notes = &notes_](lost_numbers& lost) {
            const std::uint64_t beyond = beyond_float32(c.tensors[static_cast<std::size_t>(w.codes)]);
            lost.add_beyond_float32(beyond);
            lost.say(w.name, w.elements(), format,
                     beyond != 0 ? "no type that is written here has all of them"
                                 : "--tensor '" + w.name + (format == "bf16" ? "=f32'" : "=bf16'") + " keeps them",
                     *notes);
        };
    }
    /// Whether codes that are moved would lose a factor for which the other layout has no place: that of the input, or a global scale that
    /// is not 1. (In a .gguf the global scale is written beside.)
    bool loses_factor(const weight& w, const layout& to) const {
        if (applies_factor(w)) return true;
        if (w.how.global == global_type::none || to.global != global_type::none || (gguf_ && like_ == nullptr)) return false;
        for (std::uint64_t m = 0; m < w.stack; ++m)
            if (planes_of(c_, w, m).global != 1) return true;
        return false;
    }

    static bool named_by(const std::string& glob, const weight& w) { return fits(glob, w.name) || fits(glob + ".weight", w.name); }
    /// The format asked for a weight; "" leaves it as it is.
    std::string format_for(const weight& w) const {
        std::string format = w.shape.size() >= 2 ? asked_.format : "";
        for (const auto& [glob, of_glob] : asked_.rules)
            if (named_by(glob, w)) format = of_glob;
        if (format.empty() && gguf_ && c_.kind != container::gguf)
            format = w.quantized ? std::string("same") : w.shape.size() < 2 ? "f32" : w.format;
        if (format.empty() && !gguf_ && c_.kind == container::gguf && w.global != weight::none) format = w.quantized ? "f32" : w.format;
        return format;
    }

    void copy(const stored_tensor& t) {
        planned_tensor p{t.name, t.type, t.shape, t.data.size(), {}};
        if (gguf_ && c_.kind == container::safetensors) {
            p.type = lower(t.type);
            if (!ggml_type_named(p.type) || t.shape.size() > 4)
                return note(t.name, " has no place in a .gguf and is left out: " + t.type + " " + text_of(t.shape));
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

    /// Bytes that a tensor of the other checkpoint takes; those of a scheme's have no data.
    static std::uint64_t bytes_of(const stored_tensor& t) {
        return t.data.empty() ? t.elements() * bits_of_type(t.type) / 8 : t.data.size();
    }
    /// The order of the other checkpoint, and its layouts.
    void as_like() {
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
                if (const auto order = order_for(model)) out_.push_back({model.name, model.type, model.shape, bytes_of(model), *order});
                else if (describes(model)) out_.push_back({model.name, model.type, model.shape, model.data.size(), copier(model)});
                else if (const stored_tensor* own = c_.find(model.name)) copy(*own);
                else note(model.name, " is not in " + c_.path.string() + " and is left out");
                continue;
            }
            const weight& v = *found->second;
            const weight* w = c_.find_weight(v.name);
            if (w == nullptr) {
                note(v.name, " is not in " + c_.path.string() + " and is left out");
                continue;
            }
            like_part(*w, v, i, model);
        }
        std::set<int> applied;
        for (const weight& w : c_.weights)
            if (like_->find_weight(w.name) != nullptr && applies_factor(w)) applied.insert(w.input_factor), note_factor(w);
        for (const weight& w : c_.weights)
            if (like_->find_weight(w.name) == nullptr) {
                if (applied.contains(w.codes)) continue;
                note(w.name, " is not in " + like_->path.string() + " and stays as it is");
                kept(w);
                for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
                    if (part != weight::none) copy(c_.tensors[static_cast<std::size_t>(part)]);
            }
    }

    bool same(const weight& w, const weight& v) const {
        return !applies_factor(w) && w.quantized == v.quantized && w.stack == v.stack && w.matrix.rows == v.matrix.rows &&
               w.matrix.columns == v.matrix.columns && c_.big_endian == like_->big_endian &&
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
            if (part == v.codes) kept(w);
            return;
        }
        std::vector<std::uint64_t> turned = w.shape;
        if (turned.size() >= 2) std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
        if (w.shape != v.shape && !(w.transposed != v.transposed && turned == v.shape))
            throw error(w.name + " is " + text_of(w.shape) + " here and " + text_of(v.shape) + " in " + like_->path.string());
        planned_tensor p{model.name, model.type, model.shape, bytes_of(model), {}};
        if (!v.quantized) {
            const auto type = plain_type(v.format);
            if (!type)
                throw error(v.name + " is " + v.format + " in " + like_->path.string() + ", which is not written from other formats");
            p.produce = plain_producer(w, *type, begin_change(w, v.format));
        } else p.produce = like_producer(w, v, part);
        out_.push_back(std::move(p));
    }

    /// Whether codes can go to another layout without becoming floats, as far as layouts tell.
    bool movable(const weight& w, const layout& to, std::uint64_t stack, matrix_shape matrix) const {
        return w.quantized && compare_layouts(w.how, to).possible && !loses_factor(w, to) && !c_.big_endian &&
               stack * matrix.rows == w.stack * w.matrix.rows && matrix.columns == w.matrix.columns;
    }
    static std::string why_not(const weight& w, const layout& to) {
        return w.quantized ? std::string(compare_layouts(w.how, to).refusal) : std::string();
    }

    /// The other checkpoint's tensor with the groups of a weight's columns, if it has a place for one.
    const stored_tensor* place_of_order(const weight& v) const {
        if (v.group_of != weight::none) return &like_->tensors[static_cast<std::size_t>(v.group_of)];
        const std::string base = v.name.ends_with("weight") ? v.name.substr(0, v.name.size() - 6) : v.name;
        for (const std::string& name : {v.name + "_g_idx", base + "g_idx"})
            if (const stored_tensor* t = like_->find(name); t != nullptr && t->type == "I32" && t->elements() == v.matrix.columns) return t;
        return nullptr;
    }
    /// Whether one of both files has the columns of a weight in an order of its own, and this file's is written.
    bool takes_order(const weight& w, const weight& v) const {
        return (w.group_of != weight::none || v.group_of != weight::none) && place_of_order(v) != nullptr && w.stack == 1 &&
               w.how.group_columns == v.how.group_columns && movable(w, v.how, v.stack, v.matrix);
    }
    /// What makes the groups of the columns of a weight that is not named by a weight's parts.
    std::optional<std::function<void(const byte_sink&)>> order_for(const stored_tensor& place) const {
        if (!place.name.ends_with("g_idx")) return std::nullopt;
        const std::string base = place.name.substr(0, place.name.size() - 5),
                          name = base.ends_with('_') ? base.substr(0, base.size() - 1) : base + "weight";
        const weight *w = c_.find_weight(name), *v = like_->find_weight(name);
        if (w == nullptr || v == nullptr || same(*w, *v) || place_of_order(*v) != &place) return std::nullopt;
        return order_producer(*w, *v);
    }
    std::function<void(const byte_sink&)> order_producer(const weight& w, const weight& v) const {
        if (!takes_order(w, v)) return copier(*place_of_order(v));
        if (w.group_of != weight::none) return copier(c_.tensors[static_cast<std::size_t>(w.group_of)]);
        return [columns = w.matrix.columns, width = static_cast<std::size_t>(w.how.group_columns)](const byte_sink& sink) {
            std::vector<std::int32_t> usual(columns);
            for (std::size_t k = 0; k < columns; ++k) usual[k] = width == 0 ? 0 : static_cast<std::int32_t>(k / width);
            sink(std::as_bytes(std::span(usual)));
        };
    }

    std::function<void(const byte_sink&)> like_producer(const weight& w, const weight& v, int part) {
        const int plane = part == v.codes ? 0 : part == v.scales ? 1 : part == v.zeros ? 2 : part == v.global ? 3 : 4;
        if (plane == 4) return order_producer(w, v);
        const bool order = takes_order(w, v), same_floats = w.shape == v.shape;
        const int named = order ? w.group_of : v.group_of;
        remade_target to{.how = v.how,
                         .stack = v.stack,
                         .matrix = v.matrix,
                         .turned = same_floats ? v.transposed : w.transposed,
                         .movable = movable(w, v.how, v.stack, v.matrix) &&
                                    (order || (w.group_of == weight::none && v.group_of == weight::none)) &&
                                    (w.transposed == v.transposed || !same_floats),
                         .system = like_->system,
                         .symmetric = like_->config.symmetric.value_or(false),
                         .model = v.how.order == code_order::ggml_blocks ? nullptr : &v,
                         .refusal = why_not(w, v.how)};
        if (named != weight::none) to.group_of = (order ? c_ : *like_).tensors[static_cast<std::size_t>(named)].data;
        if (w.group_of != weight::none && to.refusal.empty() && !order)
            to.refusal = "the columns have an order that the other file has no place for";
        return part_producer(w, std::move(to), v.format, plane);
    }
    std::function<void(const byte_sink&)> part_producer(const weight& w, remade_target to, std::string_view format, int plane) {
        std::shared_ptr<remade_weight>& made = remade_[&w];
        if (to.how.order == code_order::ggml_blocks && asked_.importance && !to.turned) {
            to.importance = [&w, type = to.how.block, asked = asked_.importance] { return importance_rows(w, asked(w, type)); };
            to.importance();  // a wrong one is an error before anything is written
        }
        to.threads = asked_.threads;
        to.lossless = asked_.lossless, to.requantize = asked_.requantize;
        to.values = values_of(w), to.say = sayer_for(w, std::string(format));
        if (!made)
            made = std::make_shared<remade_weight>(c_, w, std::move(to), begin_change(w, format),
                                                   [&notes = notes_](const std::string& sentence) { add_note(notes, sentence); });
        return [made, plane](const byte_sink& sink) { made->produce(plane, sink); };
    }

    std::function<void(const byte_sink&)> plain_producer(const weight& w, scale_type type, weight_change& change) const {
        return [values = values_of(w), say = sayer_for(w, type_name(type, true)), type, &change,
                lossless = asked_.lossless](const byte_sink& sink) {
            lost_numbers lost;
            std::vector<float> back;
            values([&](std::span<const float> part) {
                const std::vector<std::byte> stored = stored_floats(type, part);
                if (type != scale_type::f32) {
                    back.resize(part.size());
                    for (std::size_t i = 0; i < part.size(); ++i) {
                        std::uint16_t bits;
                        std::memcpy(&bits, stored.data() + 2 * i, 2);
                        back[i] = scale_value(type, bits);
                    }
                    add_difference(change, part, back);
                    if (lost_numbers::possible(part)) lost.compare(part, back);
                }
                sink(stored);
            });
            say(lost);
            change.how = change.differs ? weight_change::kind::rounded : weight_change::kind::moved, change.measured = true;
            check_lossless(change, lossless, "");
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
            const std::string name = type_name(*type, gguf_);
            replaced_[&w].push_back({w.name, name, w.shape, w.elements() * static_cast<std::uint64_t>(bits_of(*type) / 8),
                                     plain_producer(w, *type, begin_change(w, lower(name)))});
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
        const bool moves = movable(w, to, w.stack, w.matrix) && w.group_of == weight::none;
        std::vector<std::uint64_t> shape = w.shape;
        if (w.transposed && moves) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
        const std::uint64_t row = shape.empty() ? 1 : shape.back();
        if (row % f.values != 0) {
            note(w.name,
                 ": rows of " + std::to_string(row) + " values are no whole blocks of " + std::string(f.name) + "; it stays a float");
            return change(w, w.quantized || !plain_type(w.format) ? "f32" : w.format, changed);
        }
        changed.insert(&w);
        if (w.transposed && moves) note(w.name, " is stored by rows of its outputs, " + text_of(shape));
        remade_target target{.how = to,
                             .stack = w.stack,
                             .matrix = moves ? w.matrix : matrix_shape{w.elements() / row, row},
                             .turned = moves && w.transposed,
                             .movable = moves,
                             .scale_beside = moves && w.global != weight::none,
                             .refusal = why_not(w, to)};
        if (w.group_of != weight::none && target.refusal.empty()) target.refusal = "its columns have an order of their own";
        replaced_[&w].push_back(
            {w.name, std::string(f.name), shape, w.elements() / f.values * f.bytes, part_producer(w, target, f.name, 0)});
        if (target.scale_beside) {  // llama.cpp's place for it
            const std::string name = (w.name.ends_with(".weight") ? w.name.substr(0, w.name.size() - 7) : w.name) + ".scale";
            replaced_[&w].push_back({name, "f32", {w.stack}, 4 * w.stack, part_producer(w, target, f.name, 3)});
            note(w.format + ": each global scale is beside its weight as NAME.scale, and multiplies");
        }
    }

    const checkpoint& c_;
    const checkpoint* like_;
    const requests& asked_;
    bool gguf_;
    std::vector<std::string>& notes_;
    std::deque<weight_change>& changes_;
    std::vector<planned_tensor> out_;
    std::map<const weight*, std::vector<planned_tensor>> replaced_;
    std::map<std::pair<ggml_type, ggml_type>, std::pair<std::size_t, std::string>> other_blocks_;  ///< asked, taken: how many, the first
    std::map<const weight*, std::shared_ptr<remade_weight>> remade_;
    struct names_of_a_sentence {
        std::string first;
        std::size_t count = 0;
    };
    std::map<std::string, names_of_a_sentence> told_;
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
std::optional<quantized_parts> matrix_made_by(std::string_view system, const weight& model, std::span<const float> values) {
    return matrix_rule() ? matrix_rule()(system, model, values) : std::nullopt;
}
void use_block_quantizers(std::function<block_quantizer(ggml_type)> more) { more_quantizers() = std::move(more); }

std::vector<planned_tensor> plan_of(const checkpoint& c, const checkpoint* like, const requests& asked, bool gguf,
                                    std::vector<std::string>& notes, std::deque<weight_change>& changes) {
    return planner(c, like, asked, gguf, notes, changes).plan();
}

nlohmann::json config_beside(const checkpoint& c) {
    const std::filesystem::path file = (c.path.has_parent_path() ? c.path.parent_path() : ".") / "config.json";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return nlohmann::json::object();
    nlohmann::json root = parse_json(read_text(file, 64u << 20), file.string());
    return root.is_object() ? root : nlohmann::json::object();
}

std::string architecture_of(const checkpoint& c) {
    const nlohmann::json root = config_beside(c);
    const auto found = root.find("model_type");
    return found != root.end() && found->is_string() ? found->get<std::string>() : "unknown";
}

}  // namespace qk::checkpoint
