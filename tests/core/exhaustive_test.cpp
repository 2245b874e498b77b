// SPDX-License-Identifier: Apache-2.0
// Sweeps over all 2^32 floats, in the build for this machine's best instruction set.
//
//   exhaustive_test FORMAT [THREADS]   kernel against oracle; FORMAT is an elementwise name of the catalogue
//   exhaustive_test cpu-fp16           oracle against the CPU's own conversion
//   exhaustive_test cpu-bf16           likewise, but for subnormal inputs, which the CPU flushes
//   exhaustive_test splits             every float split: every value, every middle and their neighbours, and 2^24 samples
//   (QK_SPLIT_SAMPLES)
//
// Exit status 1 when anything differs.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "compare_bits.hpp"
#include "evidence.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/formats/parse.hpp"
#include "qk/reference/codes.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

#if defined(__AVX512F__)
const std::string isa = "AVX-512";
#elif defined(__AVX2__)
const std::string isa = "AVX2+FMA";
#elif defined(__aarch64__)
const std::string isa = "NEON";
#else
const std::string isa = "SSE2";
#endif

constexpr std::uint32_t piece = 1u << 14;

/// Calls compare(x) for the 2^32 floats, in order, `piece` at a time; the sum of what it returns.
template <class Compare>
std::size_t sweep(unsigned threads, Compare compare) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::size_t> mismatches{0};
    const auto work = [&] {
        std::vector<float> x(piece), expected(piece), actual(piece);
        for (std::uint64_t at; (at = next.fetch_add(piece)) < std::uint64_t{1} << 32;) {
            for (std::uint32_t i = 0; i < piece; ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(at) + i);
            mismatches += compare(x, expected, actual);
        }
    };
    std::vector<std::thread> pool;
    for (unsigned t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
    for (std::thread& t : pool) t.join();
    return mismatches;
}

int report(const std::string& format, const std::string& evidence, std::size_t inputs, std::size_t mismatches) {
    std::printf("%s: %s, %s: %zu inputs, %zu mismatches\n", format.c_str(), evidence.c_str(), isa.c_str(), inputs, mismatches);
    record_evidence(format, evidence, isa, inputs, mismatches);
    return mismatches == 0 ? 0 : 1;
}

constexpr std::size_t all_floats = std::size_t{1} << 32;

template <auto Format>
std::size_t sweep_format(const std::string& name, unsigned threads, affine scale, const semantics& how) {
    return sweep(threads, [&](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
        fake_quantize<Format>(x, actual, scale, how);
        reference::fake_quantize(format(Format), x, expected, scale, how);
        return count_mismatches(x, expected, actual, name);
    });
}

template <std::size_t I>
int sweep_entry(const std::string& name, unsigned threads) {
    constexpr auto f = std::get<catalogue[I].format.index()>(catalogue[I].format);
    if constexpr (block_size(f) == 0) {
        if (catalogue[I].name != name) return 0;
        if constexpr (std::is_same_v<decltype(f), const integer>) {
            const affine scale{0.05f, (qmin(f) + qmax(f) + 1) / 2 + (f.bits > 2 ? 3 : 0)};
            int status =
                report(name, "oracle: all 2^32 floats, division", all_floats, sweep_format<f>(name, threads, scale, semantics::onnx));
            if (f.bits == 8)
                status |= report(name, "oracle: all 2^32 floats, reciprocal", all_floats,
                                 sweep_format<f>(name, threads, scale, semantics::torch));
            return status;
        } else {
            int status = report(name, "oracle: all 2^32 floats", all_floats, sweep_format<f>(name, threads, {}, semantics::ocp));
            if (f != fp32)
                status |= report(name, "oracle: all 2^32 floats, by a scale", all_floats,
                                 sweep_format<f>(name, threads, {.scale = 0.05f}, semantics::ocp));
            return status;
        }
    }
    return 0;
}

template <std::size_t... I>
int sweep_named(const std::string& name, unsigned threads, std::index_sequence<I...>) {
    return (sweep_entry<I>(name, threads) | ...);
}

int compare_with_cpu_fp16([[maybe_unused]] unsigned threads) {
#if defined(__F16C__)
    return report("fp16", "the CPU's conversion (F16C): all 2^32 floats", all_floats,
                  sweep(threads, [](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
                      for (std::size_t i = 0; i < x.size(); i += 8) {
                          const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(&x[i]), _MM_FROUND_TO_NEAREST_INT);
                          _mm256_storeu_ps(&expected[i], _mm256_cvtph_ps(half));
                      }
                      reference::fake_quantize(fp16, x, actual);
                      return count_mismatches(x, expected, actual, "fp16 against the CPU");
                  }));
#else
    std::puts("skipped: this CPU has no f16c");
    return 0;
#endif
}

int compare_with_cpu_bf16([[maybe_unused]] unsigned threads) {
#if defined(__AVX512BF16__)
    const std::size_t subnormals = 2 * ((std::size_t{1} << 23) - 1);
    return report("bf16", "the CPU's conversion (AVX512_BF16): all floats but subnormals", all_floats - subnormals,
                  sweep(threads, [](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
                      reference::fake_quantize(bf16, x, actual);
                      for (std::size_t i = 0; i < x.size(); i += 16) {
                          const __m256i words = std::bit_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(&x[i])));
                          _mm512_storeu_si512(&expected[i], _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
                      }
                      for (std::size_t i = 0; i < x.size(); ++i) {
                          if (std::fpclassify(x[i]) == FP_SUBNORMAL) expected[i] = actual[i];
                      }
                      return count_mismatches(x, expected, actual, "bf16 against the CPU");
                  }));
#else
    std::puts("skipped: this CPU has no avx512_bf16");
    return 0;
#endif
}

/// Every value of f, every middle between two of them, and the floats beside those.
std::vector<float> boundaries(floating f) {
    constexpr float huge = std::numeric_limits<float>::infinity();
    std::vector<float> x;
    for (std::uint32_t code = 0; code < 1u << bits(f); ++code) {
        const float y = reference::value_of(f, code);
        if (!std::isfinite(y)) continue;
        const int e = y == 0 ? min_exponent(f) : std::max(reference::exponent_of(y), min_exponent(f));
        const double half_step = power_of_two(e - f.mantissa_bits - 1);
        for (const double v : {static_cast<double>(y), y + half_step, y - half_step, y + half_step / 2}) {
            const auto near = static_cast<float>(v);
            for (const float z : {near, std::nextafter(near, huge), std::nextafter(near, -huge)}) x.push_back(z);
        }
    }
    return x;
}

int sweep_splits(unsigned threads) {
    const char* wanted = std::getenv("QK_SPLIT_SAMPLES");
    const std::size_t samples = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::size_t{1} << 24;
    std::vector<floating> splits;
    for (int e = 1; e <= 8; ++e) {
        for (int m = 0; m <= 14; ++m) {
            for (int s = 0; s < 4; ++s) {
                const floating f{e, m, detail::default_bias(e, specials(s)), specials(s)};
                if (check(f).empty()) splits.push_back(f);
            }
        }
    }
    std::atomic<std::size_t> next{0}, mismatches{0}, inputs{0};
    const auto work = [&] {
        for (std::size_t k; (k = next++) < splits.size();) {
            const floating f = splits[k];
            const std::string name(to_text(f).view());
            std::vector<float> x = boundaries(f);
            generator g{k + 1};
            const std::size_t total = x.size() + samples;
            for (std::size_t done = 0; done < total; done += x.size()) {
                if (done != 0) {
                    x.resize(std::min(total - done, std::size_t{piece}));
                    for (float& v : x) v = std::bit_cast<float>(g.word());
                }
                std::vector<float> expected(x.size()), actual(x.size());
                for (const semantics& how : {semantics::ocp, semantics::ml_dtypes}) {
                    if (done != 0 && how == semantics::ml_dtypes) continue;
                    fake_quantize(f, x, actual, how);
                    reference::fake_quantize(f, x, expected, how);
                    mismatches += count_mismatches(x, expected, actual, name);
                    inputs += x.size();
                }
            }
        }
    };
    std::vector<std::thread> pool;
    for (unsigned t = 1; t < threads; ++t) pool.emplace_back(work);
    work();
    for (std::thread& t : pool) t.join();
    return report("float:... (" + std::to_string(splits.size()) + " splits)", "oracle: every boundary, and samples", inputs, mismatches);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fputs("usage: exhaustive_test FORMAT|cpu-fp16|cpu-bf16|splits [THREADS]\n", stderr);
        return 2;
    }
    const std::string what = argv[1];
    const unsigned threads = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 1;
    if (what == "cpu-fp16") return compare_with_cpu_fp16(threads);
    if (what == "cpu-bf16") return compare_with_cpu_bf16(threads);
    if (what == "splits") return sweep_splits(threads);
    const named_format* entry = find_format(what);
    if (entry == nullptr || is_block_format(entry->format)) {
        std::fprintf(stderr, "%s is not an elementwise name of the catalogue\n", what.c_str());
        return 2;
    }
    return sweep_named(what, threads, std::make_index_sequence<std::size(catalogue)>());
}
