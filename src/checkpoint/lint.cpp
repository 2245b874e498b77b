// SPDX-License-Identifier: Apache-2.0
// Looks at the data of a checkpoint for what a reader would stumble over without an error: NaN codes, scales that are zero, negative,
// infinite, upside down or in another order.
#include <algorithm>
#include <array>
#include <cstring>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

/// What one pass over a weight's scales and codes counts.
struct counts {
    std::uint64_t nan_codes = 0, nan_scales = 0, infinite = 0, negative = 0, zero = 0, scales = 0, above_one = 0;
    float largest = 0;
};

std::string name_of_part(const checkpoint& c, int part) { return c.tensors[static_cast<std::size_t>(part)].name; }

/// Finds where NaN is among the codes of an FP8 format: a bit for each code.
std::array<bool, 256> nan_codes_of(element e) {
    std::array<bool, 256> is{};
    const float* table = layout_parts::values_of(e);
    for (std::size_t code = 0; code < 256; ++code) is[code] = !std::isfinite(table[code]) && (e == element::e4m3 || e == element::e5m2);
    return is;
}

class weight_linter {
  public:
    weight_linter(const checkpoint& c, const weight& w, std::vector<finding>& found) : c_(c), w_(w), found_(found) {}

    void look() {
        if (w_.problem || w_.elements() == 0) return;
        if (w_.global != weight::none) globals();
        if (!w_.quantized) return plain();
        if (w_.how.order == code_order::ggml_blocks) return blocks();
        planes();
        report();
        if (w_.how.order == code_order::columns) version();
        if (w_.how.scales == scale_order::rows) order();
    }

  private:
    void add(const std::string& tensor, const char* kind, std::string sentence) { found_.push_back({tensor, kind, std::move(sentence)}); }
    static std::string of(std::uint64_t some, std::uint64_t all) { return std::to_string(some) + " of " + std::to_string(all); }

    void plain() {
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w_.codes)];
        std::uint64_t nan = 0, infinite = 0;
        c_.decode(w_, [&](std::span<const float> part) {
            for (const float v : part) nan += std::isnan(v), infinite += std::isinf(v);
        });
        if (nan != 0) add(t.name, "nan_code", t.name + ": " + of(nan, w_.elements()) + " numbers are NaN");
        if (const std::uint64_t large = beyond_float32(t); large != 0)
            infinite -= large,
                add(t.name, "infinite_code", t.name + ": " + of(large, w_.elements()) + " numbers are beyond the range of float32");
        if (infinite != 0) add(t.name, "infinite_code", t.name + ": " + of(infinite, w_.elements()) + " numbers are infinite");
        if (t.name.ends_with("_scale") || t.name.ends_with("_scale_2") || t.name.ends_with("_global_scale")) input_scale(t);
    }
    /// A scale that no weight of the file uses: of activations, most often.
    void input_scale(const stored_tensor& t) {
        c_.decode(w_, [&](std::span<const float> part) {
            for (const float v : part) {
                if (v == 0) return add(t.name, "zero_scale", t.name + " is 0");
                if (std::isinf(v)) return add(t.name, "infinite_scale", t.name + " is infinite");
                if (v < 0) return add(t.name, "negative_scale", t.name + " is negative");
            }
        });
    }

    /// The scale of the whole matrix.
    void globals() {
        const std::string name = name_of_part(c_, w_.global);
        for (std::uint64_t m = 0; m < w_.stack; ++m) {
            const float g = planes_of(c_, w_, m).global;
            const std::string text = name + " is " + std::to_string(g);
            if (std::isnan(g)) return add(name, "nan_scale", name + " is NaN");
            if (std::isinf(g)) return add(name, "infinite_scale", name + " is infinite");
            if (g == 0) return add(name, "zero_scale", name + " is 0");
            if (g < 0) return add(name, "negative_scale", text + "; a scale is positive");
            // A scale of 1 stands for weights as large as 6 * 448 = 2688.
            const bool multiplies = w_.how.global == global_type::multiplies;
            if (w_.format == "nvfp4" && (multiplies ? g > 1 : g < 1))
                return add(name, "reciprocal_scale",
                           text + " and " + (multiplies ? "multiplies" : "divides") + ": weights would reach " +
                               std::to_string(multiplies ? 2688 * g : 2688 / g) + ". It looks like the reciprocal");
        }
    }

    void planes() {
        const auto nan = nan_codes_of(w_.how.codes);
        std::vector<std::uint8_t> codes(w_.matrix.columns);
        const std::size_t groups = groups_of(w_.how, w_.matrix), rows = scale_rows_of(w_.how, w_.matrix);
        const std::size_t width = w_.how.group_columns == 0 ? w_.matrix.columns : static_cast<std::size_t>(w_.how.group_columns);
        const std::uint8_t magnitude = w_.how.codes == element::e2m1                                    ? 7
                                       : w_.how.codes == element::e4m3 || w_.how.codes == element::e5m2 ? 127
                                                                                                        : 31;
        const bool floats = w_.how.codes != element::unsigned_integer && w_.how.codes != element::signed_integer;
        for (std::uint64_t m = 0; m < w_.stack; ++m) {
            const matrix_planes p = planes_of(c_, w_, m);
            std::vector<bool> is_zero(rows * groups, false);
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t g = 0; g < groups; ++g) is_zero[r * groups + g] = scale(scale_at(w_.how, w_.matrix, p.scales, r, g));
            std::vector<bool> lost(rows * groups, false);
            for (std::size_t row = 0; row < w_.matrix.rows; ++row) {
                unpack_row(w_.how, w_.matrix, p.codes, row, codes.data());
                const std::size_t r = w_.how.group_rows == 0 ? 0 : row / static_cast<std::size_t>(w_.how.group_rows);
                for (std::size_t k = 0; k < w_.matrix.columns; ++k) {
                    seen_.nan_codes += nan[codes[k]];
                    const std::size_t g = p.group_of.empty() ? k / width : named_group(p.group_of, k);
                    if (!is_zero[r * groups + g] || lost[r * groups + g]) continue;
                    if (floats ? (codes[k] & magnitude) != 0
                               : w_.how.zero != zero_type::bias && codes[k] != zero_at(w_.how, w_.matrix, p.zeros, r, g))
                        lost[r * groups + g] = true;
                }
            }
            seen_.zero += static_cast<std::uint64_t>(std::ranges::count(lost, true));
        }
    }
    /// Counts one scale; returns whether it is 0.
    bool scale(float s) {
        ++seen_.scales;
        seen_.nan_scales += std::isnan(s), seen_.infinite += std::isinf(s), seen_.negative += s < 0;
        seen_.above_one += s > 1;
        seen_.largest = std::max(seen_.largest, std::fabs(s));
        return s == 0;
    }

    void report() {
        const std::string name = w_.scales == weight::none ? w_.name : name_of_part(c_, w_.scales);
        const auto some = [&](std::uint64_t n, const char* kind, const char* what) {
            if (n != 0) add(name, kind, name + ": " + of(n, seen_.scales) + " scales " + what);
        };
        if (seen_.nan_codes != 0)
            add(name_of_part(c_, w_.codes), "nan_code",
                name_of_part(c_, w_.codes) + ": " + of(seen_.nan_codes, w_.elements()) + " codes are NaN or infinite");
        some(seen_.nan_scales, "nan_scale",
             w_.how.product == arithmetic::power_of_two ? "have code 255: NaN in the MX format, 2^128 to GPT-OSS's reader" : "are NaN");
        some(seen_.infinite, "infinite_scale", "are infinite");
        // Integers keep their meaning: auto-round gives a group a negative scale where its largest value has the sign with fewer codes.
        const bool may_be_negative = w_.how.zero == zero_type::bias || w_.how.codes == element::unsigned_integer;
        if (!may_be_negative) some(seen_.negative, "negative_scale", "are negative");
        some(seen_.zero, "zero_scale", "are 0 where codes are not: those values are lost");
        // Whole matrices with every scale above 1 are weights of hundreds; the reciprocals of usual scales look like that.
        const bool judged = w_.global == weight::none && w_.how.zero == zero_type::none && seen_.nan_scales == 0 && seen_.infinite == 0;
        if (judged && seen_.scales != 0 && seen_.above_one == seen_.scales && w_.how.bits == 8)
            add(name, "reciprocal_scale",
                name + ": every scale is above 1, up to " + std::to_string(seen_.largest) + ", and multiplies. They look like reciprocals");
    }

    /// Zero points of symmetric codes are the middle one. If all are the code beside it, the file is of GPTQ's other version.
    void version() {
        if (!c_.config.symmetric.value_or(false)) return;
        const bool first = w_.how.zero == zero_type::packed_words_m1;
        const int middle = 1 << (w_.how.bits - 1), other = first ? middle + 1 : middle - 1;
        const std::size_t groups = groups_of(w_.how, w_.matrix), rows = scale_rows_of(w_.how, w_.matrix);
        const matrix_planes p = planes_of(c_, w_, 0);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t g = 0; g < groups; ++g)
                if (zero_at(w_.how, w_.matrix, p.zeros, r, g) != other) return;
        const std::string name = name_of_part(c_, w_.zeros);
        add(name, "wrong_zero_point",
            name + ": every zero point is stored as " + std::to_string(first ? middle : middle - 1) + ", that of symmetric codes in the " +
                (first ? "second" : "first") + " version of GPTQ's files, and " + c_.config.file.filename().string() + " says the " +
                (first ? "first" : "second") + ": every weight is read one scale too " + (first ? "low" : "high"));
    }

    /// Compares how smooth the scales are as they lie with how smooth they would be in cuBLAS's tiles of 128 x 4.
    void order() {
        const std::size_t groups = groups_of(w_.how, w_.matrix), rows = scale_rows_of(w_.how, w_.matrix);
        const bool fp4 = w_.how.scale == scale_type::e4m3 || w_.how.scale == scale_type::e8m0;
        if (!fp4 || rows % 128 != 0 || groups % 4 != 0 || rows == 0 || groups < 4 || w_.how.group_rows != 1) return;
        const matrix_planes p = planes_of(c_, w_, 0);
        const layout tiles = layouts::swizzled(w_.how);
        const auto level = [&](const layout& l, std::size_t r, std::size_t g) {
            const float s = scale_at(l, w_.matrix, p.scales, r, g);
            return std::isfinite(s) && s > 0 ? static_cast<double>(std::log2(s)) : -10.0;
        };
        const auto roughness = [&](const layout& l, bool along_rows) {
            double sum = 0;
            const std::size_t lines = along_rows ? rows : groups, each = along_rows ? groups : rows;
            for (std::size_t line = 0; line < lines; ++line) {
                double mean = 0, squares = 0;
                for (std::size_t k = 0; k < each; ++k) {
                    const double v = along_rows ? level(l, line, k) : level(l, k, line);
                    mean += v, squares += v * v;
                }
                sum += squares - mean * mean / static_cast<double>(each);
            }
            return sum;
        };
        for (const bool along_rows : {true, false}) {
            const double as_it_is = roughness(w_.how, along_rows), in_tiles = roughness(tiles, along_rows);
            if (in_tiles < 0.5 * as_it_is && as_it_is > 1e-6 * static_cast<double>(rows * groups)) {
                const std::string name = name_of_part(c_, w_.scales);
                return add(name, "swizzled_scale",
                           name + ": " + (along_rows ? "rows" : "columns") +
                               " of scales vary more than they would if the bytes were in cuBLAS's tiles of 128 x 4: they look swizzled, "
                               "and are read as linear");
            }
        }
    }

    /// ggml's blocks: what their floats are.
    void blocks() {
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w_.codes)];
        std::uint64_t nan = 0, infinite = 0;
        c_.decode(w_, [&](std::span<const float> part) {
            for (const float v : part) nan += std::isnan(v), infinite += std::isinf(v);
        });
        if (nan != 0) add(t.name, "nan_scale", t.name + ": " + of(nan, w_.elements()) + " values are NaN: a block's scale is");
        if (infinite != 0) add(t.name, "infinite_scale", t.name + ": " + of(infinite, w_.elements()) + " values are infinite");
        const layout p = layout_parts::planes_of(w_.how);
        if (p.codes == element::ggml || c_.big_endian || p.zero == zero_type::bias) return;
        const ggml_facts f = facts_of(w_.how.block);
        const std::uint8_t* block = layout_parts::raw(t.data);
        const auto group = static_cast<unsigned>(p.group_columns);
        std::uint64_t zero = 0, all = 0;
        for (std::size_t b = 0; b < t.data.size() / f.bytes; ++b, block += f.bytes)
            for (unsigned g = 0; g < f.values / group; ++g, ++all) {
                const std::uint32_t bits =
                    layout_parts::block_scale(p, {1, f.values}, {reinterpret_cast<const std::byte*>(block), f.bytes}, 0, g, false);
                if (scale_value(p.scale, bits) != 0) continue;
                for (unsigned i = g * group; i < (g + 1) * group; ++i) {
                    const unsigned code = ggml_code(w_.how.block, block, i);
                    const bool is_zero = p.codes == element::e2m1             ? (code & 7) == 0
                                         : p.codes == element::signed_integer ? code == 0
                                                                              : static_cast<int>(code) == p.offset;
                    if (is_zero) continue;
                    ++zero;
                    break;
                }
            }
        if (zero != 0)
            add(t.name, "zero_scale", t.name + ": " + of(zero, all) + " scales are 0 where codes are not: those values are lost");
    }

    const checkpoint& c_;
    const weight& w_;
    std::vector<finding>& found_;
    counts seen_;
};

}  // namespace

std::vector<finding> lint(const checkpoint& c) {
    std::vector<finding> found = c.findings;
    for (const weight& w : c.weights) {
        if (w.problem && std::ranges::none_of(found, [&](const finding& f) { return f.sentence == w.problem->sentence; }))
            found.push_back(*w.problem);
        weight_linter(c, w, found).look();
    }
    return found;
}

}  // namespace qk::checkpoint
