// SPDX-License-Identifier: Apache-2.0
// Cases of operators that ONNX's node tests do not cover; expected results follow the standard's text, or ONNX Runtime for its operators.
#include <doctest/doctest.h>

#include "call_op.hpp"

using namespace qk::graph;
using qk_test::call_op;

namespace {

tensor floats(dims shape, std::vector<float> v) { return make_tensor<float>(shape, v); }
tensor integers(std::vector<std::int64_t> v) { return make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v); }
tensor codes(dims shape, std::vector<std::uint8_t> v) { return make_tensor<std::uint8_t>(shape, v); }
tensor scalar(float v) { return floats({}, {v}); }
template <class T>
std::vector<T> values(const tensor& t) {
    return {t.as<T>().begin(), t.as<T>().end()};
}
std::vector<float> counted(std::size_t n) {
    std::vector<float> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i + 1);
    return v;
}

}  // namespace

TEST_CASE("Resize, pytorch_half_pixel: a result of one element comes from coordinate 0") {
    const tensor x = floats({1, 1, 6, 6}, counted(36));
    for (const char* mode : {"cubic", "linear", "nearest"})
        for (const bool sizes : {true, false}) {
            const qk_test::attributes how{{"coordinate_transformation_mode", std::string("pytorch_half_pixel")},
                                          {"mode", std::string(mode)}};
            const tensor y = sizes ? call_op("Resize", 13, {x, {}, {}, integers({1, 1, 1, 1})}, how)[0]
                                   : call_op("Resize", 13, {x, {}, floats({4}, {1, 1, 0.3f, 0.3f})}, how)[0];
            CHECK(values<float>(y) == std::vector<float>{1});
        }
}

TEST_CASE("Slice backwards from before the first element begins with it") {
    const tensor x = floats({5}, {0, 1, 2, 3, 4});
    const auto sliced = [&](std::int64_t from, std::int64_t to, std::int64_t step) {
        return values<float>(call_op("Slice", 13, {x, integers({from}), integers({to}), integers({0}), integers({step})})[0]);
    };
    CHECK(sliced(-100, -200, -1) == std::vector<float>{0});
    CHECK(sliced(-6, -7, -1) == std::vector<float>{0});
    CHECK(sliced(-6, INT64_MAX, -2).empty());
    CHECK(sliced(100, -200, -2) == std::vector<float>{4, 2, 0});
    CHECK(sliced(-100, 200, 3) == std::vector<float>{0, 3});
    CHECK(values<float>(call_op("Slice", 13, {floats({0}, {}), integers({-1}), integers({-9}), integers({0}), integers({-1})})[0]).empty());
}

TEST_CASE("Pad, wrap: what wraps is what negative amounts leave") {
    const auto padded = [](std::int64_t before, std::int64_t after) {
        return values<float>(
            call_op("Pad", 19, {floats({5}, {0, 1, 2, 3, 4}), integers({before, after})}, {{"mode", std::string("wrap")}})[0]);
    };
    CHECK(padded(-1, 3) == std::vector<float>{1, 2, 3, 4, 1, 2, 3});
    CHECK(padded(2, -2) == std::vector<float>{1, 2, 0, 1, 2});
    CHECK(padded(2, 1) == std::vector<float>{3, 4, 0, 1, 2, 3, 4, 0});
}

TEST_CASE("QLinearMul rounds the product and then the sum; averages add the zero point where ONNX Runtime does") {
    const auto byte = [](std::uint8_t v) { return codes({}, {v}); };
    const tensor s = scalar(0.02f);
    // (a - za) * (b - zb) * (s * s / s) + zy = -625 * 0.02f + 7: the product rounds to -12.5 in float32, the sum is -5.5, which rounds to
    // even.
    const tensor a = make_tensor<std::int8_t>({1}, std::vector<std::int8_t>{-25}),
                 b = make_tensor<std::int8_t>({1}, std::vector<std::int8_t>{25});
    const auto signed_byte = [](std::int8_t v) { return make_tensor<std::int8_t>({}, std::vector<std::int8_t>{v}); };
    CHECK(values<std::int8_t>(call_op("com.microsoft:QLinearMul", 1, {a, s, signed_byte(0), b, s, signed_byte(0), s, signed_byte(7)})[0]) ==
          std::vector<std::int8_t>{-6});
    // The average is 0.5. AveragePool adds the zero point first: 89.5 rounds to the even 90. GlobalAveragePool rounds first: 0 + 89.
    const tensor pair = codes({1, 1, 2, 1}, {89, 90});
    CHECK(values<std::uint8_t>(call_op("com.microsoft:QLinearAveragePool", 1, {pair, scalar(1), byte(89), scalar(1), byte(89)},
                                       {{"kernel_shape", std::vector<std::int64_t>{2, 1}}})[0]) == std::vector<std::uint8_t>{90});
    CHECK_THROWS_WITH_AS(call_op("com.microsoft:QLinearGlobalAveragePool", 1, {scalar(1), scalar(1), byte(89), scalar(1), byte(89)}),
                         doctest::Contains("no codes of 8 bits"), error);
    CHECK(values<std::uint8_t>(call_op("com.microsoft:QLinearGlobalAveragePool", 1, {pair, scalar(1), byte(89), scalar(1), byte(89)})[0]) ==
          std::vector<std::uint8_t>{89});
}

namespace {

/// Checks `op` on vectors of T against 64-bit C++ arithmetic wrapped to T; also with either operand broadcast from one element.
template <class T>
void wraps_like(const char* op, std::int64_t version, std::int64_t (*expected)(std::int64_t, std::int64_t)) {
    constexpr std::int64_t low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    std::vector<T> a, b;
    for (const std::int64_t x : {low, low + 1, std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{7}, high - 1, high})
        for (const std::int64_t y : {low, std::int64_t{1}, std::int64_t{2}, high / 2, high, std::int64_t{5}}) {
            if (y == 0) continue;
            for (int copies = 0; copies < 13; ++copies) a.push_back(static_cast<T>(x)), b.push_back(static_cast<T>(y));
        }
    const auto n = static_cast<std::int64_t>(a.size());
    const tensor both = call_op(op, static_cast<int>(version), {make_tensor<T>({n}, a), make_tensor<T>({n}, b)})[0];
    const tensor one = call_op(op, static_cast<int>(version), {make_tensor<T>({n}, a), make_tensor<T>({1}, std::vector<T>{b[0]})})[0];
    const tensor first = call_op(op, static_cast<int>(version), {make_tensor<T>({}, std::vector<T>{a[0]}), make_tensor<T>({n}, b)})[0];
    bool same = true;
    for (std::size_t i = 0; i < a.size(); ++i)
        same = same && both.as<T>()[i] == static_cast<T>(expected(a[i], b[i])) && one.as<T>()[i] == static_cast<T>(expected(a[i], b[0])) &&
               first.as<T>()[i] == static_cast<T>(expected(a[0], b[i]));
    CHECK_MESSAGE(same, op, " of ", name_of(both.type()));
}

template <class T>
void wraps_like_all() {
    wraps_like<T>("Add", 14, [](std::int64_t a, std::int64_t b) { return a + b; });
    wraps_like<T>("Sub", 14, [](std::int64_t a, std::int64_t b) { return a - b; });
    wraps_like<T>("Mul", 14, [](std::int64_t a, std::int64_t b) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    });
    wraps_like<T>("Max", 13, [](std::int64_t a, std::int64_t b) { return a > b ? a : b; });
    wraps_like<T>("Min", 13, [](std::int64_t a, std::int64_t b) { return a < b ? a : b; });
    if constexpr (std::is_signed_v<T>) {
        wraps_like<T>("Div", 14, [](std::int64_t a, std::int64_t b) { return a / b; });
        wraps_like<T>("Mod", 13, [](std::int64_t a, std::int64_t b) { return (a % b + b) % b; });
    }
    wraps_like<T>("BitwiseXor", 18, [](std::int64_t a, std::int64_t b) { return a ^ b; });
}

}  // namespace

TEST_CASE("Arithmetic of every integer type wraps, whichever operand is repeated") {
    wraps_like_all<std::int8_t>();
    wraps_like_all<std::int16_t>();
    wraps_like_all<std::int32_t>();
    wraps_like_all<std::uint8_t>();
    wraps_like_all<std::uint16_t>();
    wraps_like_all<std::uint32_t>();
}

TEST_CASE("Powers, shifts and comparisons of short integers are those of their own width") {
    const tensor bases = make_tensor<std::int8_t>({4}, std::vector<std::int8_t>{-3, 2, -1, 5});
    CHECK(values<std::int8_t>(call_op("Pow", 15, {bases, integers({3, 7, -3, -1})})[0]) == std::vector<std::int8_t>{-27, -128, -1, 0});
    const tensor bytes = codes({3}, {129, 255, 1}), amounts = codes({3}, {1, 200, 8});
    const auto shifted = [&](const char* direction) {
        return values<std::uint8_t>(call_op("BitShift", 11, {bytes, amounts}, {{"direction", std::string(direction)}})[0]);
    };
    CHECK(shifted("LEFT") == std::vector<std::uint8_t>{2, 0, 0});
    CHECK(shifted("RIGHT") == std::vector<std::uint8_t>{64, 0, 0});
    CHECK(values<bool>(call_op("Less", 13, {bytes, codes({1}, {200})})[0]) == std::vector<bool>{true, false, true});
}

TEST_CASE("EmbedLayerNormalization refuses segments, positions and masks that do not fit its ids") {
    const tensor ids = make_tensor<std::int64_t>({2, 3}, std::vector<std::int64_t>{0, 1, 2, 2, 1, 0});
    const tensor table = floats({3, 2}, {1, 2, 3, 4, 5, 6}), ones = floats({2}, {1, 1}), zeros = floats({2}, {0, 0});
    const auto embedded = [&](const tensor& segments, const tensor& mask, const tensor& places) {
        return call_op("com.microsoft:EmbedLayerNormalization", 1, {ids, segments, table, table, table, ones, zeros, mask, places}, {}, 2);
    };
    const tensor fits = make_tensor<std::int64_t>({2, 3}, std::vector<std::int64_t>{1, 1, 0, 1, 0, 0}), three = integers({0, 1, 2}),
                 two = integers({1, 1});
    CHECK(values<std::int32_t>(embedded(fits, fits, fits)[1]) == std::vector<std::int32_t>{2, 1});
    CHECK(embedded({}, {}, three)[0].size() == 12);
    CHECK_THROWS_WITH_AS(embedded(three, fits, fits), doctest::Contains("segment_ids of shape [3] do not fit"), error);
    CHECK_THROWS_WITH_AS(embedded(fits, two, fits), doctest::Contains("mask values of shape [2] do not fit"), error);
    CHECK_THROWS_WITH_AS(embedded(fits, fits, two), doctest::Contains("position_ids of shape [2] do not fit"), error);
}

TEST_CASE("An attribute that names no way is refused") {
    const tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4});
    CHECK_THROWS_WITH_AS(call_op("ConvTranspose", 11, {x, x}, {{"auto_pad", std::string("SAME")}}),
                         doctest::Contains("'auto_pad' is 'SAME'"), error);
}
