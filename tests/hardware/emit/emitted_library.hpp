// SPDX-License-Identifier: Apache-2.0
// Emitted C as a library that a test calls: gcc makes it, clang reads the same file, both without a warning.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace qk::test {

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
        for (const char* compiler : {"cc -O1 -shared -fPIC -o ", "clang -fsyntax-only -o "}) {
            const std::string command = std::string(compiler) + so + " -std=c99 -Wall -Wextra -Wpedantic -Werror -Wconversion " + c;
            if (std::string(compiler).starts_with("clang") && std::system("command -v clang > /dev/null") != 0) continue;
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
