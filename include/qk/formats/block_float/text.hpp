// SPDX-License-Identifier: Apache-2.0
// Block float from text and back: bfp:block=N,exponent=E,mantissa=M,bump.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline parsed<format> parse_block_float(std::string_view keys_text) {
    block_float f;
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "exponent", .number = &f.exponent_bits},
                  {.name = "mantissa", .number = &f.mantissa_bits},
                  {.name = "bump", .flag = &f.bump}};
    message error = parse_keys("bfp", keys_text, keys);
    if (error.empty()) error = check(f);
    return {f, error};
}

inline format_text text_of(const block_float& f) {
    format_text t("bfp:block=");
    t.append(f.block_size).append(",exponent=").append(f.exponent_bits).append(",mantissa=").append(f.mantissa_bits);
    return f.bump ? t.append(",bump") : t;
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
