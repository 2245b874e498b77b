// SPDX-License-Identifier: Apache-2.0
// Microexponents from text and back: microexponent:block=N,sub_block=N,mantissa=M,shift=D.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline parsed<format> parse_microexponent(std::string_view keys_text) {
    microexponent f;
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "sub_block", .number = &f.sub_block_size},
                  {.name = "mantissa", .number = &f.mantissa_bits},
                  {.name = "shift", .number = &f.shift_bits}};
    message error = parse_keys("microexponent", keys_text, keys);
    if (error.empty()) error = check(f);
    return {f, error};
}

inline format_text text_of(const microexponent& f) {
    format_text t("microexponent:block=");
    t.append(f.block_size).append(",sub_block=").append(f.sub_block_size).append(",mantissa=").append(f.mantissa_bits);
    if (f.shift_bits != 1) t.append(",shift=").append(f.shift_bits);
    return t;
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
