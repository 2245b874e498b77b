// SPDX-License-Identifier: Apache-2.0
// Compares the oracle with what other systems computed: every golden file, bit for bit.
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "../data_folders.hpp"
#include "compare_bits.hpp"
#include "evidence.hpp"
#include "golden_case.hpp"
#include "npy_test_data.hpp"
#include "qk/reference.hpp"

namespace {

std::vector<float> oracle(const golden_case& g, const float_array& x, const std::filesystem::path& folder) {
    std::vector<float> y(x.values.size());
    const std::size_t rows = x.shape[0], columns = x.shape[1];
    if (g.per_row) {
        const float_array scales = read_float_npy((folder / "scales.per_row.npy").string());
        qk::reference::fake_quantize(g.format, x.values, y, qk::per_channel{scales.values, {}, {1, rows, columns}}, g.how);
    } else if (g.scale != 0) {
        qk::reference::fake_quantize(g.format, x.values, y, qk::affine{g.scale, g.zero_point}, g.how);
    } else {
        qk::reference::fake_quantize(g.format, x.values, y, qk::along_axis{rows, columns, 1}, g.how);
    }
    return y;
}

}  // namespace

TEST_CASE("the oracle reproduces every system's golden files") {
    std::map<std::string, float_array> inputs;
    std::size_t files = 0, exact = 0, values = 0, defects = 0;
    for (const std::filesystem::path& file : qk_test::golden_files()) {
        const std::string name = file.filename().string();
        const auto g = read_golden_name(name);
        REQUIRE_MESSAGE(g.has_value(), name);
        const std::string input = (file.parent_path() / ("input." + g->input + ".npy")).string();
        if (!inputs.contains(input)) inputs[input] = read_float_npy(input);
        const float_array& x = inputs[input];
        const float_array expected = read_float_npy(file.string());
        const std::vector<float> actual = oracle(*g, x, file.parent_path());
        const std::size_t mismatches = count_mismatches(x.values, expected.values, actual, name, g->outside_pass_mark ? 0 : 4);
        ++files;
        values += expected.values.size();
        if (g->outside_pass_mark && mismatches > 0) {
            ++defects;
            std::printf("%s: %zu differ, a known defect of that system\n", name.c_str(), mismatches);
        } else {
            CHECK_MESSAGE(mismatches == 0, name, ": ", mismatches, " of ", expected.values.size(), " differ");
            exact += mismatches == 0;
            record_evidence(std::string(qk::to_text(g->format).view()), "golden files of " + g->system, "scalar", expected.values.size(),
                            mismatches);
        }
    }
    std::printf("goldens: %zu files, %zu exact, %zu with a defect that need not be reproduced, %zu values compared\n", files, exact,
                defects, values);
    CHECK(files > 700);
}
