// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as a table of functions.
#pragma once

#include "qk/formats/format.hpp"
#include "qk/memory/planes.hpp"
#include "qk/memory/values.hpp"
#include "qk/parameters.hpp"
#include "qk/product/call.hpp"
#include "qk/semantics.hpp"

namespace qk::dispatch {

/// Tags of the instruction sets that are compiled.
namespace isa {
struct sse2;
struct avx2;
struct avx512;
struct avx512_vnni;
struct neon;
}  // namespace isa

/// One array, source and destination.
struct arrays {
    const float* x;
    float* y;
    std::size_t size;
};

struct fake_quantizers {
    void (*whole)(const format&, arrays, const semantics&) noexcept;
    void (*scaled)(const format&, arrays, affine, const semantics&) noexcept;
    void (*along)(const format&, arrays, along_axis, const semantics&) noexcept;
    void (*along_scaled)(const format&, arrays, along_axis, affine, const semantics&) noexcept;
    void (*by_channel)(const format&, arrays, const per_channel&, const semantics&) noexcept;
    void (*by_block)(const format&, arrays, const per_block&, const semantics&) noexcept;
};
using encoder = void (*)(const format&, values_in, planes, const codec_parameters&,
                         const semantics&) noexcept;  ///< arguments are checked already
using decoder = void (*)(const format&, const_planes, values_out, const codec_parameters&) noexcept;
struct multipliers {
    void (*product)(const format&, const detail::product_call&) noexcept;
    void (*weighted)(const format&, const detail::weighted_call&) noexcept;
    void (*round)(const detail::rounding_call&) noexcept;
};

struct kernel_table {
    fake_quantizers fake_quantize;
    encoder encode;
    decoder decode;
    multipliers multiply;
};

// Each is specialised in a file of its own, compiled for that instruction set, if the build has it (CMakeLists.txt).
template <class Isa>
fake_quantizers fake_quantizers_of() noexcept;
template <class Isa>
encoder encoder_of() noexcept;
template <class Isa>
decoder decoder_of() noexcept;
template <class Isa>
multipliers multipliers_of() noexcept;

/// Products may be those of a larger instruction set, of which the other kernels use nothing.
template <class Isa, class OfProducts = Isa>
kernel_table table_of() noexcept {
    return {fake_quantizers_of<Isa>(), encoder_of<Isa>(), decoder_of<Isa>(), multipliers_of<OfProducts>()};
}

}  // namespace qk::dispatch
