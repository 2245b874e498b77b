// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <filesystem>

#ifdef QK_HAVE_HARDWARE
#include "qk/graph/hardware.hpp"
#endif
#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

/// Runs all cases, or those of NAME.cpp when the program is called by a link NAME (test_programs of CMakeLists.txt makes such links).
int main(int argc, char** argv) {
#ifdef QK_HAVE_HARDWARE
    qk::hardware::enter();
#endif
#ifdef QK_HAVE_LEARN
    qk::learn::enter();
#endif
    doctest::Context context;
    const std::filesystem::path called = argv[0];
    if (std::filesystem::is_symlink(called)) context.addFilter("source-file", ("*/" + called.filename().string() + ".cpp").c_str());
    context.applyCommandLine(argc, argv);
    return context.run();
}
