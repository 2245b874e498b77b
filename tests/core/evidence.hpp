// SPDX-License-Identifier: Apache-2.0
// Records what was compared with what: appends rows of docs/results/data/evidence.json to the file that QK_EVIDENCE names.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

inline void record_evidence(const std::string& format, const std::string& evidence, const std::string& isa, std::size_t inputs,
                            std::size_t mismatches) {
    const char* path = std::getenv("QK_EVIDENCE");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "a")) {
        std::fprintf(file, "%s\t%s\t%s\t%zu\t%zu\n", format.c_str(), evidence.c_str(), isa.c_str(), inputs, mismatches);
        std::fclose(file);
    }
}
