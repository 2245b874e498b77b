// SPDX-License-Identifier: Apache-2.0
// Sweeps of block formats through qk::dispatch, for the instruction set that QK_ARCH names (the best one otherwise): every float of the 34
// binades (NVFP4: 6) below a block's largest value, and the 2^16 smallest magnitudes, of both signs.
//
//   exhaustive_blocks_test FORMAT [THREADS]   fake_quantize, and encode with decode, against the oracle; a block format of the catalogue
//
// A block holds its largest value twice (a pair of a microexponent has an exponent of its own), then floats whose bit patterns are
// consecutive. Under one largest value rounding is monotone, as it is without blocks, so the oracle computes the ends of a stretch of
// floats, and its inside only where the ends differ.
//
// Exit status 1 when anything differs.
#include "all_floats.hpp"

#include <cmath>
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/parse.hpp"
#include "under_test.hpp"

using namespace qk;

namespace {

constexpr std::uint32_t binade = 1u << 23;
constexpr std::uint32_t sign_bit = 1u << 31;

/// Returns the largest values of the blocks. For scales that are powers of two these are subnormals, both ends of the exponents and the
/// middle. For NVFP4 they are, for every scale that a block may have, the value that gives it and the last float before the middle to
/// the next scale.
std::vector<float> largest_values(const format& f) {
    std::vector<float> a;
    if (std::holds_alternative<nvfloat>(f)) {
        for (float scale = 0x1p-9f; scale <= 448; scale += std::max(0x1p-9f, std::ldexp(1.0f, std::ilogb(scale) - 3))) {
            a.push_back(6 * scale);
            const float next = scale + std::max(0x1p-9f, std::ldexp(1.0f, std::ilogb(scale) - 3));
            a.push_back(std::nextafter(6 * (scale + next) / 2, 0.0f));
        }
        return a;
    }
    for (const std::uint32_t bits : {1u, 1u << 10, (1u << 23) - 1}) a.push_back(std::bit_cast<float>(bits));
    for (const std::uint32_t exponent : {1u, 2u, 3u, 8u, 24u, 60u, 100u, 126u, 127u, 128u, 150u, 200u, 252u, 253u, 254u})
        a.push_back(std::bit_cast<float>(exponent * binade + (binade - 1)));
    for (const std::uint32_t exponent : {1u, 127u, 254u}) a.push_back(std::bit_cast<float>(exponent * binade));
    return a;
}

struct block_sweep {
    const named_format& named;
    semantics how;
    codec_parameters given;  ///< NVFP4: the tensor's scale, so that a block's scale follows from its largest value
    float largest;
    std::size_t block = static_cast<std::size_t>(block_size(named.format));

    /// Returns the oracle's result for x in a block with that largest value.
    float ask(float x) const {
        std::vector<float> in(block, x), out(block);
        in[0] = in[1] = largest;
        reference::fake_quantize(named.format, in, out, along_axis{}, given.has_one ? given.one : reference::no_scale(named.format), how);
        return out[2];
    }

    /// Writes the results of `count` floats from bit pattern `bits` on to y; `first` and `last` are the results of the two ends.
    void fill(std::uint32_t bits, std::size_t count, float first, float last, float* y) const {
        if (same_bits(first, last)) return void(std::fill_n(y, count, first));
        y[0] = first;
        y[count - 1] = last;
        if (count <= 2) return;
        const std::size_t half = count / 2;
        const float middle = ask(std::bit_cast<float>(bits + static_cast<std::uint32_t>(half)));
        fill(bits, half + 1, first, middle, y);
        fill(bits + static_cast<std::uint32_t>(half), count - half, middle, last, y + half);
    }

    void quantize(std::span<const float> x, std::span<float> y) const {
        if (given.has_one) return under_test::fake_quantize(named.format, x, y, along_axis{}, given.one, how);
        under_test::fake_quantize(named.format, x, y, how);
    }

    /// Compares the floats with bit patterns from `begin` up to `end`. Adds how many were compared, and how many differ.
    void run(std::uint32_t begin, std::uint32_t end, unsigned threads, std::size_t& inputs, std::size_t& wrong) const {
        const std::size_t each = block - 2, blocks = piece / block;
        const auto step = static_cast<std::uint32_t>(each * blocks);
        const float anchor = ask(largest);
        std::atomic<std::uint64_t> next{begin};
        std::atomic<std::size_t> mismatches{0};
        on_threads(threads, [&] {
            std::vector<float> x(blocks * block), expected(x.size()), actual(x.size()), answers(step);
            std::vector<std::byte> packed(packed_bytes(named.format, {1, x.size(), 1}));
            for (std::uint64_t at; (at = next.fetch_add(step)) < end;) {
                const auto from = static_cast<std::uint32_t>(at);
                const std::uint32_t count = std::min(step, end - from);
                fill(from, count, ask(std::bit_cast<float>(from)), ask(std::bit_cast<float>(from + count - 1)), answers.data());
                for (std::size_t i = 0; i < blocks; ++i) {
                    for (std::size_t j = 0; j < block; ++j) {
                        const std::size_t k = std::min<std::size_t>(i * each + j - std::min<std::size_t>(j, 2), count - 1);
                        x[i * block + j] = j < 2 ? largest : std::bit_cast<float>(from + static_cast<std::uint32_t>(k));
                        expected[i * block + j] = j < 2 ? anchor : answers[k];
                    }
                }
                quantize(x, actual);
                mismatches += count_wrong(x, expected, actual, std::string(named.name));
                if (under_test::encode(named.format, x, packed, given, how) != encode_status::done) mismatches += x.size();
                under_test::decode(named.format, packed, actual, given);
                mismatches += count_wrong(x, expected, actual, std::string(named.name) + " through its codes");
            }
        });
        inputs += 2 * (end - begin);
        wrong += mismatches;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const asked_sweep asked(argc, argv, "exhaustive_blocks_test FORMAT");
    const named_format& named = asked.format(true);
    const bool nv = std::holds_alternative<nvfloat>(named.format);
    const std::uint32_t depth = (nv ? 6u : 34u) * binade;
    std::size_t inputs = 0, wrong = 0;
    for (const float largest : largest_values(named.format)) {
        const block_sweep sweep{named, semantics::ocp, nv ? codec_parameters(affine{.scale = 1}) : codec_parameters(), largest};
        const auto top = std::bit_cast<std::uint32_t>(largest);
        for (const std::uint32_t sign : {0u, sign_bit}) {
            const std::uint32_t low = top > depth ? (top - depth) & ~1u : 0;
            sweep.run(sign + low, sign + top + 1, asked.threads, inputs, wrong);
            if (low > binade) sweep.run(sign, sign + (1u << 16), asked.threads, inputs, wrong);
        }
    }
    return report_sweep(std::string(named.name), "oracle: every float under chosen largest values, and its code", under_test::isa, inputs,
                        wrong);
}
