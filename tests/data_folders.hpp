// SPDX-License-Identifier: Apache-2.0
// Where the data of tests lies: what tests/data packs is unpacked in the build tree; ../shared, which has more of it, may lie beside the
// project. Tests run on both.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace qk_test {

/// Returns those of the two folders of data that have a folder `what`.
inline std::vector<std::filesystem::path> data_if_there(const char* what) {
    std::vector<std::filesystem::path> all{QK_TEST_DATA, std::filesystem::path(QK_SOURCE_DIR) / ".." / "shared"};
    std::erase_if(all, [&](const std::filesystem::path& folder) { return !std::filesystem::is_directory(folder / what); });
    return all;
}

/// Does so for what tests/data packs: at least one folder has it.
inline std::vector<std::filesystem::path> data_with(const char* what) {
    const auto all = data_if_there(what);
    REQUIRE_MESSAGE(!all.empty(), what, " is missing in ", QK_TEST_DATA, ", which cmake fills from tests/data");
    return all;
}

/// Returns the folders of ONNX's node tests, which the test make_node_tests makes; says so if there are none.
inline std::vector<std::filesystem::path> node_test_folders() {
    auto all = data_if_there("onnx_node_tests");
    if (all.empty()) std::puts("skipped: no onnx_node_tests in " QK_TEST_DATA ", which tests/graph/make_node_tests.py makes");
    for (std::filesystem::path& folder : all) folder /= "onnx_node_tests";
    return all;
}

inline std::string bytes_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns every golden file, ordered, with its input.CASE.npy beside it. A file of ../shared that is packed, too, comes once.
inline std::vector<std::filesystem::path> golden_files() {
    namespace fs = std::filesystem;
    const auto is_answer = [](const fs::path& p) {
        const std::string name = p.filename().string();
        return p.extension() == ".npy" && !name.starts_with("input.") && !name.starts_with("scales.");
    };
    std::vector<fs::path> all;
    const auto folders = data_with("goldens");
    for (const fs::path& folder : folders) {
        const fs::path packed = folders[0] / "goldens", here = folder / "goldens";
        std::vector<fs::path> answers;
        bool same_inputs = folder != folders[0];
        for (const auto& entry : fs::directory_iterator(here)) {
            if (is_answer(entry.path())) answers.push_back(entry.path());
            else same_inputs = same_inputs && bytes_of(entry.path()) == bytes_of(packed / entry.path().filename());
        }
        std::ranges::sort(answers);
        for (const fs::path& p : answers)
            if (!same_inputs || bytes_of(p) != bytes_of(packed / p.filename())) all.push_back(p);
    }
    return all;
}

/// Returns the residual network of 20 layers, without BatchNormalization, of a folder of data.
inline std::filesystem::path residual_network(const std::filesystem::path& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / "models")) {
        const std::string name = entry.path().stem().string();
        if (name.starts_with("resnet20_") && name.ends_with("_folded")) return entry.path();
    }
    FAIL("no resnet20_*_folded.onnx in " << (folder / "models").string());
    return {};
}

/// Returns the file reference/MODEL.KIND.NAME.npy of a model in models/.
inline std::filesystem::path reference_of(const std::filesystem::path& model, const std::string& kind_and_name) {
    return model.parent_path().parent_path() / "reference" / (model.stem().string() + "." + kind_and_name + ".npy");
}

}  // namespace qk_test
