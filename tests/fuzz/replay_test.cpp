// SPDX-License-Identifier: Apache-2.0
// Every file of the corpus once more: what the fuzzers found, and small files that between them reach most of the code.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "feed_model.hpp"

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

std::string bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
}

const fs::path corpus = fs::path(QK_SOURCE_DIR) / "tests" / "fuzz" / "corpus";

}  // namespace

TEST_CASE("model bytes of the corpus end in a result or an error") {
    const auto files = files_in(corpus / "model");
    REQUIRE(!files.empty());
    for (const fs::path& file : files) {
        CAPTURE(file.string());
        CHECK_NOTHROW(qk_fuzz::feed_model(bytes_of(file)));
    }
}
