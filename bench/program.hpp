// SPDX-License-Identifier: Apache-2.0
// main() of the programs that use google-benchmark: adds processor, instruction set, compiler and command to the JSON of a run
// (--benchmark_out=FILE --benchmark_out_format=json). bench/machines.py makes tables of such files.
#pragma once

#include <benchmark/benchmark.h>

#include <string_view>

#include "machine.hpp"

namespace qk::bench {

inline int run_program(int argc, char** argv) {
    std::string command = argv[0];
    command.erase(0, command.rfind('/') + 1);
    for (int i = 1; i < argc; ++i) {
        if (!std::string_view(argv[i]).starts_with("--benchmark_out")) command += std::string(" ") + argv[i];
    }
    benchmark::AddCustomContext("processor", processor());
    benchmark::AddCustomContext("instruction_set", instruction_set());
    benchmark::AddCustomContext("compiler", compiler());
    benchmark::AddCustomContext("command", command);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace qk::bench
