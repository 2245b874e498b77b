// SPDX-License-Identifier: Apache-2.0
// Quantizes floats into the integers and FP8 of checkpoints, of any width and groups, by the rule of the system that a layout belongs to.
// Codes are made with the scales as they are stored, so that a scale of 16 bits costs nothing twice.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "planned.hpp"
#include "qk/codec.hpp"

namespace qk::checkpoint {
namespace {

/// Codes of a row of small floats. NaN keeps its sign, as PyTorch has it; the core has one code for all NaN.
void encode_floats(element e, std::span<const float> x, std::span<std::uint8_t> codes) {
    const std::span<std::byte> bytes = std::as_writable_bytes(codes);
    if (e == element::e4m3) encode<fp8_e4m3fn>(x, bytes);
    else encode<fp8_e5m2>(x, bytes);
    for (std::size_t k = 0; k < x.size(); ++k)
        if (std::isnan(x[k])) codes[k] = std::signbit(x[k]) ? 0xff : 0x7f;
}

/// The exponent code of 2^ceil(log2 x).
std::uint32_t power_above(float x) {
    int exponent = 0;
    if (std::frexp(x, &exponent) == 0.5f) --exponent;
    return static_cast<std::uint32_t>(std::clamp(exponent + 127, 0, 254));
}

class layout_quantizer {
  public:
    layout_quantizer(std::string_view system, bool symmetric, const weight& model, std::span<const std::byte> group_of)
        : system_(system), how_(model.how), shape_(model.matrix), group_of_(group_of) {
        floats_ = how_.codes == element::e4m3 || how_.codes == element::e5m2;
        levels_ = (1 << how_.bits) - 1, base_ = how_.codes == element::signed_integer ? 1 << (how_.bits - 1) : 0;
        symmetric_ = symmetric || how_.zero == zero_type::none;
    }
    /// Whether the layout is one that this file has a rule for.
    bool knows() const {
        const bool integers = how_.codes == element::unsigned_integer || how_.codes == element::signed_integer;
        const bool scales = how_.scale == scale_type::f32 || how_.scale == scale_type::f16 || how_.scale == scale_type::bf16;
        if (how_.global != global_type::none || how_.zero == zero_type::bias) return false;
        return (integers && scales) || (floats_ && (scales || how_.scale == scale_type::e8m0));
    }

    quantized_parts of(std::span<const float> x) {
        const plane_sizes n = sizes_of(how_, shape_);
        quantized_parts parts{std::vector<std::byte>(n.codes), std::vector<std::byte>(n.scales), std::vector<std::byte>(n.zeros)};
        const std::size_t rows = scale_rows_of(how_, shape_), groups = groups_of(how_, shape_);
        find_ranges(x, rows * groups);
        scales_.assign(rows * groups, 1), zeros_.assign(rows * groups, 0);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t g = 0; g < groups; ++g) {
                const std::size_t i = r * groups + g;
                const std::uint32_t bits = stored_scale(low_[i], high_[i]);
                put_scale_bits(how_, shape_, parts.scales, r, g, bits);
                scales_[i] = scale_value(how_.scale, bits);
                if (floats_) continue;
                zeros_[i] = zero(low_[i], scales_[i]);
                put_zero(how_, shape_, parts.zeros, r, g, zeros_[i] - base_);
            }
        std::vector<std::uint8_t> codes(shape_.columns);
        std::vector<float> over_scale(shape_.columns);
        for (std::size_t row = 0; row < shape_.rows; ++row) {
            for (std::size_t k = 0; k < shape_.columns; ++k) {
                const std::size_t i = group(row, k);
                over_scale[k] = x[row * shape_.columns + k] / scales_[i];
                if (!floats_) codes[k] = code(over_scale[k], zeros_[i]);
            }
            if (floats_) encode_floats(how_.codes, over_scale, codes);
            pack_row(how_, shape_, codes.data(), row, parts.codes);
        }
        return parts;
    }

  private:
    std::size_t group(std::size_t row, std::size_t column) const {
        const std::size_t r = how_.group_rows == 0 ? 0 : row / static_cast<std::size_t>(how_.group_rows);
        const std::size_t g = !group_of_.empty()        ? named_group(group_of_, column)
                              : how_.group_columns == 0 ? 0
                                                        : column / static_cast<std::size_t>(how_.group_columns);
        return r * groups_of(how_, shape_) + g;
    }
    /// The range of each group with 0 in it, by its finite values.
    void find_ranges(std::span<const float> x, std::size_t count) {
        low_.assign(count, 0), high_.assign(count, 0);
        for (std::size_t row = 0; row < shape_.rows; ++row)
            for (std::size_t k = 0; k < shape_.columns; ++k) {
                const float v = x[row * shape_.columns + k];
                if (!std::isfinite(v)) continue;
                const std::size_t i = group(row, k);
                low_[i] = std::min(low_[i], v), high_[i] = std::max(high_[i], v);
            }
    }
    float scale(float low, float high) const {
        const float most = std::max(-low, high), levels = static_cast<float>(levels_), positive = static_cast<float>(levels_ / 2);
        if (most == 0) return 1;
        if (floats_) {
            const float largest = how_.codes == element::e4m3 ? 448.0f : 57344.0f;
            return system_ == "deepseek" && how_.scale == scale_type::f32 ? 1 / (largest / most) : most / largest;
        }
        if (!symmetric_) return (high - low) / levels;
        if (how_.bits == 1) return most;
        // compressed-tensors and GPTQ lay the range over all codes, ModelOpt and AWQ over those of both signs
        return system_ == "compressed-tensors" || system_ == "gptq" ? most / (levels / 2) : most / positive;
    }
    std::uint32_t stored_scale(float low, float high) const {
        const float s = scale(low, high);
        if (how_.scale == scale_type::e8m0) return power_above(s);
        const std::uint32_t bits = layout_parts::store_scale(how_.scale, s).bits;
        return scale_value(how_.scale, bits) == 0 ? 1 : bits;  // the smallest instead of none
    }
    /// What is subtracted from codes that count from 0.
    int zero(float low, float scale) const {
        if (how_.zero == zero_type::none) return how_.offset + base_;
        if (symmetric_) return (levels_ + 1) / 2;
        const int least = how_.zero == zero_type::packed_words_m1 ? 1 : 0;  // stored minus one
        return std::clamp(static_cast<int>(std::nearbyint(std::clamp(-low / scale, 0.0f, static_cast<float>(levels_)))), least, levels_);
    }
    std::uint8_t code(float over_scale, int zero) const {
        const float q = std::nearbyint(over_scale) + static_cast<float>(zero);
        const int from_0 = std::isnan(q) ? zero : static_cast<int>(std::clamp(q, 0.0f, static_cast<float>(levels_)));
        return static_cast<std::uint8_t>((from_0 - base_) & levels_);
    }

    std::string_view system_;
    layout how_;
    matrix_shape shape_;
    std::span<const std::byte> group_of_;
    bool floats_ = false, symmetric_ = false;
    int levels_ = 0, base_ = 0;
    std::vector<float> low_, high_, scales_;
    std::vector<int> zeros_;
};

}  // namespace

std::optional<quantized_parts> quantized_like(std::string_view system, bool symmetric, const weight& model,
                                              std::span<const std::byte> group_of, std::span<const float> values) {
    layout_quantizer quantizer(system, symmetric, model, group_of);
    if (!quantizer.knows()) return std::nullopt;
    return quantizer.of(values);
}

void check_scales(const weight& w, const weight& model, const quantized_parts& made, std::span<const float> values) {
    const layout& how = model.how;
    const auto finite = [&](std::span<const std::byte> plane) {
        const auto width = static_cast<std::size_t>(bits_of(how.scale) / 8);
        for (std::size_t i = 0; width != 0 && i + width <= plane.size(); i += width) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, plane.data() + i, width);
            if (!std::isfinite(scale_value(how.scale, bits))) return false;
        }
        return true;
    };
    const bool whole = how.global == global_type::none || (std::isfinite(made.global) && made.global != 0);
    if (finite(made.scales) && (how.zero != zero_type::bias || finite(made.zeros)) && whole) return;
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return;
    throw error(w.name + ": the scales that would make it " + model.format + " are no finite numbers; leave it a float, as --tensor '" +
                w.name + "=f32' does");
}

}  // namespace qk::checkpoint
