// SPDX-License-Identifier: Apache-2.0
// Reads the float32 .npy files of the golden data: little-endian, C order, nothing else.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

struct float_array {
    std::vector<std::size_t> shape;
    std::vector<float> values;
};

inline float_array read_float_npy(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.size() < 12 || bytes.compare(1, 5, "NUMPY") != 0) throw std::runtime_error(path + ": not an .npy file");
    const std::size_t prefix = bytes[6] == 1 ? 10 : 12;  // the header's length has two bytes in version 1, four later
    std::size_t header_size = static_cast<std::uint8_t>(bytes[8]) + 256u * static_cast<std::uint8_t>(bytes[9]);
    const std::string header = bytes.substr(prefix, header_size);
    if (header.find("'<f4'") == std::string::npos || header.find("'fortran_order': False") == std::string::npos) {
        throw std::runtime_error(path + ": not little-endian float32 in C order");
    }
    float_array a;
    std::size_t count = 1;
    for (std::size_t at = header.find('(') + 1; header[at] != ')'; ++at) {
        if (header[at] < '0' || header[at] > '9') continue;
        std::size_t digits = 0;
        a.shape.push_back(std::stoul(header.substr(at), &digits));
        at += digits - 1;
        count *= a.shape.back();
    }
    a.values.resize(count);
    if (bytes.size() != prefix + header_size + 4 * count) throw std::runtime_error(path + ": wrong size");
    std::memcpy(a.values.data(), bytes.data() + prefix + header_size, 4 * count);
    return a;
}
