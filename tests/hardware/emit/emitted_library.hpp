// SPDX-License-Identifier: Apache-2.0
// Emitted C as a library that a test calls: gcc makes it, clang reads the same file, and functions alone are compiled for a bare Arm, too,
// all without a warning.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace qk::test {

/// Is true where a test is asked for everything, not for a sample.
inline bool whole() { return std::getenv("QK_TEST_WHOLE") != nullptr; }

/// Functions as one library.
class library {
  public:
    explicit library(std::string name) : name_(std::move(name)) {}
    void add(const std::string& text) { text_ += text; }
    void make() {
        const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("qk_emit_" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        const std::string c = (folder / (name_ + ".c")).string(), so = (folder / (name_ + ".so")).string();
        std::ofstream(c) << "#include <stdint.h>\n" << text_;
        for (const std::string& compiler : {"cc -O1 -shared -fPIC -o " + so, std::string("clang -fsyntax-only"),
                                            "arm-none-eabi-gcc -O1 -ffreestanding -c -o " + so + ".o"}) {
            const std::string name = compiler.substr(0, compiler.find(' ')),
                              command = compiler + " -std=c99 -Wall -Wextra -Wpedantic -Werror -Wconversion " + c;
            if (name.starts_with("arm") && text_.find("<stdio.h>") != std::string::npos) continue;  // programs need a library
            if (name != "cc" && std::system(("command -v " + name + " > /dev/null").c_str()) != 0) {
                MESSAGE(name << " is not here, and did not read the emitted C");
                continue;
            }
            REQUIRE_MESSAGE(std::system(command.c_str()) == 0, command);
        }
        handle_ = dlopen(so.c_str(), RTLD_NOW);
        REQUIRE_MESSAGE(handle_ != nullptr, dlerror());
        std::filesystem::remove_all(folder);
    }
    void* find(const std::string& function) const { return dlsym(handle_, function.c_str()); }
    void close() { dlclose(handle_); }

  private:
    std::string name_, text_;
    void* handle_ = nullptr;
};

}  // namespace qk::test
