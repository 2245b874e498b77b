// SPDX-License-Identifier: Apache-2.0
// expect: the first argument is a format
#include <cstdint>
#include <vector>

#include "qk/product.hpp"
void f(const qk::packed_weights& w, const std::vector<float>& x, std::vector<float>& y) { qk::product("mxfp4", w, x, y); }
