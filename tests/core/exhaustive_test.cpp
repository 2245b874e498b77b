// SPDX-License-Identifier: Apache-2.0
// Sweeps over all 2^32 floats of qk::dispatch, for the instruction set that QK_ARCH names (the best one otherwise).
//
//   exhaustive_test FORMAT [THREADS]   fake_quantize, and encode with decode, against the oracle; FORMAT is an elementwise name
//                                      of the catalogue
//   exhaustive_test splits [THREADS]   every float split: every value, every middle and their neighbours, and 2^24 random floats
//                                      (or QK_SPLIT_SAMPLES)
//
// Exit status 1 when anything differs.
#include "all_floats.hpp"

#include <cmath>
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/parse.hpp"
#include "qk/reference/codes.hpp"
#include "test_formats.hpp"
#include "test_inputs.hpp"
#include "under_test.hpp"

using namespace qk;

namespace {

int sweep_format(const named_format& named, const swept& s, unsigned threads) {
    const format& f = named.format;
    const std::string name(named.name);
    const bool codes = encodable(f, s.how);
    std::atomic<std::size_t> wrong_codes{0};
    const std::size_t wrong = sweep(threads, [&](const std::vector<float>& x, std::vector<float>& expected, std::vector<float>& actual) {
        ask_oracle(f, x, expected, s.scale, s.how);
        under_test::fake_quantize(f, x, actual, s.scale, s.how);
        const std::size_t wrong_values = count_wrong(x, expected, actual, name);
        if (codes) {
            thread_local std::vector<std::byte> packed;
            packed.resize(packed_bytes(f, {1, x.size(), 1}));
            if (under_test::encode(f, x, packed, s.scale, s.how) != encode_status::done) {
                wrong_codes += x.size();
            } else {
                under_test::decode(f, packed, actual, s.scale);
                wrong_codes += count_wrong(x, expected, actual, name + " through its codes");
            }
        }
        return wrong_values;
    });
    int status = report_sweep(name, s.evidence, under_test::isa, all_floats, wrong);
    if (codes) status |= report_sweep(name, s.evidence + ", through codes", under_test::isa, all_floats, wrong_codes);
    return status;
}

/// Returns the finite values of codes_of(f), the middles beside it, a point between it and the upper middle, and the neighbours of each of
/// these.
std::vector<float> boundaries(floating f) {
    constexpr float huge = std::numeric_limits<float>::infinity();
    std::vector<float> x;
    for (const std::uint32_t code : codes_of(f)) {
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
        for (int m = 0; m <= 20; ++m) {
            for (const specials s : {specials::ieee, specials::fn, specials::fnuz, specials::none}) {
                const floating f{e, m, detail::default_bias(e, s), s};
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
                    under_test::fake_quantize(f, x, actual, how);
                    reference::fake_quantize(f, x, expected, how);
                    mismatches += count_mismatches(x, expected, actual, name);
                    inputs += x.size();
                }
            }
        }
    };
    on_threads(threads, work);
    return report_sweep("float:... (" + std::to_string(splits.size()) + " splits)", "oracle: every boundary, and samples", under_test::isa,
                        inputs, mismatches);
}

}  // namespace

int main(int argc, char** argv) {
    const asked_sweep asked(argc, argv, "exhaustive_test FORMAT|splits");
    if (asked.what == "splits") return sweep_splits(asked.threads);
    const named_format& named = asked.format(false);
    int status = 0;
    for (const swept& s : sweeps_of(named.format)) status |= sweep_format(named, s, asked.threads);
    return status;
}
