// SPDX-License-Identifier: Apache-2.0
// Tests kernels as a program that includes them compiles them: formats known when compiling, and 16-bit memory. QK_TEST_ISA names the
// instruction set that this file is compiled for.
#include "kernel_cases.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/lanes/code_lanes.hpp"

using namespace qk;

TEST_CASE("vectors of 16-bit floats widen and narrow as single ones do") {
    const auto check = [&]<class Half>(Half) {
        std::vector<Half> all(65536), narrowed;
        std::vector<float> wide(all.size()), around;
        for (std::uint32_t code = 0; code < 65536; ++code) all[code] = {static_cast<std::uint16_t>(code)};
        kernels::widen_all<native>(all.data(), all.size(), wide.data());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            wrong += std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(widen(all[i]));
        CHECK(wrong == 0);
        // Every value, every middle between two, their neighbours, and any bits.
        generator g{819};
        for (const float v : wide) {
            const auto u = std::bit_cast<std::uint32_t>(v);
            const auto next = std::bit_cast<std::uint32_t>(widen(Half{static_cast<std::uint16_t>(narrow<Half>(v).bits + 1)})),
                       middle = u / 2 + next / 2;
            for (const std::uint32_t bits : {u - 1, u, u + 1, middle - 1, middle, middle + 1, g.word(), g.word(), g.word() & 0xb8ffffffu})
                around.push_back(std::bit_cast<float>(bits));
        }
        around.push_back(0x1p-25f);  // leaves a tail
        narrowed.resize(around.size());
        kernels::narrow_all<native>(around.data(), around.size(), narrowed.data());
        wrong = 0;
        for (std::size_t i = 0; i < around.size(); ++i) wrong += narrowed[i].bits != narrow<Half>(around[i]).bits;
        CHECK(wrong == 0);
    };
    check(float16());
    check(bfloat16());
}

namespace {

/// Compares a compile-time form with the oracle.
template <auto f>
void compare_compile_time_form(const std::string& name) {
    const affine scale = scale_of(f);
    for (int kind = 0; kind < static_cast<int>(data::count); ++kind) {
        for (const test_semantics& s : {test_semantics{"ocp", semantics::ocp}, test_semantics{"quark", semantics::quark}}) {
            const along_axis axis{3, 17, 7};
            const std::size_t count = 3 * 17 * 7;
            const std::vector<float> x = make_inputs(data(kind), count, 55);
            std::vector<float> expected(count), actual(count);
            const std::string what = isa + " compile-time " + name + " " + name_of(data(kind));
            if constexpr (block_size(f) == 0 || std::is_same_v<std::remove_const_t<decltype(f)>, nvfloat>) {
                fake_quantize<f>(x, actual, scale, s.how);
            } else {
                fake_quantize<f>(x, actual, s.how);
            }
            reference::fake_quantize(f, x, expected, scale, s.how);
            CHECK(count_mismatches(x, expected, actual, what) == 0);
            if constexpr (block_size(f) != 0) {
                fake_quantize<f>(x, actual, axis, s.how);
                reference::fake_quantize(f, x, expected, axis, s.how);
                CHECK(count_mismatches(x, expected, actual, what + " axis") == 0);
            }
        }
    }
}

}  // namespace

// What is known of a format selects the loops that are compiled, so one format stands for each choice. (exhaustive_forms_test has all
// elementwise formats of the catalogue, bench/kernels all of at most 16 bits.)
TEST_CASE("the compile-time form gives the same bits") {
    compare_compile_time_form<fp8_e4m3fn>("fp8_e4m3fn");
    compare_compile_time_form<bf16>("bf16");
    compare_compile_time_form<e8m0>("e8m0");
    compare_compile_time_form<int8>("int8");
    compare_compile_time_form<bfp16>("bfp16");    // blocks of 8: half a vector of 16
    compare_compile_time_form<mx9>("mx9");        // blocks of 16, in pairs
    compare_compile_time_form<mxint8>("mxint8");  // blocks of 32, one grid step for the block
    compare_compile_time_form<mxfp4>("mxfp4");    // blocks of 32, a grid step for each element
    compare_compile_time_form<nvfp4>("nvfp4");
    compare_compile_time_form<block_float{.block_size = 64, .exponent_bits = 8, .mantissa_bits = 5}>(
        "bfp64");  // more vectors in a block than are unrolled
    compare_compile_time_form<block_float{.block_size = 7, .exponent_bits = 8, .mantissa_bits = 5}>("bfp7");  // no tiles
}
