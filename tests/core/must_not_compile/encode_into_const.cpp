// SPDX-License-Identifier: Apache-2.0
// expect: packed codes are written: neither const nor temporary
#include <qk/codec.hpp>
#include <vector>
void use(const qk::format& f, std::span<const float> x, const std::vector<std::byte>& packed) { (void)qk::encode(f, x, packed); }
