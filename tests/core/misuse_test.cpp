// SPDX-License-Identifier: Apache-2.0
// Wrong calls stop a debug build with a sentence. Each is made in a child process, which must be aborted by an assertion that says why.
// (Compiled with assertions whatever the build; what the compiler refuses is in must_not_compile.)
#undef NDEBUG
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "last_words.hpp"
#include "qk/qk.hpp"

namespace {

struct misuse {
    const char* name;
    const char* sentence;
    std::function<void()> call;
};

using floats = std::vector<float>;
using bytes = std::vector<std::byte>;

const floats x(64, 1.5f);
const float infinity = std::numeric_limits<float>::infinity();

void refuse(const std::vector<misuse>& calls) {
    for (const misuse& m : calls) {
        const std::string said = last_words(m.call);
        CHECK_MESSAGE(said.find(m.sentence) != std::string::npos, m.name, ": ", said);
    }
}

}  // namespace

TEST_CASE("fake_quantize: arrays") {
    floats y(64), shorter(63);
    std::span<float> none(static_cast<float*>(nullptr), 64);
    floats both(80);
    const std::span<float> all(both);
    refuse({
        {"y shorter", "y must have as many values as x", [&] { qk::fake_quantize<qk::int8>(x, shorter); }},
        {"y shorter, format at run time", "y must have as many values as x", [&] { qk::fake_quantize(qk::fp16, x, shorter); }},
        {"x null", "x is a null pointer", [&] { qk::fake_quantize<qk::int8>(none, y); }},
        {"y null", "y is a null pointer", [&] { qk::fake_quantize<qk::int8>(x, none); }},
        {"y begins within x", "y must be x itself or not overlap it", [&] { qk::fake_quantize<qk::int8>(all.first(64), all.last(64)); }},
    });
    CHECK(last_words([&] { qk::fake_quantize<qk::int8>(x, y); }) == "lived");
    CHECK(last_words([&] { qk::fake_quantize<qk::int8>(y, y); }) == "lived");
    CHECK(last_words([] { qk::fake_quantize<qk::int8>(std::span<const float>(), std::span<float>()); }) == "lived");
}

TEST_CASE("fake_quantize: formats, scales, axes") {
    floats y(64);
    const floats three(3, 1.0f), with_zero{1, 0, 1, 1};
    const std::vector<std::int64_t> zeros(3, 0), beyond(4, 300);
    const qk::along_axis rows{1, 4, 16};
    const floats four(4, 1.0f);
    refuse({
        {"no such block", "this format cannot exist", [&] { qk::fake_quantize(qk::block_float{.block_size = 0}, x, y); }},
        {"no format", "this format cannot exist", [&] { qk::fake_quantize(qk::no_format, x, y); }},
        {"scale 0", "a scale must be finite and above 0", [&] { qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 0}); }},
        {"scale NaN", "a scale must be finite and above 0",
         [&] { qk::fake_quantize(qk::int8, x, y, qk::affine{.scale = std::numeric_limits<float>::quiet_NaN()}); }},
        {"scale Inf", "a scale must be finite and above 0", [&] { qk::fake_quantize<qk::fp16>(x, y, qk::affine{.scale = infinity}); }},
        {"zero point", "a zero point must be a code",
         [&] { qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 1, .zero_point = 200}); }},
        {"axis", "the axis must cover the array",
         [&] {
             qk::fake_quantize<qk::mxfp4>(x, y, qk::along_axis{2, 64, 1});
         }},
        {"too few channels", "there must be a scale for each channel",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_channel{three, {}, rows});
         }},
        {"too few zero points", "a zero point for each scale",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_channel{four, zeros, rows});
         }},
        {"a channel's scale", "a scale must be finite and above 0",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_channel{with_zero, {}, rows});
         }},
        {"a channel's zero point", "a zero point must be a code",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_channel{four, beyond, rows});
         }},
        {"channels of blocks", "block formats take theirs from the data",
         [&] {
             qk::fake_quantize(qk::mxfp4, x, y, qk::per_channel{four, {}, rows});
         }},
        {"blocks of nothing", "per_block::block_size is 0",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_block{four, {}, {}, 0});
         }},
        {"too few blocks", "there must be a scale for each channel or block",
         [&] {
             qk::fake_quantize<qk::int8>(x, y, qk::per_block{three, {}, {}, 16});
         }},
    });
}

TEST_CASE("encode and decode") {
    floats y(64);
    const std::size_t needed = qk::packed_bytes<qk::mxfp4>(64);
    bytes packed(needed), shorter(needed - 1), codes(64);
    REQUIRE(qk::encode(qk::mxfp4, x, packed) == qk::encode_status::done);
    const qk::packed_layout l = qk::layout_of(qk::mxfp4, qk::along_axis{1, 64, 1});
    qk::const_planes short_scales = qk::planes_of(l, std::span<const std::byte>(packed));
    short_scales.scales = short_scales.scales.first(1);
    std::span<std::byte> none(static_cast<std::byte*>(nullptr), needed);
    refuse({
        {"encode into too little", "the packed buffer is too short", [&] { qk::encode<qk::mxfp4>(x, shorter); }},
        {"decode of too little", "the packed buffer is too short", [&] { qk::decode<qk::mxfp4>(shorter, y); }},
        {"decode of too little, at run time", "the packed buffer is too short", [&] { qk::decode(qk::mxfp4, shorter, y); }},
        {"a short plane", "a plane is too short", [&] { qk::decode(qk::mxfp4, short_scales, y); }},
        {"null", "the packed buffer is a null pointer", [&] { qk::encode<qk::mxfp4>(x, none); }},
        {"numbers over codes", "the numbers must not overlap",
         [&] { qk::decode<qk::mxfp4>(std::as_bytes(std::span(y)).first(needed), y); }},
        {"null numbers", "the numbers are a null pointer",
         [&] { qk::decode<qk::mxfp4>(packed, std::span<float>(static_cast<float*>(nullptr), 64)); }},
        {"scale", "a scale must be finite", [&] { qk::encode<qk::int8>(x, codes, qk::affine{.scale = -1}); }},
    });
    CHECK(qk::encode(qk::mxfp4, x, shorter) == qk::encode_status::too_small);
}

TEST_CASE("gradients and observers") {
    floats y(64), shorter(63);
    std::vector<std::uint64_t> bins(8), no_bins;
    qk::observed_range range;
    refuse({
        {"gradients shorter", "y must have as many values as x",
         [&] { qk::fake_quantize_backward<qk::int8>(x, x, shorter, qk::affine{.scale = 1}); }},
        {"x shorter", "x must have as many values as its gradients",
         [&] { qk::fake_quantize_backward<qk::int8>(shorter, x, y, qk::affine{.scale = 1}); }},
        {"scale", "a scale must be finite and above 0", [&] { qk::fake_quantize_backward<qk::int8>(x, x, y, qk::affine{.scale = 0}); }},
        {"no bins", "a histogram needs at least one bin", [&] { qk::observe_histogram(x, 0, 1, no_bins); }},
        {"range", "high above low", [&] { qk::observe_histogram(x, 1, 1, bins); }},
        {"null", "x is a null pointer", [&] { range.observe(std::span<const float>(static_cast<const float*>(nullptr), 3)); }},
    });
}

TEST_CASE("a format that could not be parsed") {
    refuse({{"its value", "what could not be parsed has no value", [] { (void)*qk::parse_format("e5m10"); }}});
    CHECK(*qk::parse_format("e5m2:x=1").error.c_str() != '\0');
}
