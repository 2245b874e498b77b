// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <filesystem>

/// A link to a program of several tests (qk_tests of CMakeLists.txt) has the name of one, whose cases alone it runs.
int main(int argc, char** argv) {
    doctest::Context context;
    const std::filesystem::path called = argv[0];
    if (std::filesystem::is_symlink(called)) context.addFilter("source-file", ("*/" + called.filename().string() + ".cpp").c_str());
    context.applyCommandLine(argc, argv);
    return context.run();
}
