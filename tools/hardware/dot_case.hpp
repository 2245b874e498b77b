// SPDX-License-Identifier: Apache-2.0
// Matrix products as codes, which `qk dot --case` reads and writes and `qk vectors --device` makes. Arrays are a [m][k], b [k][n], c and d
// [m][n]; scales of blocks are scale_a [m][k / block], scale_b [k / block][n]; 4-bit codes stand two to a byte along k, the first in the
// low bits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/graph/files.hpp"

namespace qk::tool {

/// What multiplies: a device, or an accumulator with operand formats.
struct multiplier {
    std::string name;  ///< name of the device, or the accumulator's text
    qk::format a, b;
    qk::accumulator how;
};
/// Makes a multiplier from --device, or from --accumulator with --a-format and --b-format (which also override a device's formats). Throws
/// an error that names the option or the device.
multiplier multiplier_of(const std::string& device, const std::string& accumulator, const std::string& a_format,
                         const std::string& b_format);

/// One operand's codes, packed as qk::encode packs them.
struct coded_operand {
    std::vector<std::byte> elements, scales;
    packed_matrix matrix() const { return {.planes = {elements, scales, {}, {}}, .zero_point = 0}; }
};
/// Packs a row's or column's codes and its scales, if it has any.
coded_operand packed_operand(const format& f, const std::vector<std::uint64_t>& elements, const std::vector<std::uint64_t>& scales);
struct dot_case {
    product_shape shape;
    coded_operand a, b;
    std::vector<std::uint64_t> c;                 ///< empty: usual_c
    std::optional<std::vector<std::uint64_t>> d;  ///< expected result; nullopt: the file has none
};

/// Returns the array of that name; nullptr if there is none.
const graph::tensor* find_array(const std::vector<graph::named_tensor>& arrays, const std::string& name);

/// Checks the arrays of an .npz and makes a case of them; errors name `file`.
dot_case case_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, const multiplier& by);

/// Returns the bits of one element's code.
inline int width_of(const format& f) { return element_width(f); }
/// Scales of a row of k elements.
inline std::size_t blocks_of(const format& f, std::size_t k) { return layout_of(f, along_axis{1, k, 1}).scales.count; }

/// Returns an array of whole numbers as codes of at most `bits` bits; errors call it `what`.
std::vector<std::uint64_t> codes_of(const graph::tensor& t, const std::string& what, int bits);

/// parted() splits each byte of an array [rows][k / 2][columns] into two 4-bit codes, neighbours along k: rows * k * columns codes.
/// joined() does the reverse.
std::vector<std::uint64_t> parted(const std::vector<std::uint64_t>& bytes, std::size_t rows, std::size_t half, std::size_t columns);
std::vector<std::uint64_t> joined(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t k, std::size_t columns);

/// Computes the codes of D; `counts`, if given, gets how often each flag was raised.
std::vector<std::uint64_t> multiply(const dot_case& problem, const multiplier& by, dot_counts* counts = nullptr);

/// Returns codes as an array [rows][columns] of the narrowest unsigned type, uint8 to uint64, that has `bits` bits.
graph::tensor codes_tensor(const std::vector<std::uint64_t>& codes, std::size_t rows, std::size_t columns, int bits);
int result_bits(const accumulator& a);
int addend_bits(const accumulator& a);
/// Returns C where none is given: nothing, which stands for zeros; -0 where a sum has one term, so that the product itself comes out.
std::vector<std::uint64_t> usual_c(const accumulator& a, const product_shape& shape);

/// Is true when two results are the same; NaN equals NaN.
bool same_result(const accumulator& a, std::uint64_t x, std::uint64_t y);

/// Makes a case whose products tell devices apart: ordinary values, arbitrary bits, a few large values among small ones, subnormal values,
/// and values whose sums cancel.
std::vector<graph::named_tensor> make_case(const multiplier& by, std::size_t rows, std::size_t columns, std::size_t k, std::uint64_t seed);

}  // namespace qk::tool
