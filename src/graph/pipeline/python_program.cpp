// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/python_program.hpp"

#include <cstdlib>
#include <filesystem>

#include "graph/search/child_process.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/files/atomic_file.hpp"

namespace qk::graph::pipeline {
namespace {

std::string first_line_of(const std::string& command, double seconds) {
    child_process asked(command);
    std::string line;
    return asked.read_line(line, seconds) == child_process::outcome::line ? line : "";
}

}  // namespace

std::string shell_word(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::string python_with(const std::string& package) {
    std::vector<std::string> tried;
    if (const char* own = std::getenv("QK_PYTHON"); own != nullptr && *own != '\0') {
        tried = {own};
    } else {
        if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr && *environment != '\0')
            tried.push_back(std::string(environment) + "/bin/python");
        tried.insert(tried.end(), {"python3", "python"});
    }
    std::string names;
    for (const std::string& python : tried) {
        if (first_line_of(shell_word(python) + " -c 'import numpy, " + package + "; print(\"yes\")' 2>/dev/null", 120) == "yes")
            return python;
        names += (names.empty() ? "" : ", ") + python;
    }
    throw error("no python with " + package + " and numpy was found (tried " + names + "); set QK_PYTHON to one that has them");
}

std::string first_line_of_python(const std::string& package, const std::string& program, const std::string& folder,
                                 const std::vector<std::string>& arguments, double seconds) {
    const std::string file = (std::filesystem::path(folder) / "program.py").string();
    write_file(file, program);
    std::string command = shell_word(python_with(package)) + " " + shell_word(file);
    for (const std::string& a : arguments) command += " " + shell_word(a);
    return first_line_of(command, seconds);
}

}  // namespace qk::graph::pipeline
