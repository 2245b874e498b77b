// SPDX-License-Identifier: Apache-2.0
// Tests that qk::dispatch gives the oracle's bits whatever QK_ARCH says (CMake runs this program once for each), or says why it cannot.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "compare_bits.hpp"
#include "qk/dispatch.hpp"
#include "qk/reference.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"

TEST_CASE("the instruction set is the one asked for, or a sentence says why not") {
    const char* asked = std::getenv("QK_ARCH");
    if (asked == nullptr) {
        CHECK(qk::dispatch::problem() == nullptr);
    } else if (std::string(asked) == "none_such" || std::string(asked) == "sse4.2") {
        REQUIRE(qk::dispatch::problem() != nullptr);
        CHECK(std::string(qk::dispatch::problem())
                  .find("QK_ARCH=" + std::string(asked) + ": this build has no such instruction set; set it to one of ") == 0);
    } else if (qk::dispatch::problem() == nullptr) {
        CHECK(std::string(qk::dispatch::architecture()) == asked);
    } else {
        MESSAGE(qk::dispatch::problem());  // the processor lacks it
    }
}

TEST_CASE("every format, contiguous and along an axis") {
    const qk::along_axis axis{2, 77, 21};
    std::vector<float> expected(axis.outer * axis.length * axis.inner), actual(expected.size());
    for (const data kind : {data::ordinary, data::any_bits, data::special, data::sparse}) {
        const std::vector<float> x = make_inputs(kind, expected.size(), 5);
        for (const test_format& f : all_formats()) {
            const std::string what = std::string(qk::dispatch::architecture()) + " " + f.name + " " + name_of(kind);
            qk::reference::fake_quantize(f.format, x, expected);
            qk::dispatch::fake_quantize(f.format, x, actual);
            CHECK(count_mismatches(x, expected, actual, what) == 0);
            qk::reference::fake_quantize(f.format, x, expected, axis);
            qk::dispatch::fake_quantize(f.format, x, actual, axis);
            CHECK(count_mismatches(x, expected, actual, what + " axis") == 0);
        }
    }
}

TEST_CASE("packed bytes, contiguous and along an axis") {
    const qk::along_axis axis{2, 77, 21};
    const std::size_t n = axis.outer * axis.length * axis.inner;
    std::vector<float> expected(n), actual(n);
    for (const data kind : {data::ordinary, data::special, data::sparse}) {
        const std::vector<float> x = make_inputs(kind, n, 5);
        for (const test_format& f : all_formats()) {
            if (!qk::encodable(f.format, qk::semantics::ocp)) continue;
            for (const qk::along_axis a : {qk::along_axis{}, axis}) {
                std::vector<std::byte> packed(qk::packed_bytes(f.format, qk::resolved(a, n)));
                REQUIRE(qk::dispatch::encode(f.format, x, packed, a) == qk::encode_status::done);
                qk::dispatch::decode(f.format, packed, actual, a);
                qk::reference::fake_quantize(f.format, x, expected, a);
                CHECK(count_mismatches(x, expected, actual,
                                       std::string(qk::dispatch::architecture()) + " packed " + f.name + " " + name_of(kind)) == 0);
                const qk::packed_layout l = qk::layout_of(f.format, qk::resolved(a, n));
                std::vector<std::byte> elements(l.elements.bytes()), scales(l.scales.bytes()), shifts(l.shifts.bytes()),
                    tensor(l.tensor.bytes());
                const qk::planes apart{elements, scales, shifts, tensor};
                REQUIRE(qk::dispatch::encode(f.format, x, apart, a) == qk::encode_status::done);
                CHECK(std::ranges::equal(elements, qk::planes_of(l, std::span(packed)).elements));
                CHECK(std::ranges::equal(scales, qk::planes_of(l, std::span(packed)).scales));
                qk::dispatch::decode(f.format, apart, actual, a);
                CHECK(count_mismatches(x, expected, actual, std::string(qk::dispatch::architecture()) + " planes apart " + f.name) == 0);
                if (!packed.empty())
                    CHECK(qk::dispatch::encode(f.format, x, std::span(packed).first(packed.size() - 1), a) == qk::encode_status::too_small);
            }
        }
    }
}
