// SPDX-License-Identifier: Apache-2.0
// NVFP4 and its like from text and back: nvfp:block=N,element=F,scale=F,tensor=0.
#pragma once

#include "qk/exact/begin.hpp"

#include "qk/formats/floating/text.hpp"
#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline parsed<format> parse_nvfloat(std::string_view keys_text) {
    nvfloat f;
    std::string_view element = "fp4_e2m1";
    std::string_view scale = "fp8_e4m3fn";
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "element", .words = &element},
                  {.name = "scale", .words = &scale},
                  {.name = "tensor", .flag = &f.tensor_scale}};
    message error = parse_keys("nvfp", keys_text, keys);
    if (error.empty()) {
        const parsed<floating> e = parse_element(element);
        const parsed<floating> s = parse_element(scale);
        f.element = e.value;
        f.scale = s.value;
        error = first_of({e.error, s.error, check(f)});
    }
    return {f, error};
}

inline format_text text_of(const nvfloat& f) {
    format_text t("nvfp:block=");
    t.append(f.block_size);
    if (f.element != nvfp4.element) t.append(",element=").append(to_text(format(f.element)));
    if (f.scale != nvfp4.scale) t.append(",scale=").append(to_text(format(f.scale)));
    return f.tensor_scale ? t : t.append(",tensor=0");
}

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
