// SPDX-License-Identifier: Apache-2.0
// tests/data/systems: what the systems' packages answered, packed by pack.py as inputs and hashes.
#pragma once

#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../core/npy_test_data.hpp"
#include "qk/systems.hpp"

struct matrix {
    std::size_t rows = 0, columns = 0;
    std::vector<float> values;

    bool finite() const {
        for (const float v : values) {
            if (!std::isfinite(v)) return false;
        }
        return true;
    }
};

struct packed_answer {
    std::string rule, input, plane, type, shape;
    bool with_importance = false;
    std::uint64_t hash = 0;
};

struct packed_answers {
    std::map<std::string, matrix> inputs;
    std::vector<packed_answer> answers;

    packed_answers() {
        const std::string folder = std::string(QK_SOURCE_DIR) + "/tests/data/systems/";
        const float_array all = read_float_npy(folder + "inputs.npy");
        std::ifstream file(folder + "answers.txt");
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string first;
            words >> first;
            if (first == "input") {
                std::string name;
                std::size_t at = 0;
                matrix m;
                words >> name >> m.rows >> m.columns >> at;
                m.values.assign(all.values.begin() + static_cast<std::ptrdiff_t>(at),
                                all.values.begin() + static_cast<std::ptrdiff_t>(at + m.rows * m.columns));
                inputs[name] = std::move(m);
                continue;
            }
            packed_answer a;
            a.rule = first;
            words >> a.input >> a.plane >> a.type >> a.shape >> std::hex >> a.hash;
            a.with_importance = a.input.rfind("imatrix+", 0) == 0;
            if (a.with_importance) a.input = a.input.substr(8);
            answers.push_back(std::move(a));
        }
    }
    /// "NAME_x2" is the input NAME twice, one below the other.
    matrix input(const std::string& name) const {
        const auto found = inputs.find(name);
        if (found != inputs.end()) return found->second;
        matrix m = inputs.at(name.substr(0, name.size() - 3));
        const std::vector<float> once = m.values;
        m.values.insert(m.values.end(), once.begin(), once.end());
        m.rows *= 2;
        return m;
    }
};

/// 64-bit FNV-1a; every NaN counts as the same one.
inline std::uint64_t hash_of(std::span<const std::byte> bytes, bool floats) {
    std::uint64_t h = 0xcbf29ce484222325u;
    const auto add = [&h](std::byte b) { h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u; };
    if (!floats) {
        for (const std::byte b : bytes) add(b);
        return h;
    }
    for (std::size_t at = 0; at < bytes.size(); at += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, &bytes[at], 4);
        if ((word & 0x7fffffff) > 0x7f800000) word = 0x7fc00000;
        for (unsigned k = 0; k < 4; ++k) add(static_cast<std::byte>((word >> (8 * k)) & 0xff));
    }
    return h;
}

inline std::string shape_text(const std::vector<std::size_t>& shape) {
    std::string text;
    for (const std::size_t n : shape) text += (text.empty() ? "" : "x") + std::to_string(n);
    return text;
}

inline std::string type_text(qk::systems::plane::type t) {
    using kind = qk::systems::plane::type;
    return t == kind::uint8 ? "u1" : t == kind::int8 ? "i1" : t == kind::int32 ? "i4" : t == kind::uint32 ? "u4" : "f4";
}
