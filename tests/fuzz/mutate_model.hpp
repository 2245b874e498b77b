// SPDX-License-Identifier: Apache-2.0
// Changes an ONNX model so that it stays a protobuf: bytes changed at random hardly ever get past the parser.
#pragma once

#include <onnx/onnx_pb.h>

#include <random>

namespace qk_fuzz {

using random_source = std::minstd_rand;
/// Changes raw bytes in place, to `most` bytes at most. Returns their new number.
using byte_mutator = std::size_t (*)(std::uint8_t* data, std::size_t size, std::size_t most);

/// Makes one to three random changes anywhere in the model: numbers become neighbours or edges of their range, names other names, operators
/// other operators; elements of lists are dropped, swapped, added or copied from `donor` (may be the model itself). Now and then a function
/// of the model, or a new one, gets others that call it, one another in chains or one many times.
void mutate_model(onnx::ModelProto& m, const onnx::ModelProto& donor, random_source& random, byte_mutator change_bytes);

}  // namespace qk_fuzz
