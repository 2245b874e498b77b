// SPDX-License-Identifier: Apache-2.0
// Writes PNG files for tests, from the format's specification and with zlib alone.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace qk_test {

inline void put_chunk(std::string& png, const std::string& kind, const std::string& content) {
    const auto number = [](std::uint32_t n) { return std::string{char(n >> 24), char(n >> 16), char(n >> 8), char(n)}; };
    const std::string body = kind + content;
    png += number(static_cast<std::uint32_t>(content.size())) + body +
           number(static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
}

/// Returns a PNG of `rows`, which are packed as the format stores them (16-bit samples big-endian). Color types: 0 grey, 2 RGB, 3 palette,
/// 4 grey and alpha, 6 RGB and alpha.
inline std::string png(std::uint32_t width, const std::vector<std::string>& rows, int color_type, int bits = 8,
                       const std::string& palette = "") {
    const auto number = [](std::uint32_t n) { return std::string{char(n >> 24), char(n >> 16), char(n >> 8), char(n)}; };
    std::string raw;
    for (const std::string& row : rows) raw += '\0' + row;  // filter type 0: none
    std::string packed(compressBound(raw.size()), '\0');
    uLongf size = packed.size();
    compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()), raw.size());
    packed.resize(size);
    std::string file = "\x89PNG\r\n\x1a\n";
    put_chunk(file, "IHDR",
              number(width) + number(static_cast<std::uint32_t>(rows.size())) + std::string{char(bits), char(color_type), 0, 0, 0});
    if (!palette.empty()) put_chunk(file, "PLTE", palette);
    put_chunk(file, "IDAT", packed);
    put_chunk(file, "IEND", "");
    return file;
}

inline void save(const std::string& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

}  // namespace qk_test
