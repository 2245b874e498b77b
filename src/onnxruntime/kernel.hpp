// SPDX-License-Identifier: Apache-2.0
// What the operators compute in a run: qk::dispatch on parts of a tensor, on the session's threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "onnxruntime/api.hpp"
#include "onnxruntime/meaning.hpp"
#include "qk/parameters.hpp"

namespace qk::onnxruntime {

/// What a session finds out once about the scales and zero points of a packed constant: a matrix has one for 32 weights or so, and a run
/// that multiplies one vector would spend its time on them.
struct constant_scales {
    class kept_memory {
      public:
        template <class T>
        std::span<T> room_for(std::size_t n) {
            if (n == 0) return {};
            rooms_.push_back(std::make_unique<std::byte[]>(n * sizeof(T)));
            return {reinterpret_cast<T*>(rooms_.back().get()), n};
        }

      private:
        std::vector<std::unique_ptr<std::byte[]>> rooms_;
    };
    bool known = false;           ///< scales are finite numbers above 0, and zero points are these
    zero_points_in zero_point{};  ///< empty: all are 0
    kept_memory memory;
};
/// Returns an input of a node where it is a constant of the model or left out, else nothing.
using constant_input = std::function<std::optional<input_tensor>(std::size_t)>;
/// Looks at the inputs of decode or product, from number `first` on.
constant_scales look_at_constants(const call_meaning& m, std::size_t first, const constant_input& input);

/// Inputs: x, then `scale` and `zero_point` where the call has them. The result has x's shape, and the bits of qk::fake_quantize.
void quantize(const call_meaning& m, run_context& run);
/// The same for values of this shape; y may be x.
void quantize(const call_meaning& m, std::span<const std::int64_t> shape, std::span<const float> x, std::span<float> y,
              const input_tensor& scale, const input_tensor& zero_point, run_context& run);

/// Inputs: the planes of codes, of scales and of shifts as far as the format has them, then `scale`, and zero points as numbers or packed
/// like the codes. The result has the bits of qk::decode.
void decode(const call_meaning& m, const constant_scales& known, run_context& run);

/// Inputs: x of this type, float32 or one of 16 bits, [..., inputs]; a bias where the meaning has one; then those of decode. The result,
/// [..., outputs] in x's type, has the bits of qk::product.
void product(const call_meaning& m, const constant_scales& known, ONNXTensorElementDataType type, run_context& run);

/// Inputs: numbers of rows, int64 or int32, those below 0 counted from the end; then those of decode, of a table. The result, [..., values
/// of a row], has the bits of qk::decode. No other row is decoded but the seven neighbours with whose codes its own may share bytes.
void rows(const call_meaning& m, run_context& run);

}  // namespace qk::onnxruntime
