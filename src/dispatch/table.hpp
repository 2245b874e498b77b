// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, as a table of functions.
#pragma once

#include "qk/codec/parameters.hpp"
#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::dispatch {

/// One array, source and destination.
struct arrays {
    const float* x;
    float* y;
    std::size_t size;
};

struct kernel_table {
    void (*whole)(const format&, arrays, const semantics&) noexcept;
    void (*scaled)(const format&, arrays, affine, const semantics&) noexcept;
    void (*along)(const format&, arrays, along_axis, const semantics&) noexcept;
    void (*along_scaled)(const format&, arrays, along_axis, affine, const semantics&) noexcept;
    void (*by_channel)(const format&, arrays, const per_channel&, const semantics&) noexcept;
    void (*by_block)(const format&, arrays, const per_block&, const semantics&) noexcept;
    void (*encode)(const format&, values_in, planes, const codec_parameters&, const semantics&) noexcept;  ///< checked already
    void (*decode)(const format&, const_planes, values_out, const codec_parameters&) noexcept;
};

// Each is defined in its own file, if the build has it.
const kernel_table& kernels_sse2() noexcept;
const kernel_table& kernels_sse42() noexcept;
const kernel_table& kernels_avx2() noexcept;
const kernel_table& kernels_avx512() noexcept;
const kernel_table& kernels_neon() noexcept;

}  // namespace qk::dispatch
