// SPDX-License-Identifier: Apache-2.0
// A deployment program that uses the installed package: loading a missing model throws an error that names the file.
#include <cstdio>
#include <qk/graph/evaluate.hpp>
#include <string>

int main() {
    try {
        qk::graph::model::load("no_such_file.onnx");
    } catch (const qk::graph::error& e) {
        std::puts(e.what());
        return std::string(e.what()).find("no_such_file.onnx") == std::string::npos;
    }
    return 1;
}
