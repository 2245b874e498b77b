// SPDX-License-Identifier: Apache-2.0
// Sweeps over all 2^32 floats of the kernels whose format is known when compiling, built for this machine's processor.
//
//   exhaustive_forms_test FORMAT [THREADS]   kernel against oracle; FORMAT is an elementwise name of the catalogue
//   exhaustive_forms_test cpu-fp16           oracle against the CPU's own conversion
//   exhaustive_forms_test cpu-bf16           the same, without subnormal inputs, which the CPU flushes
//
// Exit status 1 when anything differs.
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "all_floats.hpp"
#include "qk/fake_quantize.hpp"

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

template <std::size_t I>
int sweep_entry(const std::string& name, unsigned threads) {
    constexpr auto f = std::get<catalogue[I].format.index()>(catalogue[I].format);
    int status = 0;
    if constexpr (block_size(f) == 0) {
        if (catalogue[I].name != name) return 0;
        for (const swept& s : sweeps_of(f)) {
            const auto compare = [&](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
                fake_quantize<f>(x, actual, s.scale, s.how);
                ask_oracle(f, x, expected, s.scale, s.how);
                return count_wrong(x, expected, actual, name);
            };
            status |= report_sweep(name, s.evidence, isa, all_floats, sweep(threads, compare));
        }
    }
    return status;
}

template <std::size_t... I>
int sweep_named(const std::string& name, unsigned threads, std::index_sequence<I...>) {
    return (sweep_entry<I>(name, threads) | ...);
}

int compare_with_cpu_fp16([[maybe_unused]] unsigned threads) {
#if defined(__F16C__)
    return report_sweep("fp16", "the CPU's conversion (F16C): all 2^32 floats", isa, all_floats,
                        sweep(threads, [](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
                            for (std::size_t i = 0; i < x.size(); i += 8) {
                                const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(&x[i]), _MM_FROUND_TO_NEAREST_INT);
                                _mm256_storeu_ps(&expected[i], _mm256_cvtph_ps(half));
                            }
                            reference::fake_quantize(fp16, x, actual);
                            return count_wrong(x, expected, actual, "fp16 against the CPU");
                        }));
#else
    std::puts("skipped: this CPU has no f16c");
    return 0;
#endif
}

int compare_with_cpu_bf16([[maybe_unused]] unsigned threads) {
#if defined(__AVX512BF16__)
    const std::size_t subnormals = 2 * ((std::size_t{1} << 23) - 1);
    return report_sweep("bf16", "the CPU's conversion (AVX512_BF16): all floats but subnormals", isa, all_floats - subnormals,
                        sweep(threads, [](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
                            reference::fake_quantize(bf16, x, actual);
                            for (std::size_t i = 0; i < x.size(); i += 16) {
                                const __m256i words = std::bit_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(&x[i])));
                                _mm512_storeu_si512(&expected[i], _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
                            }
                            for (std::size_t i = 0; i < x.size(); ++i) {
                                if (std::fpclassify(x[i]) == FP_SUBNORMAL) expected[i] = actual[i];
                            }
                            return count_wrong(x, expected, actual, "bf16 against the CPU");
                        }));
#else
    std::puts("skipped: this CPU has no avx512_bf16");
    return 0;
#endif
}

}  // namespace

int main(int argc, char** argv) {
    const asked_sweep asked(argc, argv, "exhaustive_forms_test FORMAT|cpu-fp16|cpu-bf16");
    if (asked.what == "cpu-fp16") return compare_with_cpu_fp16(asked.threads);
    if (asked.what == "cpu-bf16") return compare_with_cpu_bf16(asked.threads);
    const std::string name(asked.format(false).name);
    return sweep_named(name, asked.threads, std::make_index_sequence<std::size(catalogue)>());
}
