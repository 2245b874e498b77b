// SPDX-License-Identifier: Apache-2.0
// NVFP4 and its like: blocks of small floats under floating scales.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"

namespace qk {

/// NVFP4 and its like: small floats under a floating block scale, and one float32 scale for the tensor unless `tensor_scale` says that
/// there is none (then it counts as 1).
struct nvfloat {
    int block_size = 16;
    floating element = fp4_e2m1;
    floating scale = fp8_e4m3fn;
    bool tensor_scale = true;
    friend QK_INLINE constexpr bool operator==(const nvfloat&, const nvfloat&) = default;
};

inline constexpr nvfloat nvfp4{};
inline constexpr nvfloat nvfp4_g32{.block_size = 32};  ///< which some devices multiply; it has no name in the catalogue
inline constexpr nvfloat nvfp4_e5m3{.scale = ue5m3};
inline constexpr nvfloat nvfp4_e3m0{.element = fp4_e3m0};
inline constexpr nvfloat nvfp4_e1m2{.element = fp4_e1m2};
inline constexpr nvfloat amdfp4{.scale = ue5m3, .tensor_scale = false};
inline constexpr nvfloat amdfp4_g32{.block_size = 32, .scale = ue5m3, .tensor_scale = false};
inline constexpr nvfloat amdfp4_global_g32{.block_size = 32, .scale = ue5m3};

inline namespace QK_ISA {

constexpr double bits_per_value(nvfloat f) { return bits(f.element) + double(bits(f.scale)) / f.block_size; }
constexpr int block_size(const nvfloat& f) { return f.block_size; }

constexpr message check(const nvfloat& f) {
    return detail::first_of({detail::in_range("block", f.block_size, 1, detail::largest_block), detail::check_element(f.element, "element"),
                             detail::check_element(f.scale, "scale")});
}

constexpr format_facts facts(const nvfloat& f) {
    const format_facts e = facts(f.element), s = facts(f.scale);
    return {e.largest * s.largest, e.lowest * s.largest, e.smallest * s.smallest, e.smallest_normal * s.smallest_normal, false, s.nan,
            e.negative_zero};
}

/// Is true when every result of fake_quantize under this semantics has a code.
constexpr bool encodable(const nvfloat& f, const semantics& how) {
    return has_nan(f.scale) && how.mx_specials == block_specials::block_nan && search_has_codes(f.block_size, how);
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const nvfloat& f) { return {bits(f.element), f.block_size, bits(f.scale), 0, 0, f.tensor_scale}; }

}  // namespace QK_ISA
}  // namespace detail

}  // namespace qk

#include "qk/exact/end.hpp"
