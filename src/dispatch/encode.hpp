// SPDX-License-Identifier: Apache-2.0
// encode compiled for one instruction set (fake_quantize.hpp says what symbols it may have).
#pragma once

#include "qk/codec.hpp"
#include "table.hpp"
#include "usual_codes.hpp"

namespace qk::dispatch {

template <class Arch>
struct encoder_on {
    static void encode(const format& f, values_in x, planes out, const codec_parameters& p, const semantics& how) noexcept {
        detail::with_family(f, [&](const auto& g) {
            with_usual_codes(g, [&]<detail::compile_time_facts Known>() { detail::encode_family<Arch, Known>(g, x, out, p, how); });
        });
    }
};

template <>
encoder encoder_of<isa::QK_DISPATCH_ISA>() noexcept {
    return encoder_on<native>::encode;
}

}  // namespace qk::dispatch
