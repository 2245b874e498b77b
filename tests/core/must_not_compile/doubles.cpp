// SPDX-License-Identifier: Apache-2.0
// expect: no matching function
#include <qk/fake_quantize.hpp>
#include <vector>
void use(std::vector<double>& x) { qk::fake_quantize<qk::mxfp4>(x, x); }
