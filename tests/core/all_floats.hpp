// SPDX-License-Identifier: Apache-2.0
// Sweeps over all 2^32 floats: the floats, the oracle's results for them, and the report of a sweep.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "compare_bits.hpp"
#include "evidence.hpp"
#include "qk/formats/parse.hpp"
#include "qk/reference.hpp"

constexpr std::size_t all_floats = std::size_t{1} << 32;
constexpr std::uint32_t piece = 1u << 14;  ///< floats that are swept at a time; their bit patterns are consecutive

/// Runs work() on `threads` threads, the calling one among them.
template <class Work>
void on_threads(unsigned threads, Work work) {
    std::vector<std::thread> pool;
    for (unsigned t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
    for (std::thread& t : pool) t.join();
}

/// Calls compare(x, expected, actual) for all 2^32 floats, a `piece` at a time. Returns the sum of what compare returns.
template <class Compare>
std::size_t sweep(unsigned threads, Compare compare) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::size_t> mismatches{0};
    on_threads(threads, [&] {
        std::vector<float> x(piece), expected(piece), actual(piece);
        for (std::uint64_t at; (at = next.fetch_add(piece)) < all_floats;) {
            for (std::uint32_t i = 0; i < piece; ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(at) + i);
            mismatches += compare(x, expected, actual);
        }
    });
    return mismatches;
}

/// Writes the oracle's results for a piece to `expected`; `how` must round to nearest. Division by a positive scale, rounding and clamping
/// are monotone, and all magnitudes above some bound overflow, so a stretch of floats of one sign has one result if both of its ends have
/// it. For most stretches the oracle computes the two ends only. It computes every float of a stretch whose ends differ, of a piece with
/// Inf or NaN and, if QK_SWEEP_EVERY is set, of every piece.
inline void ask_oracle(const qk::format& f, const std::vector<float>& x, std::vector<float>& expected, qk::affine scale,
                       const qk::semantics& how) {
    constexpr std::size_t stretch = 64;
    static const bool every = std::getenv("QK_SWEEP_EVERY") != nullptr;
    if (every || !std::isfinite(x.back()) || !std::isfinite(x.front())) return qk::reference::fake_quantize(f, x, expected, scale, how);
    const auto ask = [&](std::size_t i) { return qk::reference::quantize_one(f, x[i], scale.scale, scale.zero_point, true, how, 0); };
    expected[0] = ask(0);
    for (std::size_t begin = 0; begin < x.size(); begin += stretch) {
        const std::size_t end = std::min(begin + stretch, x.size() - 1);
        const float last = ask(end);
        if (same_bits(expected[begin], last)) {
            std::fill(expected.begin() + static_cast<std::ptrdiff_t>(begin), expected.begin() + static_cast<std::ptrdiff_t>(end), last);
        } else {
            for (std::size_t i = begin + 1; i < end; ++i) expected[i] = ask(i);
        }
        expected[end] = last;
    }
}

/// Returns count_mismatches(); is quick where all bits are equal.
inline std::size_t count_wrong(const std::vector<float>& x, const std::vector<float>& expected, const std::vector<float>& actual,
                               const std::string& what) {
    const bool equal = std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0;
    return equal ? 0 : count_mismatches(x, expected, actual, what);
}

/// The command line of a sweep: WHAT [THREADS].
struct asked_sweep {
    std::string what;
    unsigned threads = 1;

    /// Ends the program with status 2 if WHAT is missing.
    asked_sweep(int argc, char** argv, const char* usage) {
        if (argc < 2) {
            std::fprintf(stderr, "usage: %s [THREADS]\n", usage);
            std::exit(2);
        }
        what = argv[1];
        if (argc > 2) threads = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
    }
    /// Returns the catalogue's format `what`. Ends the program with status 2 if there is none, or if is_block_format is not `of_blocks`.
    const qk::named_format& format(bool of_blocks) const {
        const qk::named_format* named = qk::find_format(what);
        if (named == nullptr || qk::is_block_format(named->format) != of_blocks) {
            std::fprintf(stderr, "%s is not %s of the catalogue\n", what.c_str(), of_blocks ? "a block format" : "an elementwise name");
            std::exit(2);
        }
        return *named;
    }
};

/// Prints and records a sweep. Returns the exit status: 1 if anything differs.
inline int report_sweep(const std::string& format, const std::string& evidence, const std::string& isa, std::size_t inputs,
                        std::size_t mismatches) {
    std::printf("%s: %s, %s: %zu inputs, %zu mismatches\n", format.c_str(), evidence.c_str(), isa.c_str(), inputs, mismatches);
    record_evidence(format, evidence, isa, inputs, mismatches);
    return mismatches == 0 ? 0 : 1;
}

/// A sweep of an elementwise format, its scale and semantics.
struct swept {
    std::string evidence;
    qk::affine scale;
    qk::semantics how;
};

/// Returns the sweeps of an elementwise format. Integers divide by a scale and have a zero point; those of 8 bits also multiply by the
/// reciprocal. Floats run without a scale and, except fp32, with one.
inline std::vector<swept> sweeps_of(const qk::format& f) {
    const std::string all = "oracle: all 2^32 floats";
    if (const qk::integer* i = std::get_if<qk::integer>(&f)) {
        const qk::affine scale{0.05f, (qk::qmin(*i) + qk::qmax(*i) + 1) / 2 + (i->bits > 2 ? 3 : 0)};
        std::vector<swept> sweeps{{all + ", division", scale, qk::semantics::onnx}};
        if (i->bits == 8) sweeps.push_back({all + ", reciprocal", scale, qk::semantics::torch});
        return sweeps;
    }
    std::vector<swept> sweeps{{all, {}, qk::semantics::ocp}};
    if (f != qk::format(qk::fp32)) sweeps.push_back({all + ", by a scale", {.scale = 0.05f}, qk::semantics::ocp});
    return sweeps;
}
