// SPDX-License-Identifier: Apache-2.0
// Layouts hold the codes, scales and zero points that are put into them, and repack() moves them without a change.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "qk/layout.hpp"

namespace {

using qk::layout;
namespace layouts = qk::layouts;

/// A matrix in a layout, with memory of its own.
struct stored_matrix {
    layout how;
    qk::matrix_shape shape;
    std::vector<std::byte> codes, scales, zeros;
    float global = 1;

    stored_matrix(const layout& l, qk::matrix_shape s) : how(l), shape(s) {
        const qk::plane_sizes n = qk::sizes_of(l, s);
        codes.resize(n.codes), scales.resize(n.scales), zeros.resize(n.zeros);
    }
    qk::matrix_planes read() const { return {codes, scales, zeros, global}; }
    qk::mutable_planes write() { return {codes, scales, zeros, &global}; }
};

std::mt19937 random_bits(5);

/// Random codes, and scales whose values every float type has.
stored_matrix random_matrix(const layout& l, qk::matrix_shape s) {
    stored_matrix m(l, s);
    std::vector<std::uint8_t> row(s.columns);
    for (std::size_t r = 0; r < s.rows; ++r) {
        for (std::uint8_t& code : row) code = static_cast<std::uint8_t>(random_bits() & ((1u << l.bits) - 1));
        qk::pack_row(l, s, row.data(), r, m.codes);
    }
    for (std::size_t r = 0; r < qk::scale_rows_of(l, s); ++r)
        for (std::size_t g = 0; g < qk::groups_of(l, s); ++g) {
            const std::uint32_t small = random_bits() % 8;
            const std::uint32_t bits = l.scale == qk::scale_type::f32    ? (120 + small) << 23
                                       : l.scale == qk::scale_type::bf16 ? (120 + small) << 7
                                       : l.scale == qk::scale_type::f16  ? (8 + small) << 10
                                       : l.scale == qk::scale_type::e8m0 ? 120 + small
                                                                         : 40 + small;
            if (l.scale != qk::scale_type::none) qk::put_scale_bits(l, s, m.scales, r, g, bits);
            if (l.zero != qk::zero_type::none && l.zero != qk::zero_type::bias)
                CHECK(qk::put_zero(l, s, m.zeros, r, g, static_cast<int>(1 + random_bits() % ((1u << l.bits) - 1))));
        }
    if (l.global != qk::global_type::none) m.global = 0.25f;
    return m;
}

std::vector<float> values_of_matrix(const stored_matrix& m) {
    std::vector<float> y(m.shape.rows * m.shape.columns);
    std::vector<std::uint8_t> scratch(m.shape.columns);
    for (std::size_t r = 0; r < m.shape.rows; ++r)
        qk::decode_row(m.how, m.shape, m.read(), r, scratch.data(), y.data() + r * m.shape.columns);
    return y;
}

stored_matrix moved(const stored_matrix& from, const layout& to) {
    stored_matrix made(to, from.shape);
    std::vector<std::uint8_t> scratch(from.shape.columns);
    const qk::repack_result done = qk::repack(from.how, from.shape, from.read(), to, made.write(), scratch);
    CHECK(done.done);
    CHECK(done.scales_rounded == 0);
    CHECK(done.zeros_lost == 0);
    return made;
}

}  // namespace

TEST_CASE("16-bit floats are those of qk/storage.hpp: NaN stays NaN whatever its payload, and what is too large is Inf") {
    for (const std::uint32_t sign : {0u, 0x80000000u})
        for (const std::uint32_t payload : {1u, 0x1fffu, 0x2000u, 0x7fffu, 0x8000u, 0xffffu, 0x10000u, 0x400000u, 0x7fffffu}) {
            const float nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
            for (const qk::scale_type t : {qk::scale_type::f16, qk::scale_type::bf16}) {
                CAPTURE(payload);
                CHECK(std::isnan(qk::scale_value(t, qk::layout_parts::store_scale(t, nan).bits)));
            }
        }
    CHECK(qk::layout_parts::store_scale(qk::scale_type::f16, 65519.0f).bits == 0x7bff);
    CHECK(qk::layout_parts::store_scale(qk::scale_type::f16, 65520.0f).bits == 0x7c00);
    CHECK(!qk::layout_parts::store_scale(qk::scale_type::f16, 65520.0f).exact);
    CHECK(qk::layout_parts::store_scale(qk::scale_type::bf16, std::bit_cast<float>(0x7f7f8000u)).bits == 0x7f80);
}

TEST_CASE("every layout gives back the codes of a row, whatever lies beside it") {
    const qk::matrix_shape s{32, 256};
    for (const layout& l : {layouts::gpt_oss, layouts::modelopt_nvfp4, layouts::modelopt_mxfp8, layouts::modelopt_int4(128),
                            layouts::compressed_tensors_mxfp6, layouts::compressed_tensors_int(3, 64, qk::scale_type::bf16, true),
                            layouts::compressed_tensors_int(7, 0, qk::scale_type::f16, false),
                            layouts::mlx_affine(5, 64, qk::scale_type::f16), layouts::gptq(3, 64, true), layouts::gptq(8, 32, false),
                            layouts::awq(64), layouts::matmul_nbits(4, 32, qk::scale_type::f32, true),
                            layouts::matmul_nbits(2, 16, qk::scale_type::f16, false), layouts::qmoe(4, 0, qk::scale_type::f16)}) {
        stored_matrix m(l, s);
        std::vector<std::vector<std::uint8_t>> rows(s.rows, std::vector<std::uint8_t>(s.columns));
        for (std::size_t r = 0; r < s.rows; ++r) {
            for (std::uint8_t& code : rows[r]) code = static_cast<std::uint8_t>(random_bits() & ((1u << l.bits) - 1));
            qk::pack_row(l, s, rows[r].data(), r, m.codes);
        }
        std::vector<std::uint8_t> row(s.columns);
        for (std::size_t r = 0; r < s.rows; ++r) {
            qk::unpack_row(l, s, m.codes, r, row.data());
            CHECK(row == rows[r]);
        }
    }
}

TEST_CASE("every type of ggml's blocks gives back its codes") {
    using enum qk::ggml_type;
    for (const qk::ggml_type t :
         {q4_0, q4_1, q5_0, q5_1, q8_0, q8_1, q2_k, q3_k, q4_k, q5_k, q6_k, q8_k, iq4_nl, iq4_xs, mxfp4, nvfp4, q1_0, q2_0, tq1_0, tq2_0}) {
        const qk::ggml_facts f = qk::facts_of(t);
        CAPTURE(std::string(f.name));
        const qk::matrix_shape s{3, 2 * f.values};
        stored_matrix m(layouts::ggml(t), s);
        unsigned bits = 0;
        for (std::uint8_t every[512]{}; const unsigned code : {255u, 31u, 7u, 3u}) {  // the widest code that comes back
            std::fill(std::begin(every), std::end(every), std::uint8_t{255});
            qk::put_ggml_code(t, every, 0, code);
            bits = std::max(bits, qk::ggml_code(t, every, 0) + 1);
        }
        if (t == tq1_0) bits = 3;
        std::vector<std::vector<std::uint8_t>> rows(s.rows, std::vector<std::uint8_t>(s.columns));
        for (std::size_t r = 0; r < s.rows; ++r) {
            for (std::uint8_t& code : rows[r]) code = static_cast<std::uint8_t>(random_bits() % bits);
            qk::pack_row(m.how, s, rows[r].data(), r, m.codes);
        }
        std::vector<std::uint8_t> row(s.columns);
        for (std::size_t r = 0; r < s.rows; ++r) {
            qk::unpack_row(m.how, s, m.codes, r, row.data());
            CHECK(row == rows[r]);
        }
    }
}

TEST_CASE("FP4 goes round all systems and comes back with its bytes") {
    const stored_matrix first = random_matrix(layouts::gpt_oss, {16, 128});
    stored_matrix m = first;
    for (const layout& to : {layouts::mlx_mxfp4, layouts::ggml(qk::ggml_type::mxfp4), layouts::modelopt_mxfp4,
                             layouts::swizzled(layouts::modelopt_mxfp4), layouts::compressed_tensors_mxfp4, layouts::gpt_oss}) {
        m = moved(m, to);
        CHECK(values_of_matrix(m).size() == 16 * 128);
    }
    CHECK(m.codes == first.codes);
    CHECK(m.scales == first.scales);
}

TEST_CASE("a global scale that multiplies becomes its reciprocal where it divides") {
    const stored_matrix m = random_matrix(layouts::modelopt_nvfp4, {8, 64}), other = moved(m, layouts::compressed_tensors_nvfp4);
    CHECK(other.global == 4.0f);
    CHECK(other.codes == m.codes);
    CHECK(other.scales == m.scales);
    stored_matrix third(layouts::compressed_tensors_nvfp4, m.shape);
    stored_matrix odd = m;
    odd.global = 0.3f;
    std::vector<std::uint8_t> scratch(64);
    CHECK(qk::repack(odd.how, odd.shape, odd.read(), third.how, third.write(), scratch).global_rounded);
    const stored_matrix blocks = moved(m, layouts::ggml(qk::ggml_type::nvfp4));
    const std::vector<float> a = values_of_matrix(m), b = values_of_matrix(blocks);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == b[i] * 0.25f);
}

TEST_CASE("int4 keeps its numbers in words, in pairs of rows, as two's complement and in blocks") {
    const layout words = layouts::compressed_tensors_int(4, 32, qk::scale_type::f16, false);
    const stored_matrix m = random_matrix(words, {16, 128});
    const std::vector<float> wanted = values_of_matrix(m);
    layout pairs = layouts::modelopt_int4(32);
    const layout gptq = layouts::gptq(4, 32, true), awq = layouts::awq(32), blocks = layouts::ggml(qk::ggml_type::q4_0),
                 nbits = layouts::matmul_nbits(4, 32, qk::scale_type::f16, true);
    for (const layout& to : {pairs, gptq, awq, nbits, blocks}) {
        const stored_matrix there = moved(m, to);
        CHECK(values_of_matrix(there).size() == wanted.size());
        if (to.product == qk::arithmetic::float32)
            for (std::size_t i = 0; i < wanted.size(); ++i)
                CHECK(values_of_matrix(moved(there, layouts::qmoe(4, 32, qk::scale_type::f32)))[i] ==
                      doctest::Approx(wanted[i]).epsilon(1e-3));
        const stored_matrix back = moved(there, words);
        CHECK(back.codes == m.codes);
        CHECK(back.scales == m.scales);
    }
    CHECK(qk::compare_layouts(gptq, awq).possible);
}

namespace {
/// repack() without expectations.
std::pair<stored_matrix, qk::repack_result> tried(const stored_matrix& from, const layout& to) {
    stored_matrix made(to, from.shape);
    std::vector<std::uint8_t> scratch(from.shape.columns);
    const qk::repack_result done = qk::repack(from.how, from.shape, from.read(), to, made.write(), scratch);
    return {std::move(made), done};
}
void same_values(const stored_matrix& a, const stored_matrix& b) {
    const std::vector<float> x = values_of_matrix(a), y = values_of_matrix(b);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < x.size(); ++i) differ += x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i]));
    CHECK(differ == 0);
}
}  // namespace

TEST_CASE("zero points become biases of the same codes, and biases that are whole multiples of the scale become zero points") {
    for (const int bits : {2, 3, 4, 8})
        for (const int group : {32, 64, 128})
            for (const bool first : {true, false}) {
                const stored_matrix m = random_matrix(layouts::gptq(bits, group, first, qk::scale_type::f32), {32, 256});
                const layout mlx = layouts::mlx_affine(bits, 32, qk::scale_type::f32);
                const auto [there, done] = tried(m, mlx);
                CHECK(done.exact());
                same_values(m, there);
                const auto [back, also] = tried(there, layouts::gptq(bits, 32, first, qk::scale_type::f32));
                CHECK(also.exact());
                same_values(m, back);
                if (group == 32) CHECK(back.codes == m.codes);
            }
    stored_matrix odd = tried(random_matrix(layouts::awq(32), {8, 64}), layouts::mlx_affine(4, 32, qk::scale_type::f16)).first;
    qk::put_scale_bits(odd.how, odd.shape, odd.zeros, 1, 1, 0x3555);  // a third of nothing that a scale is
    CHECK(tried(odd, layouts::awq(32)).second.zeros_lost == 1);
}

TEST_CASE("codes move with their zero point where a layout has room for them") {
    using enum qk::ggml_type;
    const layout words = layouts::gptq(4, 64, false);
    const stored_matrix any = random_matrix(words, {32, 128});
    for (const qk::ggml_type wide : {q5_0, q5_1, q8_0, q4_1}) {
        CAPTURE(std::string(qk::facts_of(wide).name));
        const auto [there, done] = tried(any, layouts::ggml(wide));
        CHECK(done.exact());
        same_values(any, there);
    }
    CHECK(tried(any, layouts::ggml(q4_0)).second.zeros_lost > 0);
    CHECK(!tried(any, layouts::ggml(q4_0)).second.close());
    stored_matrix narrow(words, {8, 64});  // codes 3 to 6 about 5 are codes 6 to 9 about 8
    for (std::size_t r = 0; r < 8; ++r) {
        std::vector<std::uint8_t> row(64);
        for (std::uint8_t& code : row) code = static_cast<std::uint8_t>(3 + random_bits() % 4);
        qk::pack_row(words, narrow.shape, row.data(), r, narrow.codes);
        qk::put_scale_bits(words, narrow.shape, narrow.scales, r, 0, 0x2e66);
        CHECK(qk::put_zero(words, narrow.shape, narrow.zeros, r, 0, 5));
    }
    CHECK(tried(narrow, layouts::ggml(q4_0)).second.exact());
    same_values(narrow, tried(narrow, layouts::ggml(q4_0)).first);
    for (std::size_t r = 0; r < 8; ++r) CHECK(qk::put_zero(words, narrow.shape, narrow.zeros, r, 0, 0));  // GPTQ's first version has no 0
    CHECK(tried(narrow, layouts::gptq(4, 64, true)).second.exact());
    same_values(narrow, tried(narrow, layouts::gptq(4, 64, true)).first);
    // 2 bits: of the codes 0 to 3 trits have three
    const stored_matrix two = random_matrix(layouts::gptq(2, 256, false), {8, 256});
    CHECK(tried(two, layouts::ggml(tq1_0)).second.zeros_lost > 0);
}

TEST_CASE("what is rounded is counted, with how far it is rounded") {
    stored_matrix m = random_matrix(layouts::gptq(4, 32, false, qk::scale_type::f32), {8, 32});
    for (std::size_t r = 0; r < 8; ++r) {
        qk::put_scale_bits(m.how, m.shape, m.scales, r, 0, 0x3d4ccccd);  // 0.05
        CHECK(qk::put_zero(m.how, m.shape, m.zeros, r, 0, 8));
    }
    const qk::repack_result halves = tried(m, layouts::awq(32)).second, biases = tried(m, layouts::ggml(qk::ggml_type::q4_1)).second;
    CHECK(halves.scales_rounded == 8);
    CHECK(halves.scale_error > 0x1p-14f);
    CHECK(halves.scale_error < 0x1p-11f);
    CHECK(halves.close());
    CHECK(biases.biases_rounded == 0);  // 8 times a scale that is there
    for (std::size_t r = 0; r < 8; ++r) CHECK(qk::put_zero(m.how, m.shape, m.zeros, r, 0, 7));
    CHECK(tried(m, layouts::ggml(qk::ggml_type::q4_1)).second.bias_error < 0.01f);
    // scales of FP8: powers of two exist in E8M0, others are too far off
    stored_matrix fp8 = random_matrix(layouts::deepseek_fp8(), {128, 128});
    CHECK(tried(fp8, layouts::mlx_mxfp8).second.exact());
    same_values(fp8, tried(fp8, layouts::mlx_mxfp8).first);
    qk::put_scale_bits(fp8.how, fp8.shape, fp8.scales, 0, 0, 0x3f900000);  // 1.125
    CHECK(tried(fp8, layouts::mlx_mxfp8).second.scales_rounded == 512);
    CHECK(!tried(fp8, layouts::mlx_mxfp8).second.close());
    CHECK(qk::layout_parts::store_scale(qk::scale_type::e8m0, 3.0f).bits == 128);  // between 2 and 4: the even code
    CHECK(qk::layout_parts::store_scale(qk::scale_type::e8m0, 1.5f).bits == 128);
    CHECK(qk::layout_parts::store_scale(qk::scale_type::e8m0, 1.49f).bits == 127);
    CHECK(qk::layout_parts::store_scale(qk::scale_type::e8m0, 3.4e38f).bits == 254);
}

TEST_CASE("scales in cuBLAS's tiles lie where its formula says, padding is 0") {
    const qk::matrix_shape s{200, 32 * 6};
    const stored_matrix m = random_matrix(layouts::modelopt_mxfp4, s), tiles = moved(m, layouts::swizzled(layouts::modelopt_mxfp4));
    CHECK(tiles.scales.size() == 256 * 8);
    std::size_t filled = 0;
    for (std::size_t r = 0; r < 256; ++r)
        for (std::size_t g = 0; g < 8; ++g) {
            const std::size_t tile = r / 128 * 2 + g / 4, place = tile * 512 + (r % 32) * 16 + (r % 128 / 32) * 4 + g % 4;
            const bool there = r < 200 && g < 6;
            filled += there;
            CHECK(tiles.scales[place] == (there ? m.scales[r * 6 + g] : std::byte{0}));
        }
    CHECK(filled == 1200);
    CHECK(values_of_matrix(m) == values_of_matrix(tiles));
}

TEST_CASE("ggml's repacked rows are its blocks in another order") {
    using enum qk::ggml_type;
    struct shape_of_rows {
        qk::ggml_type type;
        int rows, bytes;
    };
    for (const shape_of_rows k : {shape_of_rows{q4_0, 4, 4}, shape_of_rows{q4_0, 4, 8}, shape_of_rows{q4_0, 8, 8},
                                  shape_of_rows{iq4_nl, 4, 4}, shape_of_rows{q8_0, 4, 8}, shape_of_rows{mxfp4, 8, 8}}) {
        const qk::matrix_shape s{16, 96};
        stored_matrix m(layouts::ggml(k.type), s);
        for (std::byte& b : m.codes) b = static_cast<std::byte>(random_bits());
        const layout together = layouts::ggml_rows(k.type, k.rows, k.bytes);
        const stored_matrix rows = moved(m, together), back = moved(rows, m.how);
        CHECK(back.codes == m.codes);
        CHECK(rows.codes != m.codes);
        // Block 0 of the first rows: their scales, then k.bytes bytes of each row in turn.
        const qk::ggml_facts f = qk::facts_of(k.type);
        const std::size_t head = k.type == mxfp4 ? 1 : 2, n = static_cast<std::size_t>(k.rows), row = 3 * f.bytes;
        const std::byte flip{static_cast<unsigned char>(k.type == q4_0 ? 0x88 : 0)};
        for (std::size_t r = 0; r < n; ++r) CHECK(rows.codes[r * head] == m.codes[r * row]);
        for (std::size_t i = 0; i < static_cast<std::size_t>(k.bytes); ++i) {
            CHECK(rows.codes[n * head + i] == (m.codes[head + i] ^ flip));
            CHECK(rows.codes[n * head + static_cast<std::size_t>(k.bytes) + i] == (m.codes[row + head + i] ^ flip));
        }
    }
}

TEST_CASE("what cannot be moved is said when compiling") {
    static_assert(qk::compare_layouts(layouts::gpt_oss, layouts::mlx_mxfp4).exact);
    static_assert(!qk::compare_layouts(layouts::gpt_oss, layouts::modelopt_nvfp4).exact);
    static_assert(!qk::compare_layouts(layouts::modelopt_nvfp4, layouts::gpt_oss).possible);
    static_assert(!qk::compare_layouts(layouts::deepseek_fp8(), layouts::modelopt_mxfp8).exact);
    static_assert(!qk::compare_layouts(layouts::ggml(qk::ggml_type::q4_k), layouts::ggml(qk::ggml_type::q4_0)).possible);
    static_assert(qk::compare_layouts(layouts::modelopt_nvfp4, layouts::compressed_tensors_nvfp4).possible);
    constexpr qk::layout_changes c = qk::compare_layouts(layouts::modelopt_nvfp4, layouts::mlx_nvfp4);
    static_assert(c.possible && !c.exact && c.count >= 1);
    CHECK(std::string(c.says[0]).find("global") != std::string::npos);
}

TEST_CASE("layouts have names") {
    static_assert(qk::parse_layout("gptq_v2.int3_g64").value == layouts::gptq(3, 64, false));
    static_assert(qk::parse_layout("compressed_tensors.int4_g32_asym_f16").value ==
                  layouts::compressed_tensors_int(4, 32, qk::scale_type::f16, true));
    static_assert(qk::parse_layout("ggml.q4_0_8x8").value == layouts::ggml_rows(qk::ggml_type::q4_0, 8, 8));
    static_assert(qk::parse_layout("modelopt.nvfp4+swizzled").value == layouts::swizzled(layouts::modelopt_nvfp4));
    for (const char* wrong : {"", "gptq", "gptq.int9_g64", "awq.int3_g64", "mlx.int4_g64", "mlx.affine4", "ggml.q4_k_8x8", "ggml.f32",
                              "gptq.int4_g64+swizzled", "modelopt.nvfp5", "ggml.q4_0_4x9"}) {
        CAPTURE(std::string(wrong));
        CHECK(!qk::parse_layout(wrong).known);
    }
    CHECK(qk::check_shape(layouts::awq(64), {12, 64}).find("words") != std::string_view::npos);
    CHECK(qk::check_shape(layouts::ggml(qk::ggml_type::q4_k), {1, 256}).empty());
}
