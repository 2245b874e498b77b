// SPDX-License-Identifier: Apache-2.0
// Selects the products that a program tests, as under_test.hpp does for the other kernels.
#pragma once

#include "under_test.hpp"

#if defined(QK_TEST_ISA)

#include "qk/product.hpp"

namespace under_test {
using qk::dot_rows;
using qk::grouped_product;
using qk::product;
using qk::round_vectors;
using qk::weighted_rows;
template <auto Format>
qk::input_rounding rounded_to() {
    return qk::rounded_to<Format>();
}
}  // namespace under_test

#else

#include "qk/product/activation.hpp"
#include "qk/product/whole_numbers.hpp"

namespace under_test {
using qk::dispatch::dot_rows;
using qk::dispatch::grouped_product;
using qk::dispatch::product;
using qk::dispatch::round_vectors;
using qk::dispatch::weighted_rows;
template <auto Format>
qk::input_rounding rounded_to() {
    static const qk::format f = Format;
    return qk::dispatch::rounded_to(f);
}
}  // namespace under_test

#endif
