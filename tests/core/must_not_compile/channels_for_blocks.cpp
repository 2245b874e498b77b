// SPDX-License-Identifier: Apache-2.0
// expect: block formats take theirs from the data
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<float> y, const qk::per_channel& c) { qk::fake_quantize<qk::bfp16>(x, y, c); }
