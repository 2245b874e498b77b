// SPDX-License-Identifier: Apache-2.0
// Rotates the residual stream of a transformer into another basis: x becomes x Q with Q orthogonal, so that large values of few channels
// spread over all of them. Ashkboos et al. 2024 (QuaRot), https://arxiv.org/abs/2404.00456, section 4, stages 1a and 1b.
//
// For a stream x with H channels and Q [H, H]:
//   (1) what writes it:        x = z W + b         becomes  x Q = z (W Q) + b Q; a table of embeddings E becomes E Q
//   (2) RMS normalization:     ||x Q|| = ||x||, so it stays; its gain g goes into what reads it
//   (3) what reads it:         y = (g * x / rms(x)) W  becomes  y = (x Q / rms(x Q)) (Q^T diag(g) W)
//   (4) Q = D (S (x) C): D signs drawn from a seed, S the Hadamard matrix of 2^k (Sylvester's), C the Hartley matrix of H / 2^k,
//       c_ij = (cos(2 pi i j / n) + sin(2 pi i j / n)) / sqrt(n), which is 1 where H is a power of two
// The outputs of the model stay the same up to rounding; the model stays plain ONNX and gains no node. A stream is not rotated if something
// that reads or writes it cannot take Q: a LayerNormalization (it subtracts the mean), a gain whose result is not read by products with
// constants alone, an input or an output of the model, or any other operator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qk/graph/quantize/learning.hpp"

namespace qk::learn {

/// What qk::graph::rotate_streams() (qk/graph/quantize/learning.hpp) says.
std::vector<graph::rotated_stream> rotate_streams(graph::model& m, std::uint64_t seed);

/// The matrix Q of equation (4), kept as its factors.
class rotation {
  public:
    explicit rotation(std::size_t channels, std::uint64_t seed = 0);
    std::size_t channels() const { return sign_.size(); }
    void times(std::span<double> row) const;  ///< row becomes row Q

  private:
    std::vector<double> sign_;
    std::size_t rest_;  ///< H / 2^k
    std::vector<double> hartley_;
};

}  // namespace qk::learn
