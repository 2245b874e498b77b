// SPDX-License-Identifier: Apache-2.0
// Replays every file of the corpus: what the fuzzers found, and small files that between them reach most of the code.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "feed_inputs.hpp"
#include "feed_model.hpp"

#ifdef QK_HAVE_CHECKPOINT
#include "feed_checkpoint.hpp"
#endif

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

TEST_CASE("so do other files, and those cut short anywhere") {
    const auto files = files_in(corpus / "inputs");
    REQUIRE(!files.empty());
    for (const fs::path& file : files) {
        CAPTURE(file.string());
        const std::string bytes = bytes_of(file);
        CHECK_NOTHROW(qk_fuzz::feed_input(bytes));
        for (std::size_t part = 1; part < 8; ++part)
            CHECK_NOTHROW(qk_fuzz::feed_input(std::string_view(bytes).substr(0, bytes.size() * part / 8)));
    }
}

#ifdef QK_HAVE_CHECKPOINT
TEST_CASE("and checkpoints, those cut short anywhere, and those with a changed byte") {
    for (const auto& [kind, feed] : {std::pair("safetensors", &qk_fuzz::feed_safetensors), std::pair("gguf", &qk_fuzz::feed_gguf)}) {
        const auto files = files_in(corpus / kind);
        REQUIRE(!files.empty());
        for (const fs::path& file : files) {
            CAPTURE(file.string());
            std::string bytes = bytes_of(file);
            CHECK_NOTHROW(feed(bytes));
            for (std::size_t part = 1; part < 8; ++part) CHECK_NOTHROW(feed(std::string_view(bytes).substr(0, bytes.size() * part / 8)));
            for (std::size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 64) {
                const char kept = std::exchange(bytes[i], static_cast<char>(bytes[i] + 1));
                CHECK_NOTHROW(feed(bytes));
                bytes[i] = kept;
            }
        }
    }
}
#endif
