// SPDX-License-Identifier: Apache-2.0
// What write() puts into a file: each stored tensor's type, shape and size, known before its bytes are made.
#pragma once

#include <deque>
#include <functional>

#include "parts.hpp"

namespace qk::checkpoint {

using byte_sink = std::function<void(std::span<const std::byte>)>;

struct planned_tensor {
    std::string name, type;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes = 0;
    std::function<void(const byte_sink&)> produce;
};

/// Plans every tensor of the output. `like` may be null. `changes` gets an entry for each weight, which is filled when its tensors are
/// made. Throws error where a request cannot be met.
std::vector<planned_tensor> plan_of(const checkpoint& c, const checkpoint* like, const requests& asked, bool gguf,
                                    std::vector<std::string>& notes, std::deque<weight_change>& changes);

/// Quantizes by the rule that use_matrix_quantizer has given; nullopt without one.
std::optional<quantized_parts> matrix_made_by(std::string_view system, const weight& model, std::span<const float> values);

/// Quantizes a matrix into the integers or FP8 of `model`, by the rule of its system; nullopt for other layouts. `symmetric`: zero points,
/// where there are any, are those of the middle code. `group_of`: as in matrix_planes.
std::optional<quantized_parts> quantized_like(std::string_view system, bool symmetric, const weight& model,
                                              std::span<const std::byte> group_of, std::span<const float> values);
/// Throws error where finite values of `w` got scales in the layout of `model` that are no finite numbers: beyond float16, or of zeros.
void check_scales(const weight& w, const weight& model, const quantized_parts& made, std::span<const float> values);

/// The keys and values of a GGUF, some of them changed; `count` becomes their number.
struct changed_keys {
    bool without_split = false;                                   ///< leaves out those that say that a file is a part
    std::map<std::string, std::optional<std::uint32_t>> numbers;  ///< in the place of what a key has, or behind the last; nullopt: left out
};
std::string key_values_with(const checkpoint& c, const changed_keys& changes, std::uint64_t& count);
/// The config.json beside a file; an empty object without one.
nlohmann::json config_beside(const checkpoint& c);
/// model_type of the config beside a safetensors file; "unknown" without one.
std::string architecture_of(const checkpoint& c);

}  // namespace qk::checkpoint
