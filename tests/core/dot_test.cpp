// SPDX-License-Identifier: Apache-2.0
// Compares dot products with the oracle in whole numbers, with plain loops, and with cases of every algorithm of the catalogue that
// bench/dot_python.py made.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "dot_batches.hpp"
#include "evidence.hpp"
#include "qk/dot/rounded_columns.hpp"
#include "qk/dot/text.hpp"

using namespace qk;

TEST_CASE("every kind of accumulator equals the oracle on 10^5 random and adversarial dot products") {
    const char* wanted = std::getenv("QK_DOT_COUNT");
    const std::size_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 100000;
    const std::vector<dot_kind> kinds = dot_kinds();
    constexpr std::size_t pieces = 8;  // so that many processors have work until the end
    struct tally {
        std::atomic<std::size_t> mismatches{0}, pieces_done{0};
    };
    std::vector<tally> of(kinds.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i; (i = next++) < kinds.size() * pieces;) {
            tally& t = of[i / pieces];
            t.mismatches += compare_dots(kinds[i / pieces], count / pieces, 1000 * i + 17);
            if (++t.pieces_done == pieces && wanted != nullptr)  // a long run reports its progress
                std::fprintf(stderr, "%s: %zu dot products, %zu mismatches\n", kinds[i / pieces].name, count / pieces * pieces,
                             t.mismatches.load());
        }
    };
    std::vector<std::thread> pool;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) pool.emplace_back(work);
    work();
    for (std::thread& t : pool) t.join();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        CHECK_MESSAGE(check_operands(kinds[i].a, kinds[i].b, kinds[i].how).empty(), kinds[i].name);
        CHECK_MESSAGE(of[i].mismatches == 0, kinds[i].name);
        record_evidence("dot", std::string("whole numbers: ") + kinds[i].name, "any", count, of[i].mismatches);
    }
}

namespace {

std::vector<float> some_floats(std::size_t n, std::uint64_t seed) { return make_inputs(data::ordinary, n, seed); }

/// Returns x as fp32 codes, which are the floats' bits.
std::vector<std::byte> packed(const std::vector<float>& x) {
    std::vector<std::byte> bytes(4 * x.size());
    if (!x.empty()) std::memcpy(bytes.data(), x.data(), bytes.size());
    return bytes;
}

}  // namespace

TEST_CASE("sequential float32 is a plain loop") {
    for (const std::size_t n : {0, 1, 2, 17, 255, 256, 257, 1000}) {
        const std::vector<float> x = some_floats(n, 1 + n), y = some_floats(n, 77 + n);
        const auto a = packed(x), b = packed(y);
        float loop = 0.25f, fused = 0.25f;
        for (std::size_t i = 0; i < n; ++i) {
            const volatile float product = x[i] * y[i];  // no contraction
            loop += product;
            fused = std::fma(x[i], y[i], fused);
        }
        CHECK(dot<fp32, fp32, accumulators::loop_fp32>({a, n}, {b, n}, 0.25f) == loop);
        CHECK(dot<fp32, fp32, accumulators::sequential_fp32>({a, n}, {b, n}, 0.25f) == fused);
    }
}

TEST_CASE("results beside the smallest normal number: kernels, oracle, and columns in lanes") {
    accumulator subnormal = devices::pairs_of_bf16;
    subnormal.flush_tiny = false, subnormal.flush_partials = true;
    generator g{5};
    for (const auto& [f, how] : {std::pair{bf16, devices::pairs_of_bf16},
                                 {bf16, subnormal},
                                 {bf16, devices::tiles_of_bf16},
                                 {bf16, devices::two_of_bf16},
                                 {tf32, devices::tiles_of_tf32},
                                 {fp32, devices::partly_fused},
                                 {fp32, devices::column_of_fp32},
                                 {fp24, devices::pairs_of_bf16}}) {
        constexpr int lanes = 16;
        constexpr std::size_t k = 2;
        std::size_t wrong = 0, tiny = 0;
        for (int n = 0; n < 4000; ++n) {
            // The first product is near 2^-126, the second rounds it.
            const auto near = [&](std::uint32_t e) {
                const float x = assemble(g.below(2) != 0, e, g.below(3) == 0 ? 0 : g.word() & (g.below(2) != 0 ? 0x600000u : 0x7fe000u));
                return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) >> (23 - f.mantissa_bits) << (23 - f.mantissa_bits));
            };
            const bool turned = g.below(2) != 0;
            float row[k], columns[k * lanes];
            for (std::size_t i = 0; i < k; ++i) row[i] = near((i == 0) != turned ? 64 : 52);
            for (std::size_t i = 0; i < k; ++i)
                for (int j = 0; j < lanes; ++j)
                    columns[i * lanes + static_cast<std::size_t>(j)] = near(((i == 0) != turned ? 63 : 50) + g.below(3));
            std::uint64_t codes[lanes] = {};
            const bool columnwise = device_sums::serves_rounded_columns(how, f, f);
            if (columnwise) device_sums::rounded_row<lanes>(how, k, row, columns, lanes, codes);
            for (std::size_t j = 0; j < lanes; ++j) {
                const auto code = [&](float x) { return std::uint64_t{std::bit_cast<std::uint32_t>(x) >> (23 - f.mantissa_bits)}; };
                const reference::dot_row a{{code(row[0]), code(row[1])}, {}, {}}, b{{code(columns[j]), code(columns[lanes + j])}, {}, {}};
                const packed_dot_rows pa(f, a), pb(f, b);
                const std::uint64_t c = 0;
                std::uint64_t d = 0;
                matrix_multiply_add(f, f, how, {1, 1, k}, pa.matrix(), pb.matrix(), std::span(&c, 1), std::span(&d, 1));
                const double right = reference::dot(f, f, how, a, b, 0.0);
                wrong += d != std::bit_cast<std::uint32_t>(static_cast<float>(right)) || (columnwise && codes[j] != d);
                tiny += (d & 0x7fffffffu) == 0;
            }
        }
        CHECK_MESSAGE(wrong == 0, to_text(how).view());
        CHECK(tiny > 100);
    }
    // 2^-126 - 2^-150 as a Zen 4 adds it: with subnormals it would be rounded to 2^-126.
    const auto of = [](accumulator how) {
        const reference::dot_row a{{0x1a00, 0}, {}, {}}, b{{0x9a00, 0}, {}, {}};
        return reference::dot(bf16, bf16, how, a, b, 0x1p-126);
    };
    CHECK(of(devices::pairs_of_bf16) == 0);
    CHECK(of(subnormal) == 0x1p-126);
}

TEST_CASE("cases of every algorithm, made by bench/dot_python.py in exact fractions") {
    std::ifstream file(std::string(QK_SOURCE_DIR) + "/tests/data/dot_goldens.txt");
    REQUIRE(file);
    const auto numbers = [](const std::string& text) {
        std::vector<std::uint64_t> v;
        std::istringstream words(text);
        for (std::string w; std::getline(words, w, ',');) v.push_back(std::stoull(w, nullptr, 16));
        return v;
    };
    std::size_t cases = 0;
    for (std::string line; std::getline(file, line); ++cases) {
        std::vector<std::string> field;
        std::istringstream parts(line);
        for (std::string part; std::getline(parts, part, ';');) field.push_back(part);
        REQUIRE(field.size() == 7);
        const device* d = find_device(field[0]);
        REQUIRE_MESSAGE(d != nullptr, field[0]);
        const auto scales = [&](const std::string& text) {
            std::vector<std::uint32_t> v;
            for (const std::uint64_t n : numbers(text)) v.push_back(static_cast<std::uint32_t>(n));
            return v;
        };
        const reference::dot_row a{numbers(field[1]), scales(field[4]), {}}, b{numbers(field[2]), scales(field[5]), {}};
        const std::uint64_t c = numbers(field[3])[0], expected = numbers(field[6])[0];
        const packed_dot_rows pa(d->a, a), pb(d->b, b);
        std::uint64_t code = 0;
        matrix_multiply_add(d->a, d->b, d->accumulator, {1, 1, a.elements.size()}, pa.matrix(), pb.matrix(),
                            std::span<const std::uint64_t>(&c, 1), std::span<std::uint64_t>(&code, 1));
        const floating f = d->accumulator.result == fp16 ? fp16 : fp32;
        const auto nan = [&](std::uint64_t v) { return (v & (detail::sign_of(f) - 1)) > detail::infinity_of(f); };
        CHECK_MESSAGE((code == expected || (nan(code) && nan(expected))), line);
    }
    CHECK(cases == 336);
}

TEST_CASE("integer registers wrap or saturate at any width") {
    const std::vector<std::byte> most(8, std::byte{127}), least(8, std::byte{0x80});
    constexpr accumulator wrap16{.sum = summation::integer, .width = 16},
        stop16{.sum = summation::integer, .groups = 1, .width = 16, .saturate = true};
    CHECK(dot<int8, int8, wrap16>({most, 4}, {most, 4}) == 4 * 127 * 127 - 65536);
    CHECK(dot<int8, int8, stop16>({most, 4}, {most, 4}) == 32767);
    CHECK(dot<int8, int8, stop16>({most, 4}, {least, 4}) == -32768);
    CHECK(dot<int8, uint8, accumulators::int32_wrapping>({least, 8}, {least, 8}, std::int64_t{5}) == 8 * -128 * 128 + 5);
    CHECK(dot<int8, int8, accumulators::int32_wrapping>({least, 8, -3}, {most, 8, 2}) == 8 * (-128 + 3) * (127 - 2));
    dot_counts counts;
    dot<int8, int8, stop16>({most, 4}, {most, 4}, 0, &counts);
    CHECK(counts.saturation == 1);
    generator g{11};
    for (int n = 0; n < 20000; ++n) {  // any width and group, against plain sums
        const int width = 2 + static_cast<int>(g.below(40)), group = 1 + static_cast<int>(g.below(5));
        const bool stop = g.below(2) == 0;
        const std::size_t k = g.below(12);
        std::vector<std::byte> a(k), b(k);
        for (std::size_t i = 0; i < k; ++i) a[i] = static_cast<std::byte>(g.word()), b[i] = static_cast<std::byte>(g.word());
        const accumulator how{.sum = summation::integer, .groups = group, .width = width, .saturate = stop};
        const std::int64_t half = std::int64_t{1} << (width - 1);
        const auto hold = [&](std::int64_t v) {
            if (stop) return std::clamp(v, -half, half - 1);
            const std::int64_t m = ((v + half) % (2 * half) + 2 * half) % (2 * half);
            return m - half;
        };
        std::int64_t sum = hold(1000);
        for (std::size_t i = 0; i < k;) {
            std::int64_t part = 0;
            for (int j = 0; j < group && i < k; ++j, ++i)
                part += std::int64_t{static_cast<std::int8_t>(a[i])} * static_cast<std::int8_t>(b[i]);
            sum = hold(sum + part);
        }
        REQUIRE(static_cast<std::int64_t>(dot(format(int8), format(int8), how, {a, k}, {b, k}, 1000)) == sum);
    }
}

TEST_CASE("requantization: a float scale, gemmlowp's two roundings, TFLite's single one") {
    const requantization scale{.by = requantize_by::scale, .scale_bits = std::bit_cast<std::uint32_t>(0.5f), .zero_point = 3};
    CHECK(requantize(5, scale) == 5);    // 2.5 to even
    CHECK(requantize(-7, scale) == -1);  // -3.5 to even
    CHECK(requantize(1000, scale) == 127);
    generator g{12};
    for (int n = 0; n < 100000; ++n) {
        const auto v = static_cast<std::int32_t>(g.word()) >> g.below(32);
        const auto m = static_cast<std::int32_t>((1u << 30) + g.below(1u << 30));
        const int shift = static_cast<int>(g.below(20)) - 16;
        const requantization low{.by = requantize_by::gemmlowp, .multiplier = m, .shift = shift, .zero_point = 1, .output = int32};
        // gemmlowp in real numbers: round half away twice, each to a whole number.
        const auto away = [](long double x) { return x < 0 ? -std::floor(-x + 0.5L) : std::floor(x + 0.5L); };
        const long double raised =
            std::clamp<long double>(static_cast<long double>(v) * (shift > 0 ? std::ldexp(1.0L, shift) : 1), -0x1p31L, 0x1p31L - 1);
        const long double high = away(raised * m / 0x1p31L), low_value = shift > 0 ? high : away(std::ldexp(high, shift));
        REQUIRE(requantize(v, low) == static_cast<std::int64_t>(std::clamp<long double>(low_value + 1, -0x1p31L, 0x1p31L - 1)));
        requantization single = low;
        single.by = requantize_by::multiplier;
        const long double exact = std::floor(std::ldexp(static_cast<long double>(static_cast<std::int64_t>(v) * m), shift - 31) + 0.5L);
        REQUIRE(requantize(v, single) == static_cast<std::int64_t>(std::clamp<long double>(exact + 1, -0x1p31L, 0x1p31L - 1)));
    }
    bool limit = false;
    CHECK(requantize(1 << 20, {.by = requantize_by::gemmlowp, .multiplier = 1 << 30, .shift = 0}, &limit) == 127);
    CHECK(limit);
}

TEST_CASE("flags are counted on request, and do not change a bit") {
    const auto bits_of = [](float v) { return std::uint64_t{std::bit_cast<std::uint32_t>(v)}; };
    const std::vector<float> big{0x1p127f, 0x1p127f}, two{2, 2}, tiny{0x1p-100f, 0x1p-100f}, third{0x1.555556p-2f, 1};
    const auto count = [&](const std::vector<float>& x, const std::vector<float>& y, const accumulator& how, float c) {
        dot_counts n;
        const auto a = packed(x), b = packed(y);
        const std::uint64_t with = dot(fp32, fp32, how, {a, 2}, {b, 2}, bits_of(c), &n),
                            without = dot(fp32, fp32, how, {a, 2}, {b, 2}, bits_of(c));
        CHECK(with == without);
        return n;
    };
    for (const accumulator& how : {accumulators::exact, accumulators::loop_fp32, accumulators::pairwise_fp32}) {
        CHECK(count(big, two, how, 0) == dot_counts{.overflow = 1, .inexact = 1});
        CHECK(count(two, two, how, 1) == dot_counts{});
        CHECK(count(tiny, tiny, how, 0).underflow == 1);
        CHECK(count(third, third, how, 0).inexact == 1);
        CHECK(count(two, two, how, std::numeric_limits<float>::quiet_NaN()) == dot_counts{.nan = 1});
    }
    CHECK(count(third, third, devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator, 0).inexact == 1);
}

TEST_CASE("the oracle's sums without error hold the largest and smallest products of scaled blocks") {
    for (const int low : {-866, -704, 0, 700, 764}) {
        reference::long_sum sum;
        sum.add({1, low, true});
        sum.add({3, 764, false});
        sum.add({3, 764, true});
        sum.add({3, -866, false});
        sum.add({3, -866, true});
        const reference::real total = sum.total();
        CHECK(total.negative);
        CHECK(total.exponent() == low);
        CHECK((total.digits & (total.digits - 1)) == 0);
    }
}
