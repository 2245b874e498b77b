// SPDX-License-Identifier: Apache-2.0
// Cases that tell right devices from wrong ones: values for converters, codes for decoders, and operands for units that multiply and add.
// `qk gen`, `qk vectors`, `qk compare --dot` and the scoreboard of converters in qk.h draw from these; qk/compare/bins.hpp counts what they
// hit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qk/compare/conversion.hpp"
#include "qk/compare/decoder.hpp"
#include "qk/compare/dot.hpp"

namespace qk::compare {

/// Returns the word that a converter with inputs of `input` (fp32, fp16 or bf16) is given for x, and the value of that word. NaN stays NaN,
/// with as much of its payload as there is room for, at least its lowest bit.
std::uint32_t input_word(floating input, float x);
float as_input(floating input, float x);

/// Returns values that random ones do not meet: every number of a format of up to 16 bits and every tie with its neighbours; for every
/// shift, in normal and in subnormal results, ties to even and to odd with each single lower bit, below and above; every binade; special
/// values, NaN with every kind of payload. Of block formats whole blocks one after the other: the largest value, NaN and Inf in each lane,
/// every scale that a power of two makes. The scale of `c` moves the numbers; a scale that is no power of two has no such ties.
std::vector<float> converter_corners(const conversion& c);
/// Returns the corners, and random values behind them.
std::vector<float> converter_cases(const conversion& c, std::uint64_t seed);

/// Returns codes for a decoder: of elements of up to 8 bits every code under every scale, in turning lanes; of wider ones up to 16 bits
/// every code; of those, every exponent with the ends of the mantissa.
coded_values decoder_corners(const conversion& c);

/// Returns questions in groups, each a matrix of rows and columns that all mean something: NaN and Inf in each place, also where they meet
/// zeros alone; the lowest and highest codes in all places, in the first ones and in turn; sums that cancel by each number of bits, that
/// carry by each, that are ties of the result or lie a bit beside; C at each distance from a product; subnormal operands; the ends of the
/// scale codes; products at each distance below the largest one, by place. `kept`: fraction bits of the widest register that is looked at;
/// `places`: at most so many of the k places are told apart.
std::vector<dot_case> dot_corners(const dot_task& task, int kept = 24, std::size_t places = 128);

}  // namespace qk::compare
