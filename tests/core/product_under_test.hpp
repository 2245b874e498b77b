// SPDX-License-Identifier: Apache-2.0
// Selects the products that a program tests, as under_test.hpp does for the other kernels.
#pragma once

#include "under_test.hpp"

#if defined(QK_TEST_ISA)

#include "qk/product.hpp"

namespace under_test {
using qk::product;
}

#else

#include "qk/product/activation.hpp"
#include "qk/product/whole_numbers.hpp"

namespace under_test {
using qk::dispatch::product;
}

#endif
