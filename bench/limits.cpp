// SPDX-License-Identifier: Apache-2.0
// Measures the limits of limits.hpp alone, and hash/BYTES, which makes random bits for every element. Compare the ratios of bench/kernels
// with these.
#include "limits.hpp"

#include "program.hpp"
#include "qk/kernels/choose.hpp"

int main(int argc, char** argv) {
    using namespace qk;
    using namespace qk::kernels;
    bench::add_all_operations();
    const random_source source(semantics{.rounding = rounding::stochastic});
    const fast_rounding<native> rounds(rounding::stochastic, source);
    bench::add_limit("hash", [rounds](vf<native> v, std::size_t i) { return as_float<native>(as_int<native>(v) ^ rounds.words(i)); });
    return bench::run_program(argc, argv);
}
