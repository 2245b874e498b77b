// SPDX-License-Identifier: Apache-2.0
// Tests that the core neither allocates nor throws: operator new counts while every format runs, and the functions are noexcept.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "qk/codec.hpp"
#include "qk/qk.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

namespace {
std::size_t allocations = 0;
}

// The compiler cannot see that both new and delete are replaced.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t n) {
    ++allocations;
    if (void* p = std::malloc(n)) return p;
    std::abort();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("fake_quantize, encode and decode do not allocate") {
    const qk::along_axis axis{2, 40, 16};
    const std::vector<test_format> formats = all_formats();
    const std::vector<float> x = make_inputs(data::special, 2 * 40 * 16, 3);
    std::vector<float> y(x.size());
    std::vector<std::byte> packed(x.size() * 8);
    std::size_t during = 0;
    for (const test_format& f : formats) {
        for (const qk::rounding r : {qk::rounding::half_even, qk::rounding::stochastic}) {
            qk::semantics how;
            how.rounding = r;
            const std::size_t before = allocations;
            under_test::fake_quantize(f.format, x, y, how);
            under_test::fake_quantize(f.format, x, y, axis, how);
            const auto status = under_test::encode(f.format, std::span<const float>(x), std::span<std::byte>(packed), {}, how);
            if (status == qk::encode_status::done) under_test::decode(f.format, std::span<const std::byte>(packed), std::span<float>(y));
            during += allocations - before;
        }
    }
    CHECK(during == 0);
}

static_assert(noexcept(qk::fake_quantize<qk::mxfp4>(std::span<const float>(), std::span<float>())));
static_assert(noexcept(qk::fake_quantize(std::declval<const qk::format&>(), std::span<const float>(), std::span<float>())));
static_assert(noexcept(qk::encode<qk::mxfp4>(std::declval<const qk::values_in&>(), std::span<std::byte>())));
