// SPDX-License-Identifier: Apache-2.0
// Raises the opsets of models for opset_evidence.py: raise_models FILE
//
// Each line of FILE is "FROM VERSION TO", with tabs between. Reads FROM, raises it to VERSION, writes TO, and prints a line: empty, or the
// error, in which case nothing is written.
#include <onnx/onnx_pb.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "qk/graph/base/error.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/model/model.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: raise_models FILE\n";
        return 2;
    }
    std::ifstream list(argv[1]);
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string from, version, to;
        std::getline(words, from, '\t'), std::getline(words, version, '\t'), std::getline(words, to, '\t');
        try {
            qk::graph::model m = qk::graph::model::load(from);
            qk::graph::raise_opset(m, std::stoi(version));
            std::ofstream out(to, std::ios::binary);  // model::save looks through the folder, which holds thousands of files here
            if (!m.proto().SerializeToOstream(&out) || !out.flush()) throw std::runtime_error(to + " cannot be written");
            std::cout << '\n';
        } catch (const std::exception& e) {
            std::cout << e.what() << '\n';
        }
    }
}
