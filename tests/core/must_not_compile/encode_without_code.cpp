// SPDX-License-Identifier: Apache-2.0
// expect: this semantics gives NaN, Inf or scales for which the format has no code
#include <qk/codec.hpp>
void use(std::span<const float> x, std::span<std::byte> packed) { qk::encode<qk::mxfp4, qk::semantics::quark>(x, packed); }
