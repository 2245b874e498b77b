// SPDX-License-Identifier: Apache-2.0
// Reads the name of a golden file, SYSTEM.FORMAT[.MODE].CASE.npy, as format, scale and semantics.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

struct golden_case {
    std::string system, format_name, mode, input;
    qk::format format;
    qk::semantics how;
    float scale = 0;  ///< 0: the name has none
    std::int64_t zero_point = 0;
    bool per_row = false;  ///< the scales are in scales.per_row.npy, one for each row
    /// The case shows a defect of the system itself, which need not be reproduced.
    bool outside_pass_mark = false;
};

inline std::optional<golden_case> read_golden_name(const std::string& file) {
    std::vector<std::string> parts;
    std::string rest = file.substr(0, file.size() - 4);  // without .npy
    for (std::size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
        // the dots of numbers, as in int8_s0.05_z3, do not separate
        while (dot != std::string::npos && dot > 0 && dot + 1 < rest.size() && std::isdigit(rest[dot - 1]) && std::isdigit(rest[dot + 1]))
            dot = rest.find('.', dot + 1);
        if (dot == std::string::npos) break;
        parts.push_back(rest.substr(0, dot));
    }
    parts.push_back(rest);
    if (parts.size() < 3 || parts[0] == "scales") return std::nullopt;
    golden_case g;
    g.system = parts[0];
    g.format_name = parts[1];
    g.mode = parts.size() == 4 ? parts[2] : "";
    g.input = parts.back();

    g.how = *qk::parse_semantics(g.system == "onnxruntime" ? "onnx" : g.system);
    if (g.system == "quark") {
        const std::map<std::string, qk::rounding> modes{
            {"half_even", qk::rounding::half_even}, {"half_away", qk::rounding::half_away}, {"half_up", qk::rounding::half_up}};
        g.how.rounding = modes.at(g.mode);
    }
    if (g.system == "microxcaling") {
        const std::map<std::string, qk::rounding> modes{
            {"even", qk::rounding::half_even}, {"nearest", qk::rounding::half_away}, {"floor", qk::rounding::toward_zero}};
        g.how.rounding = modes.at(g.mode);
        g.outside_pass_mark = g.input == "below_pow2";
    }
    if (g.system == "torchao") {
        g.how.scale_rule = *qk::parse_scale_rule(g.mode);
        g.outside_pass_mark = g.input == "specials" || g.input == "subnormal";
    }

    std::string name = g.format_name;
    if (name.substr(0, 5) == "fake_") name = name.substr(5);
    if (const std::size_t s = name.find("_s"); s != std::string::npos) {
        g.scale = std::stof(name.substr(s + 2));
        if (const std::size_t z = name.find("_z"); z != std::string::npos) g.zero_point = std::stoll(name.substr(z + 2));
        name = name.substr(0, s);
    }
    if (name == "int8_per_row") {
        g.per_row = true;
        name = "int8";
    }
    if (name == "bfp_w13_b16") name = "bfp:block=16,exponent=8,mantissa=4";
    if (name == "mxfp4_e2m1") name = "mxfp4";
    if ((name.substr(0, 3) == "fp6" || name.substr(0, 3) == "fp4") && name.substr(name.size() - 2) == "fn")
        name = name.substr(0, name.size() - 2);
    g.format = *qk::parse_format(name);
    return g;
}
