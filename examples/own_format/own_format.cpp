// SPDX-License-Identifier: Apache-2.0
// Formats that are in no catalogue, defined here: a float, blocks of it, and a codebook. Each is a value, and has kernels, packed codes,
// an oracle to compare a device with, dot products, and a text for the command line.
//
//   own_format FOLDER     writes x.npy, and own.npy, which run.sh compares with what the command makes of the printed text
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "qk/codec.hpp"
#include "qk/compare/compare.hpp"
#include "qk/dot.hpp"
#include "qk/formats/parse.hpp"

namespace {

// 1 sign, 3 exponent and 2 mantissa bits; -0 is no number, the highest code is NaN, and numbers are 1/64 to 6.
constexpr qk::floating fp6_small{
    .exponent_bits = 3,
    .mantissa_bits = 2,
    .bias = 5,
    .specials = {.infinity = false, .high_nans = qk::high_nans::one, .negative_zero = false},
};

// Blocks of 16 of them under a power of two.
constexpr qk::microscaling blocks{.block_size = 16, .element = fp6_small};

// A codebook: code i is the number i. Constants of static storage hold the numbers, the format refers to them.
constexpr qk::table_values levels = qk::values_of(std::array{-1.0f, -0.5f, -0.25f, 0.0f, 0.125f, 0.25f, 0.5f, 1.0f});
constexpr qk::table codebook{&levels, qk::table_ties::away};

static_assert(qk::check(fp6_small).empty() && qk::check(blocks).empty() && qk::check(codebook).empty());

std::vector<float> inputs() {
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.7f * static_cast<float>(i)) * static_cast<float>(i % 7);
    return x;
}

/// Kernels, and the law of the codec: packed values are the values of fake_quantize.
template <auto Format>
std::vector<float> quantized(const std::vector<float>& x, bool& fine) {
    std::vector<float> y(x.size()), again(x.size());
    std::vector<std::byte> packed(qk::packed_bytes<Format>(x.size()));
    qk::fake_quantize<Format>(x, y);
    qk::encode<Format>(x, packed);
    qk::decode<Format>(packed, again);
    fine = fine && y == again;
    std::printf("%-66s %zu values in %zu bytes\n", qk::to_text(Format).c_str(), x.size(), packed.size());
    return y;
}

/// A device truncates instead of rounding to nearest: compare finds out from its values.
bool finds_truncation(const std::vector<float>& x) {
    qk::semantics truncates;
    truncates.rounding = qk::rounding::toward_zero;
    std::vector<float> device(x.size());
    qk::fake_quantize<blocks>(x, device, truncates);
    qk::compare::conversion asked;
    asked.format = blocks;
    asked.axis = 0;
    asked.blocks = {1, x.size(), 1};
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(x.size())};
    const qk::compare::report r = qk::compare::examine(asked, shape, x, device);
    std::printf("%s", qk::compare::to_text(r).c_str());
    return !r.causes.empty() && r.unexplained == 0;
}

/// The exact sum of products, rounded once, against a sum in double, which holds these products.
bool multiplies(const std::vector<float>& x, const std::vector<float>& y) {
    std::vector<std::byte> a(qk::packed_bytes<blocks>(x.size())), b(qk::packed_bytes<codebook>(x.size()));
    qk::encode<blocks>(x, a);
    qk::encode<codebook>(x, b);
    std::vector<float> other(x.size());
    qk::decode<codebook>(b, other);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(other[i]);
    const float product = qk::dot<blocks, codebook, qk::accumulators::exact>({a, x.size()}, {b, x.size()});
    std::printf("dot product %g\n", static_cast<double>(product));
    return product == static_cast<float>(sum);
}

/// Writes NumPy's file format.
void write(const std::string& path, const std::vector<float>& v) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(v.size()) + ",), }";
    header.resize(128 - 10 - 1, ' ');
    std::ofstream file(path, std::ios::binary);
    file.write("\x93NUMPY\x01\x00\x76\x00", 10);
    file << header << '\n';
    file.write(reinterpret_cast<const char*>(v.data()), static_cast<std::streamsize>(v.size() * sizeof(float)));
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<float> x = inputs();
    bool fine = qk::find_format(qk::format(fp6_small)) == nullptr;  // it has no name
    quantized<fp6_small>(x, fine);
    const std::vector<float> of_codebook = quantized<codebook>(x, fine), of_blocks = quantized<blocks>(x, fine);
    fine = fine && of_codebook[0] == 0 && of_codebook[2] == 1;
    // The text means the same format, wherever it is read.
    fine = fine && *qk::parse_format(qk::to_text(blocks)) == qk::format(blocks);
    fine = fine && *qk::parse_format(qk::to_text(codebook)) == qk::format(codebook);
    fine = finds_truncation(x) && fine;
    fine = multiplies(x, of_blocks) && fine;
    if (argc > 1) {
        const std::string folder = argv[1];
        write(folder + "/x.npy", x);
        write(folder + "/blocks.npy", of_blocks);
        write(folder + "/codebook.npy", of_codebook);
        std::ofstream(folder + "/blocks.txt") << qk::to_text(blocks).view();
        std::ofstream(folder + "/codebook.txt") << qk::to_text(codebook).view();
    }
    std::printf(fine ? "all as defined\n" : "something differs\n");
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
