// SPDX-License-Identifier: Apache-2.0
// One weight in another layout: its codes are moved where they hold, or it is quantized anew; what that cost is measured on the way.
#pragma once

#include <memory>
#include <optional>

#include "lost_numbers.hpp"
#include "parts.hpp"
#include "planned.hpp"

namespace qk::checkpoint {

/// Adds the power of `was` and of what differs in `factor` times `is` to a change's sums.
void add_difference(weight_change& change, std::span<const float> was, std::span<const float> is, float factor = 1);
/// Throws error where a change has cost something and `lossless` is asked for.
void check_lossless(const weight_change& change, bool lossless, const std::string& why);

/// Where a weight goes.
struct remade_target {
    layout how;
    std::uint64_t stack = 1;
    matrix_shape matrix;
    bool turned = false;                    ///< the matrices of decode()'s floats have the target's columns first
    bool movable = false;                   ///< codes can be moved as far as layouts tell; the data decide
    bool scale_beside = false;              ///< a global scale is stored beside, as ggml's NAME.scale
    std::string system{};                   ///< whose rule quantizes
    bool symmetric = false;                 ///< zero points that are made are those of the middle code
    const weight* model = nullptr;          ///< a weight of the other checkpoint, or null: ggml's blocks
    std::span<const std::byte> group_of{};  ///< of the columns, as they are written
    std::function<void(const std::function<void(std::span<const float>)>&)> values{};  ///< hands on the floats that the output is to hold
    std::function<void(lost_numbers&)> say{};                                          ///< says which of them were lost
    std::function<importance_rows()> importance{};                                     ///< of the columns, for ggml's blocks
    int threads = 1;                                                                   ///< that quantize into ggml's blocks
    bool lossless = false, requantize = false;
    std::string refusal{};  ///< why codes cannot be moved
};

/// Makes the parts of one weight, matrix by matrix.
class remade_weight {
  public:
    remade_weight(const checkpoint& c, const weight& w, remade_target target, weight_change& change, std::function<void(std::string)> note);

    /// Codes, scales, zero points or global scale (plane 0 to 3). With the codes the weight is measured.
    void produce(int plane, const byte_sink& sink);

  private:
    bool moves();
    repack_result moved_matrix(std::uint64_t m, quantized_parts& parts) const;
    void move(int plane, const byte_sink& sink);
    void beside(const byte_sink& sink);
    float outside(std::uint64_t m) const;
    void quantize_blocks(const byte_sink& sink);
    void quantize_by_rule(int plane, const byte_sink& sink);
    quantized_parts by_rule(std::span<const float> matrix) const;
    void measure(std::span<const float> was, std::span<const float> is);
    void measure_moved(std::uint64_t m, const quantized_parts& parts);

    const checkpoint& c_;
    const weight& w_;
    remade_target to_;
    weight_change& change_;
    lost_numbers lost_;
    std::function<void(std::string)> note_;
    std::optional<bool> moves_;
    std::optional<quantized_parts> decided_;  ///< what a single matrix became while it was looked at
    std::string why_;                         ///< what is not the same
};

}  // namespace qk::checkpoint
