// SPDX-License-Identifier: Apache-2.0
// Matrix products as codes: what `qk dot --case` reads and writes, and `qk vectors --device` makes. Arrays a [m][k], b [k][n], c and d
// [m][n]; scales of blocks scale_a [m][k / block], scale_b [k / block][n]; 4-bit codes stand two to a byte along k, the first in the low
// bits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/graph/files/npy.hpp"

namespace qk::tool {

/// What multiplies: a device, or an accumulator with formats.
struct multiplier {
    std::string name;  ///< of the device, or the accumulator's text
    qk::format a, b;
    qk::accumulator how;
};
/// From --device, or --accumulator with --a-format and --b-format (which override a device's). Error naming the option.
multiplier multiplier_of(const std::string& device, const std::string& accumulator, const std::string& a_format,
                         const std::string& b_format);

/// One operand's codes, packed as qk::encode packs them.
struct coded_operand {
    std::vector<std::byte> elements, scales;
    packed_matrix matrix() const { return {.planes = {elements, scales, {}, {}}, .zero_point = 0}; }
};
struct dot_case {
    product_shape shape;
    coded_operand a, b;
    std::vector<std::uint64_t> c;                 ///< empty: zeros
    std::optional<std::vector<std::uint64_t>> d;  ///< what the file says
};

/// nullptr: there is none of that name.
const graph::tensor* find_array(const std::vector<graph::named_tensor>& arrays, const std::string& name);

/// The arrays of an .npz, checked; `file` stands in errors.
dot_case case_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, const multiplier& by);

/// Bits of one element's code.
inline int width_of(const format& f) { return qk::detail::packing_of(f).element_width; }

/// An array of whole numbers as codes of at most `bits` bits; `what` names it in errors.
std::vector<std::uint64_t> codes_of(const graph::tensor& t, const std::string& what, int bits);

/// Two 4-bit codes of each byte, neighbours along k: rows * k * columns codes of an array [rows][k / 2][columns]; and back.
std::vector<std::uint64_t> parted(const std::vector<std::uint64_t>& bytes, std::size_t rows, std::size_t half, std::size_t columns);
std::vector<std::uint64_t> joined(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t k, std::size_t columns);

/// The result of the case, and counts of what happened where asked for.
std::vector<std::uint64_t> multiply(const dot_case& problem, const multiplier& by, dot_counts* counts = nullptr);

/// Codes of D as an array: uint16 for formats of up to 16 bits, uint64 for fp64 and wide integers, else uint32.
graph::tensor codes_tensor(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t columns, int bits);
int result_bits(const accumulator& a);
int addend_bits(const accumulator& a);

/// The same result? NaN equals NaN.
bool same_result(const accumulator& a, std::uint64_t x, std::uint64_t y);

/// A file's worth of products that tell devices apart: ordinary values, any bits, few large among small, subnormal, cancelling.
std::vector<graph::named_tensor> make_case(const multiplier& by, std::size_t rows, std::size_t columns, std::size_t k, std::uint64_t seed);

}  // namespace qk::tool
