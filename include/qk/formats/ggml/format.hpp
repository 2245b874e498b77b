// SPDX-License-Identifier: Apache-2.0
// ggml's blocks as formats: the bytes of a .gguf, which decode and products read as they lie. Nothing here rounds to them; the rules of
// qk/systems/ggml.hpp do.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/family.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/layout/values.hpp"

namespace qk {

/// Blocks of one of ggml's types, one after the other along each row, whose length is a multiple of the block's. Codes, scales and minima
/// lie together in a block, so such a tensor has one plane, `elements`, in which each block counts as one code.
struct ggml_blocks {
    ggml_type type = ggml_type::q4_k;
    friend QK_INLINE constexpr bool operator==(const ggml_blocks&, const ggml_blocks&) = default;
};

/// The types by ggml's own names.
namespace ggml {

inline constexpr ggml_blocks q4_0{ggml_type::q4_0}, q4_1{ggml_type::q4_1}, q5_0{ggml_type::q5_0}, q5_1{ggml_type::q5_1},
    q8_0{ggml_type::q8_0}, q2_K{ggml_type::q2_k}, q3_K{ggml_type::q3_k}, q4_K{ggml_type::q4_k}, q5_K{ggml_type::q5_k},
    q6_K{ggml_type::q6_k}, iq4_nl{ggml_type::iq4_nl}, iq4_xs{ggml_type::iq4_xs}, tq1_0{ggml_type::tq1_0}, tq2_0{ggml_type::tq2_0},
    mxfp4{ggml_type::mxfp4}, nvfp4{ggml_type::nvfp4}, q1_0{ggml_type::q1_0}, q2_0{ggml_type::q2_0};

/// Their names as text says them, behind "ggml.".
struct named_blocks {
    std::string_view name;
    ggml_blocks format;
};
inline constexpr named_blocks named[] = {{"q4_0", q4_0},     {"q4_1", q4_1},     {"q5_0", q5_0},   {"q5_1", q5_1},   {"q8_0", q8_0},
                                         {"q2_K", q2_K},     {"q3_K", q3_K},     {"q4_K", q4_K},   {"q5_K", q5_K},   {"q6_K", q6_K},
                                         {"iq4_nl", iq4_nl}, {"iq4_xs", iq4_xs}, {"tq1_0", tq1_0}, {"tq2_0", tq2_0}, {"mxfp4", mxfp4},
                                         {"nvfp4", nvfp4},   {"q1_0", q1_0},     {"q2_0", q2_0}};

}  // namespace ggml

namespace detail {
inline namespace QK_ISA {

template <class Format>
concept is_ggml_blocks = requires(const Format& f) {
    { f.type } -> std::convertible_to<ggml_type>;
};

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

constexpr int block_size(const ggml_blocks& f) { return static_cast<int>(facts_of(f.type).values); }
constexpr std::size_t bytes_of_block(const ggml_blocks& f) { return facts_of(f.type).bytes; }
constexpr double bits_per_value(const ggml_blocks& f) { return 8.0 * facts_of(f.type).bytes / facts_of(f.type).values; }

constexpr message check(const ggml_blocks& f) {
    for (const ggml::named_blocks& known : ggml::named)
        if (known.format == f) return {};
    return "this is none of ggml's blocks that qk reads: qk::ggml::named lists them";
}

/// What a block can hold depends on scales inside it, so only what all types have in common is said: nothing is NaN or Inf unless a scale
/// is.
constexpr format_facts facts(const ggml_blocks&) { return {.nan = true}; }

/// No code is made here.
constexpr bool encodable(const ggml_blocks&, const semantics&) { return false; }

/// Returns the plane of a tensor whose blocks lie in rows.
constexpr packed_layout layout_of(const ggml_blocks& f, along_axis a) {
    packed_layout l;
    const std::size_t blocks = a.outer * a.inner * detail::divide_up(a.length, block_size(f));
    l.elements = {0, blocks, static_cast<int>(8 * bytes_of_block(f))};
    l.scales.offset = l.shifts.offset = l.tensor.offset = l.elements.bytes();
    return l;
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
