// SPDX-License-Identifier: Apache-2.0
// The rules of the walk, which rows of operators name. Each says of a node's outputs what follows from what is known of its inputs.
#pragma once

namespace qk::graph::ops {

class walk_call;

// elements.cpp: operators of elements, of axes, and quantizers
void follow_elements(walk_call&);
void follow_qlinear_elements(walk_call&);
void follow_unary(walk_call&);
void follow_cast(walk_call&);
void follow_bit_cast(walk_call&);
void follow_dropout(walk_call&);
void follow_softmax(walk_call&);
void follow_qlinear_softmax(walk_call&);
void follow_along_attribute(walk_call&);
void follow_cumulative(walk_call&);
void follow_reduce(walk_call&);
void follow_arg(walk_call&);
void follow_top_k(walk_call&);
void follow_layer_normalization(walk_call&);
void follow_skip_normalization(walk_call&);
void follow_mean_variance(walk_call&);
void follow_normalization_of_channels(walk_call&);
void follow_quantize(walk_call&);
void follow_block_quantize(walk_call&);
void follow_dynamic_quantize(walk_call&);
void follow_all_samples(walk_call&);

// shapes.cpp: operators that move elements or make shapes
void follow_reshape(walk_call&);
void follow_flatten(walk_call&);
void follow_unsqueeze(walk_call&);
void follow_squeeze(walk_call&);
void follow_transpose(walk_call&);
void follow_expand(walk_call&);
void follow_constant_of_shape(walk_call&);
void follow_range(walk_call&);
void follow_tile(walk_call&);
void follow_concat(walk_call&);
void follow_qlinear_concat(walk_call&);
void follow_split(walk_call&);
void follow_slice(walk_call&);
void follow_pad(walk_call&);
void follow_gather(walk_call&);
void follow_gather_block_quantized(walk_call&);
void follow_gather_elements(walk_call&);
void follow_gather_nd(walk_call&);
void follow_scatter_elements(walk_call&);
void follow_scatter_nd(walk_call&);
void follow_blocks(walk_call&);
void follow_reverse_sequence(walk_call&);
void follow_triangle(walk_call&);
void follow_compress(walk_call&);
void follow_one_hot(walk_call&);
void follow_center_crop_pad(walk_call&);
void follow_resize(walk_call&);
void follow_shape(walk_call&);
void follow_affine_grid(walk_call&);

// layers.cpp: products, windows, recurrent layers, attention
void follow_matmul(walk_call&);
void follow_matmul_integer(walk_call&);
void follow_qlinear_matmul(walk_call&);
void follow_fused_matmul(walk_call&);
void follow_matmul_bits(walk_call&);
void follow_gemm(walk_call&);
void follow_qgemm(walk_call&);
void follow_einsum(walk_call&);
void follow_conv(walk_call&);
void follow_conv_integer(walk_call&);
void follow_qlinear_conv(walk_call&);
void follow_fused_conv(walk_call&);
void follow_conv_transpose(walk_call&);
void follow_deform_conv(walk_call&);
void follow_pool(walk_call&);
void follow_grid_sample(walk_call&);
void follow_columns_to_image(walk_call&);
void follow_recurrent(walk_call&);
void follow_attention(walk_call&);
void follow_flex_attention(walk_call&);
void follow_cache_write(walk_call&);
void follow_microsoft_attention(walk_call&);
void follow_multi_head_attention(walk_call&);
void follow_group_query_attention(walk_call&);
void follow_rotary(walk_call&);
void follow_linear_attention(walk_call&);
void follow_causal_conv(walk_call&);
void follow_experts(walk_call&);
void follow_embeddings(walk_call&);
void follow_stft(walk_call&);
void follow_dft(walk_call&);

}  // namespace qk::graph::ops
