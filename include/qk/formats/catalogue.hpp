// SPDX-License-Identifier: Apache-2.0
// The named formats, in one table: what a command line may say, what `qk formats` prints and what the tests run over.
#pragma once

#include <string_view>
#include <type_traits>

#include "qk/formats/format.hpp"
#include "qk/isa.hpp"

namespace qk {

struct named_format {
    std::string_view name;
    qk::format format;
    std::string_view source;  ///< the document that defines it
};

inline constexpr named_format catalogue[] = {
    {"fp32", fp32, "IEEE 754-2019, binary32"},
    {"fp24", fp24, "Pixar PXR24 (OpenEXR): the upper 24 bits of binary32"},
    {"tf32", tf32, "NVIDIA TensorFloat-32: the upper 19 bits of binary32"},
    {"fp16", fp16, "IEEE 754-2019, binary16"},
    {"bf16", bf16, "Google Brain float: the upper half of binary32"},
    {"fp8_e4m3fn", fp8_e4m3fn, "OCP OFP8 1.0; Micikevicius et al., arXiv 2209.05433"},
    {"fp8_e5m2", fp8_e5m2, "OCP OFP8 1.0; Micikevicius et al., arXiv 2209.05433"},
    {"fp8_e4m3fnuz", fp8_e4m3fnuz, "Noune et al., arXiv 2206.02915"},
    {"fp8_e5m2fnuz", fp8_e5m2fnuz, "Noune et al., arXiv 2206.02915"},
    {"fp8_e4m3", fp8_e4m3, "IEEE rules at 4 exponent and 3 mantissa bits"},
    {"fp8_e3m4", fp8_e3m4, "IEEE rules at 3 exponent and 4 mantissa bits"},
    {"fp8_e4m3b11fnuz", fp8_e4m3b11fnuz, "HFP8: Sun et al., NeurIPS 2019"},
    {"e8m0", e8m0, "OCP Microscaling v1.0, section 5.4.1"},
    {"fp6_e3m2", fp6_e3m2, "OCP Microscaling v1.0, section 5.3.2"},
    {"fp6_e2m3", fp6_e2m3, "OCP Microscaling v1.0, section 5.3.2"},
    {"fp4_e2m1", fp4_e2m1, "OCP Microscaling v1.0, section 5.3.3"},
    {"fp4_e3m0", fp4_e3m0, "3 exponent bits, every code finite"},
    {"fp4_e1m2", fp4_e1m2, "1 exponent and 2 mantissa bits, every code finite"},
    {"ue5m3", ue5m3, "unsigned scale of AMD Quark's amdfp4; auto-round"},
    {"ue4m3", ue4m3, "unsigned scale of NVIDIA PTX (ue4m3) and ggml's NVFP4"},
    {"int2", int2, "ONNX QuantizeLinear-25"},
    {"int4", int4, "ONNX QuantizeLinear-21"},
    {"int8", int8, "ONNX QuantizeLinear-10"},
    {"int16", int16, "ONNX QuantizeLinear-21"},
    {"int32", int32, "AMD ExtendedQuantizeLinear"},
    {"uint2", uint2, "ONNX QuantizeLinear-25"},
    {"uint4", uint4, "ONNX QuantizeLinear-21"},
    {"uint8", uint8, "ONNX QuantizeLinear-10"},
    {"uint16", uint16, "ONNX QuantizeLinear-21"},
    {"uint32", uint32, "AMD ExtendedQuantizeLinear"},
    {"bfp16", bfp16, "AMD BFPQuantizeDequantize, to_bfp, block 8"},
    {"mx9", mx9, "Rouhani et al., arXiv 2302.08007; AMD to_bfp_prime"},
    {"mx6", mx6, "Rouhani et al., arXiv 2302.08007; AMD to_bfp_prime"},
    {"mx4", mx4, "Rouhani et al., arXiv 2302.08007; AMD to_bfp_prime"},
    {"mxint8", mxint8, "OCP Microscaling v1.0, section 5.2"},
    {"mxfp8_e4m3", mxfp8_e4m3, "OCP Microscaling v1.0, section 5.2"},
    {"mxfp8_e5m2", mxfp8_e5m2, "OCP Microscaling v1.0, section 5.2"},
    {"mxfp6_e3m2", mxfp6_e3m2, "OCP Microscaling v1.0, section 5.2"},
    {"mxfp6_e2m3", mxfp6_e2m3, "OCP Microscaling v1.0, section 5.2"},
    {"mxfp4", mxfp4, "OCP Microscaling v1.0, section 5.2"},
    {"nvfp4", nvfp4, "NVIDIA Blackwell: block 16, scale fp8_e4m3fn, one float32 for the tensor"},
    {"nvfp4_e5m3", nvfp4_e5m3, "auto-round NVFP4_E5M3 and Quark amdfp4 with a tensor scale: block 16, scale ue5m3"},
    {"amdfp4", amdfp4, "AMD Quark amdfp4: block 16, scale ue5m3, no tensor scale"},
    {"amdfp4_g32", amdfp4_g32, "AMD Quark amdfp4: block 32, scale ue5m3, no tensor scale"},
    {"amdfp4_global_g32", amdfp4_global_g32, "AMD Quark amdfp4 with a tensor scale: block 32, scale ue5m3"},
    {"nf4", nf4, "Dettmers et al., QLoRA, NeurIPS 2023; bitsandbytes"},
    {"posit8", posit8, "Posit Standard 2022: 8 bits, es = 2"},
    {"lns8", lns8, "sign and logarithm: 2^(n / 8), n from -63 to 63"},
    {"apot4", apot4, "additive powers of two, unsigned: Li et al., ICLR 2020"},
    {"mxfp4_e3m0", mxfp4_e3m0, "OCP Microscaling's blocks of fp4_e3m0"},
    {"mxfp4_e1m2", mxfp4_e1m2, "OCP Microscaling's blocks of fp4_e1m2"},
    {"nvfp4_e3m0", nvfp4_e3m0, "NVFP4's blocks of fp4_e3m0"},
    {"nvfp4_e1m2", nvfp4_e1m2, "NVFP4's blocks of fp4_e1m2"},
};

inline namespace QK_ISA {

/// Returns the catalogue's entry of that name, or null.
constexpr const named_format* find_format(std::string_view name) {
    for (const named_format& entry : catalogue) {
        if (entry.name == name) return &entry;
    }
    return nullptr;
}

/// Returns the catalogue's entry with exactly that value, or null.
constexpr const named_format* find_format(const format& f) {
    if (is_read_only(f)) return nullptr;  // they have names of their own
    return detail::with_family(f, [](const auto& g) -> const named_format* {
        for (const named_format& entry : catalogue) {
            const auto* same = std::get_if<std::remove_cvref_t<decltype(g)>>(&entry.format);
            if (same != nullptr && *same == g) return &entry;
        }
        return nullptr;
    });
}

}  // namespace QK_ISA

}  // namespace qk
