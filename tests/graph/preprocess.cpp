// SPDX-License-Identifier: Apache-2.0
// Preprocessing follows its formula, and every wrong part of its text is an error.
#include "qk/graph/evaluate/preprocess.hpp"

#include <doctest/doctest.h>

using namespace qk::graph;

namespace {
value_info image(std::vector<std::int64_t> shape) {
    value_info v{"image", data_type::float32, true, {}};
    for (const std::int64_t d : shape) v.shape.push_back({d, ""});
    return v;
}
}  // namespace

TEST_CASE("u8 NHWC RGB becomes normalised NCHW BGR") {
    const std::vector<std::uint8_t> pixels{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // 2 rows of 2 RGB pixels
    const tensor x = make_tensor<std::uint8_t>({1, 2, 2, 3}, pixels);
    const auto p = preprocessing::parse("layout=nhwc,channels=bgr,scale=0.5,mean=1:2:3,std=2:4:8");
    const tensor y = p.apply(x, image({-1, 3, 2, 2}));
    CHECK(y.shape() == dims{1, 3, 2, 2});
    const float mean[] = {1, 2, 3}, deviation[] = {2, 4, 8};
    for (std::size_t c = 0; c < 3; ++c) {
        for (std::size_t i = 0; i < 4; ++i)
            CHECK(y.as<float>()[c * 4 + i] == (float(pixels[i * 3 + 2 - c]) * 0.5f - mean[c]) / deviation[c]);
    }
}

TEST_CASE("data without a channel axis takes the model's shape") {
    const std::vector<std::uint8_t> pixels(2 * 28 * 28, 255);
    const auto p = preprocessing::parse("scale=2");
    for (const dims& shape : {dims{2, 28, 28}, dims{2, 784}}) {
        const tensor y = p.apply(make_tensor<std::uint8_t>(shape, pixels), image({1, 1, 28, 28}));
        CHECK(y.shape() == dims{2, 1, 28, 28});
        CHECK(y.as<float>()[0] == 510.0f);
    }
    CHECK(preprocessing::parse("layout=nhwc").apply(make_tensor<std::uint8_t>({2, 28, 28}, pixels), image({1, 1, 28, 28})).shape() ==
          dims{2, 1, 28, 28});
}

TEST_CASE("what does not fit is an error that says what does") {
    CHECK_THROWS_WITH_AS(preprocessing::parse("layout=nhcw"), doctest::Contains("layout=nhwc|nchw"), error);
    CHECK_THROWS_WITH_AS(preprocessing::parse("mean=1:x"), doctest::Contains("'x'"), error);
    CHECK_THROWS_WITH_AS(preprocessing::parse("std=0"), doctest::Contains("must not be 0"), error);
    CHECK_THROWS_WITH_AS(preprocessing::parse("scale=nan"), doctest::Contains("needs numbers"), error);
    const tensor gray = make_tensor<float>({1, 1, 1, 2}, std::vector<float>{1, 2});
    CHECK_THROWS_WITH_AS(preprocessing::parse("channels=bgr").apply(gray, image({1, 1, 1, 2})), doctest::Contains("3 channels"), error);
    CHECK_THROWS_WITH_AS(preprocessing::parse("mean=1:2").apply(gray, image({1, 1, 1, 2})),
                         doctest::Contains("2 values of mean for 1 channels"), error);
    CHECK_THROWS_WITH_AS(preprocessing::parse("").apply(gray, image({1, 3, 5})), doctest::Contains("'image'"), error);
}
