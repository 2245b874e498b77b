// SPDX-License-Identifier: Apache-2.0
// The functions behind the rules, a source for each system; systems.cpp has their table. A function that stands for several formats reads
// from the rule's format name which one is meant.
#pragma once

#include "qk/systems.hpp"

namespace qk::systems {

result te_nvfp4(const rule&, const input&);
result te_columnwise(const rule&, const input&);
result te_mxfp4(const rule&, const input&);
result te_fp8_current(const rule&, const input&);

result modelopt_nvfp4(const rule&, const input&);
result modelopt_nvfp4_static(const rule&, const input&);
result modelopt_mxfp4(const rule&, const input&);
result modelopt_mxfp4_to_nvfp4(const rule&, const input&);
result modelopt_mxfp8(const rule&, const input&);
result modelopt_fp8_fake(const rule&, const input&);
result modelopt_fp8_packed(const rule&, const input&);
result modelopt_int4(const rule&, const input&);

result ct_nvfp4(const rule&, const input&);
result ct_mx(const rule&, const input&);
result ct_fp8(const rule&, const input&);
result ct_int(const rule&, const input&);

result torchao_mx(const rule&, const input&);
result torchao_nvfp4(const rule&, const input&);

result ar_mx(const rule&, const input&);
result ar_mxuint4(const rule&, const input&);
result ar_nvfp4(const rule&, const input&);
result ar_nvfp4_e5m3(const rule&, const input&);
result ar_ue5m3(const rule&, const input&);
result ar_int(const rule&, const input&);
result ar_fp8_block(const rule&, const input&);

result quark_mxfp4(const rule&, const input&);
result quark_nvfp4(const rule&, const input&);
result quark_amdfp4(const rule&, const input&);
result quark_fp8_e5m3(const rule&, const input&);
result quark_ue5m3(const rule&, const input&);
result quark_int4(const rule&, const input&);

result mlx_fp(const rule&, const input&);
result mlx_affine(const rule&, const input&);

result ggml_rule(const rule&, const input&);
result gguf_rule(const rule&, const input&);
result ml_dtypes_int(const rule&, const input&);

}  // namespace qk::systems
