// SPDX-License-Identifier: Apache-2.0
// expect: the template argument is a value, for instance qk::mxfp4
#include <cstdint>
#include <vector>

#include "qk/product.hpp"
void f(const qk::packed_weights& w, const std::vector<float>& x, std::vector<float>& y) { qk::product<qk::microscaling>(w, x, y); }
