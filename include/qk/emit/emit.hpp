// SPDX-License-Identifier: Apache-2.0
// A converter, or a unit that multiplies and adds, as a file that needs nothing of qk: pure functions over words in C99, SystemVerilog or
// Python, with a self-test, with a module under which a solver compares a device, or with counters of coverage. docs/guide/goldens.md shows
// examples.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "qk/compare/bins.hpp"
#include "qk/dot/accumulator.hpp"
#include "qk/formats/format.hpp"
#include "qk/semantics.hpp"

namespace qk::emit {

enum class language : std::uint8_t { c, system_verilog, python };
enum class form : std::uint8_t {
    function,  ///< the functions alone
    check,     ///< with a program that reads lines of `qk gen` and judges their results
    miter,     ///< with a module (C: a harness) that compares a device
    coverage,  ///< with counters of the bins that words hit (qk/compare/bins.hpp)
};

/// A converter to a format, or a decoder from it.
struct converter {
    qk::format format;
    semantics how;
    std::string name;  ///< what the functions' names begin with: letters, digits and _
    floating input = fp32;
    bool decode = false;
    int scale_exponent = 0;  ///< integers: the scale is 2^scale_exponent, 0 or less
    std::int64_t zero_point = 0;
};

/// A unit that multiplies and adds: d = a[0] b[0] + ... + a[k - 1] b[k - 1] + c.
struct multiplier {
    qk::format a, b;
    accumulator how;
    int k = 1;
    std::string name;   ///< as that of a converter
    bool has_c = true;  ///< no: it adds no C, and lines of its cases have none
};

/// A case: the operands and results of a line of `qk gen`.
struct example {
    std::vector<std::uint64_t> operands, results;
    std::uint64_t index = 0;  ///< of the line: stochastic rounding counts values
};

/// A bin of coverage: its name, and what its kind is about.
struct covered_bin {
    compare::bin is;
    std::string name, about;
};

/// What is emitted.
using unit = std::variant<converter, multiplier>;

struct file_request {
    unit what;
    qk::emit::language language = language::c;
    qk::emit::form form = form::function;
    std::string command;            ///< for the first comment
    std::string version;            ///< likewise
    std::string digest;             ///< SHA-256 of the golden vectors, in hexadecimal
    std::vector<example> examples;  ///< for the self-test
    std::vector<covered_bin> bins;  ///< for coverage, as compare::converter_bins, decoder_bins and dot_bins have them
};

/// Returns the file. The same request gives the same bytes. Throws std::invalid_argument, with a sentence that names the way out, where
/// words without division cannot say what is asked.
std::string file_of(const file_request& r);

/// Return what proves a miter in SystemVerilog, whose file has this name: a script for yosys, and one for SymbiYosys. Both read the device
/// from device.sv.
std::string yosys_script(const file_request& r, const std::string& file);
std::string symbiyosys_script(const file_request& r, const std::string& file);

/// Returns the SHA-256 of bytes, in hexadecimal.
std::string sha_256(const std::string& bytes);

}  // namespace qk::emit
