// SPDX-License-Identifier: Apache-2.0
// Runs short programs in a Python that has a package: onnxruntime, openvino.
#pragma once

#include <string>
#include <vector>

namespace qk::graph::pipeline {

/// Quotes a word for the shell.
std::string shell_word(const std::string& word);

/// Returns the command of a python that has this package and numpy: $QK_PYTHON if it is set, else the first of $VIRTUAL_ENV/bin/python,
/// python3 and python that has them. Throws an error that says what was tried.
std::string python_with(const std::string& package);

/// Runs a program's text in that python, from a file in `folder`, and returns the first line that it prints; empty where it prints none in
/// time.
std::string first_line_of_python(const std::string& package, const std::string& program, const std::string& folder,
                                 const std::vector<std::string>& arguments, double seconds);

}  // namespace qk::graph::pipeline
