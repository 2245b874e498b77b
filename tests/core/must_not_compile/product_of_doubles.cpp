// SPDX-License-Identifier: Apache-2.0
// expect: numbers to read are a span, vector or array of float
#include <cstdint>
#include <vector>

#include "qk/product.hpp"
void f(const qk::packed_weights& w, const std::vector<double>& x, std::vector<float>& y) { qk::product<qk::mxfp4>(w, x, y); }
