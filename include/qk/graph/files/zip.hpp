// SPDX-License-Identifier: Apache-2.0
// ZIP archives as .npz uses them: entries stored or deflated, zip64 sizes. PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qk::graph {

struct zip_entry {
    std::string name;
    std::string bytes;
};

/// Returns every entry of an archive, checked against its CRC. Throws error beginning with `label` for anything that is no archive, is
/// truncated, encrypted or compressed otherwise, or claims to grow beyond what deflate can (about 1032 to 1).
std::vector<zip_entry> unzip(std::string_view archive, const std::string& label);

/// Returns an archive of stored entries. Throws error above 4 GB.
std::string zip(const std::vector<zip_entry>& entries, const std::string& label);

}  // namespace qk::graph
