# SPDX-License-Identifier: Apache-2.0
"""A build with QK_TRACE_PATH says which driver and which form made a value (qk/trace.hpp).

    python3 tests/core/trace_path_test.py SOURCE_FOLDER COMPILER
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
#include <limits>
#include <vector>
#include "qk/fake_quantize.hpp"
int main() {
    std::vector<float> x(256, 0.7f), y(x.size());
    x[40] = std::numeric_limits<float>::infinity();
    qk::fake_quantize<qk::mxfp4>(x, y);
    qk::fake_quantize<qk::mxfp4>(x, y, qk::along_axis{1, 32, 8});
    qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 0.1f});
}
"""


def lines_of(root, compiler, *flags):
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "path.cpp", Path(folder) / "path"
        source.write_text(PROGRAM)
        subprocess.run([compiler, "-std=c++20", "-O0", "-DQK_SCALAR", *flags, "-I", str(root / "include"), str(source), "-o", str(program)], check=True)
        return subprocess.run([str(program)], check=True, capture_output=True, text=True).stderr.splitlines()


def main():
    root, compiler = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else os.environ.get("CXX", "g++")
    lines = lines_of(root, compiler, "-DQK_TRACE_PATH")
    # In a row, the tile with the Inf is done again in the general form; across columns, and with one scale, what lies around it.
    wanted = [r"qk: block_rows, fast_block<.*>, values_of_blocks<.*>: 256 values from 0 on", r"qk: general, microscaling_step<.*>: \d+ values from \d+ on",
              r"qk: block_columns, fast_block<.*>, .*: \d+ values from 0 on", r"qk: rows, fast_integer<.*>: 256 values from 0 on",
              r"qk: general, integer_step<.*>: 4 values from 40 on"]
    at = 0
    for pattern in wanted:
        found = next((i for i in range(at, len(lines)) if re.fullmatch(pattern, lines[i])), None)
        if found is None:
            sys.exit("no line " + pattern + " in\n" + "\n".join(lines))
        at = found + 1
    print("\n".join(lines))


if __name__ == "__main__":
    main()
