// SPDX-License-Identifier: Apache-2.0
// qk::dispatch ends a wrong call with a sentence in every build, whatever its caller is compiled with.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "last_words.hpp"
#include "qk/dispatch.hpp"

TEST_CASE("a broken promise ends the process with a sentence") {
    using namespace qk::dispatch;
    const std::vector<float> x(64, 1.5f);
    const std::vector<std::byte> codes(8 * 64), scales(8 * 2), short_codes(100);
    std::vector<float> y(64), short_y(3), of_rows(8);
    std::vector<std::byte> packed(10);
    const qk::packed_weights w{8, 64, {codes, scales}};
    struct misuse {
        const char* sentence;
        std::function<void()> call;
    };
    const misuse all[] = {
        {"y must have as many values as x", [&] { fake_quantize(qk::mxfp4, x, short_y); }},
        {"the axis must cover the array",
         [&] {
             fake_quantize(qk::mxfp4, x, y, qk::along_axis{2, 3, 1});
         }},
        {"a scale for each channel or block",
         [&] {
             fake_quantize(qk::int8, x, y, qk::per_channel{std::span(x).first(3), {}, {1, 4, 16}});
         }},
        {"the packed buffer is too short", [&] { decode(qk::fp8_e4m3fn, packed, y); }},
        {"y is too short for its vectors", [&] { product(qk::mxfp8_e4m3, w, x, short_y); }},
        {"x is too short for its vectors",
         [&] {
             product(qk::mxfp8_e4m3, w, {x, 2}, of_rows);
         }},
        {"a plane is too short",
         [&] {
             product(qk::mxfp8_e4m3, {8, 64, {short_codes, scales}}, x, of_rows);
         }},
        {"product_sums::integers is for formats", [&] { product(qk::mxfp8_e4m3, w, x, of_rows, {.sums = qk::product_sums::integers}); }},
        {"a column behind the matrix's last one",
         [&] {
             dot_rows(qk::mxfp8_e4m3, {w, 8, 65}, x, of_rows);
         }},
        {"x is too short for its vectors",
         [&] {
             weighted_rows(qk::mxfp8_e4m3, {w, 8, 64}, {std::span(x).first(7)}, y);
         }},
    };
    for (const misuse& m : all) {
        const std::string said = last_words(m.call);
        CHECK_MESSAGE(said.find(m.sentence) != std::string::npos, m.sentence, ": ", said);
    }
    CHECK(last_words([&] { product(qk::mxfp8_e4m3, w, x, of_rows); }) == "lived");
    CHECK(last_words([&] { fake_quantize(qk::mxfp4, x, y); }) == "lived");
}
