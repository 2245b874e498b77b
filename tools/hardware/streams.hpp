// SPDX-License-Identifier: Apache-2.0
// Cases as lines of hexadecimal words, as TestFloat has them: operands, then the results that a device appends. `qk gen` makes lines,
// `qk ver` checks them.
//
//     converter     values of a block, or one value            | codes of its elements, its scale, its shifts
//     decoder       codes of the elements, scale, shifts       | the values, float32
//     products      a code of each of two formats              | their product, float32 or a 32-bit integer
//     device        codes of a, its scales, of b, scales, and c | d      (no c with --c-format none)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "options/format_options.hpp"
#include "options/hex_words.hpp"
#include "qk/compare/bins.hpp"

namespace qk::tool {

struct stream_options {
    quantize_options how;
    std::string device, accumulator, a_format, b_format, c_format, pairs, input = "fp32", level = "1";
    std::size_t k = 0;  ///< terms of a sum; 0: as the device has them
    bool decode = false;
};

inline constexpr std::size_t cases_at_once = 4096;

/// The bins of a kind of cases, which lives longer.
struct covered_bins {
    std::function<void(const hex_row&)> add;  ///< operands of some cases, one after the other
    std::function<const std::vector<compare::bin>&()> all;
    std::function<hex_row(std::size_t)> stimulus;  ///< operands of a case that hits a bin
};

/// One kind of cases. Widths are in bits, one for each word of a case.
class case_kind {
  public:
    virtual ~case_kind() = default;
    std::vector<int> operands, results;
    std::string name;        ///< "mxfp8_e4m3", for errors
    std::size_t before = 0;  ///< cases before those that are asked: stochastic rounding counts values from the first case on

    /// Calls take(cases) with operands of some cases, one after the other, until there are no more.
    virtual void generate(const std::string& level, std::uint64_t seed, const std::function<void(const hex_row&)>& take) const = 0;
    /// Returns what a device should give for these operands, one case after the other.
    virtual hex_row expected(const hex_row& asked) const = 0;
    /// Sets wrong[n] for each case whose results are not the expected ones. NaN is NaN, whatever its code.
    virtual std::vector<char> wrong(const hex_row& asked, const hex_row& given, const hex_row& right) const = 0;
    /// Returns what `qk cover` counts, no bin hit.
    virtual covered_bins bins() const = 0;
};
std::unique_ptr<case_kind> case_kind_of(const stream_options& given);

/// Returns the terms of a sum: --k, or twice those of the device's instruction. Throws where blocks do not fit.
struct multiplier;
std::size_t terms_of(const stream_options& given, const multiplier& by);
/// Returns fp32, fp16 or bf16; throws for other words.
floating input_format_of(const std::string& input);
/// Reads words as the cases of a decoder: codes of elements, then the scale, then the shifts. Errors name `file`.
std::pair<conversion, compare::coded_values> coded_values_of(const quantize_options& given, const hex_row& words, const std::string& file);

/// Adds FORMAT, which it returns, --level, --decode, --pairs, --device, --accumulator, --input and the options of formats.
class option_table;
struct option;
option& add_stream_options(option_table& verb, stream_options& given);
/// Adds those that say what multiplies and adds: --device, --accumulator, --a-format, --b-format and --k.
void add_sum_options(option_table& verb, stream_options& given);
/// Adds --c-format none.
void add_c_option(option_table& verb, stream_options& given);

}  // namespace qk::tool
