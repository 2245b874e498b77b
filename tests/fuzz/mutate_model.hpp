// SPDX-License-Identifier: Apache-2.0
// Changes to an ONNX model that keep it a protobuf: bytes changed at random hardly ever get past the parser.
#pragma once

#include <onnx/onnx_pb.h>

#include <random>

namespace qk_fuzz {

using random_source = std::minstd_rand;
/// Changes raw bytes in place and returns their number.
using byte_mutator = std::size_t (*)(std::uint8_t* data, std::size_t size, std::size_t most);

/// A few random changes anywhere in the model: numbers to edges of their range, names to other names, operators to other operators,
/// elements of lists dropped, doubled or taken from `donor` (may be the model itself).
void mutate_model(onnx::ModelProto& m, const onnx::ModelProto& donor, random_source& random, byte_mutator change_bytes);

}  // namespace qk_fuzz
