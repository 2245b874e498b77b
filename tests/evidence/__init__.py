# SPDX-License-Identifier: Apache-2.0
"""What Python tests share. A test is a pytest file, which also runs alone:

    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import evidence
    from evidence import at, check, qk

    def test_formats():
        check("mxfp4" in qk("formats").stdout, "the catalogue has mxfp4")

    if __name__ == "__main__":
        evidence.main()

`python tests/tool/NAME.py [QK] [-k PART]` runs one file, `build/venv/bin/pytest tests -k NAME` finds it from the root. The command is QK,
or $QK_COMMAND, or build/release/qk. evidence.graphs writes ONNX models and needs onnx; evidence.runtimes runs them in onnxruntime or OpenVINO.
"""
from .running import ROOT, TESTS, at, build, check, command, equal, evaluated, folder, main, needs, ok, option, program, qk, qk_json, run, saved, skip, start
from .data import folders, residual_network
from .values import close, decibels, difference, of_many_magnitudes, same, same_bits
