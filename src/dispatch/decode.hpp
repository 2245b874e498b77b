// SPDX-License-Identifier: Apache-2.0
// decode compiled for one instruction set (fake_quantize.hpp says what symbols it may have).
#pragma once

#include "qk/codec.hpp"
#include "table.hpp"
#include "usual_codes.hpp"

namespace qk::dispatch {

template <class Arch>
struct decoder_on {
    static void decode(const format& f, const_planes in, values_out y, const codec_parameters& p) noexcept {
        detail::with_read_family(f, [&](const auto& g) {
            with_usual_codes(g, [&]<detail::compile_time_facts Known>() { detail::decode_family<Arch, Known>(g, in, y, p); });
        });
    }
};

template <>
decoder decoder_of<isa::QK_DISPATCH_ISA>() noexcept {
    return decoder_on<native>::decode;
}

}  // namespace qk::dispatch
