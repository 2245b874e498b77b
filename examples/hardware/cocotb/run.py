# SPDX-License-Identifier: Apache-2.0
"""Simulates both devices, right and with their mistake, with Verilator under cocotb: run.py LIBQK.so [WORK_FOLDER]. Exits with 1 where qk says something unexpected."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

here = Path(__file__).resolve().parent
warnings.filterwarnings("ignore", message="Python runners")  # cocotb 1.9 calls them experimental


def main():
    try:
        import find_libpython
        try:
            from cocotb_tools.runner import get_results, get_runner
            oldest = (5, 36)  # that cocotb 2 takes
        except ImportError:
            from cocotb.runner import get_results, get_runner
            oldest = (5, 0)
    except ImportError as missing:
        print(f"skipped: no {missing.name} here (pip install 'cocotb==1.9.2')")
        return 0
    if shutil.which("verilator") is None:
        print("skipped: no verilator here (Debian: apt-get install verilator make)")
        return 0
    told = subprocess.run(["verilator", "--version"], capture_output=True, text=True).stdout
    found = tuple(int(n) for n in re.search(r"(\d+)\.(\d+)", told).groups())
    if found < oldest:
        print(f"cocotb 2 takes Verilator from {oldest[0]}.{oldest[1]:03} on, and this is {found[0]}.{found[1]:03}: a newer one, or pip install 'cocotb==1.9.2'")
        return 1
    if find_libpython.find_libpython() is None:
        print("skipped: no shared libpython here (Debian: apt-get install libpython3-dev)")
        return 0
    library = str(Path(sys.argv[1]).resolve())
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        for device in ("mx_converter", "block_dot"):
            for bug in (0, 1):
                work = Path(sys.argv[2] if len(sys.argv) > 2 else temporary) / f"{device}_{bug}"
                runner = get_runner("verilator")
                runner.build(verilog_sources=[here.parent / f"{device}.sv"], hdl_toplevel=device, parameters={"BUG": bug}, build_dir=work,
                             build_args=["-Wno-fatal", "-O0", "-CFLAGS", "-O0"])
                results = runner.test(test_module="benches", hdl_toplevel=device, build_dir=work, test_dir=work,
                                      extra_env={"PYTHONPATH": str(here), "QK_LIBRARY": library, "DEVICE": device, "BUG": str(bug)})
                ran, failed = get_results(results)
                print(f"{device} with BUG={bug}: {'as expected' if ran and not failed else 'NOT as expected'}", flush=True)
                failures += failed != 0 or ran == 0
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    sys.exit(main())
