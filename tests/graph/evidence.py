# SPDX-License-Identifier: Apache-2.0
"""Common start of the scripts that compare qk with other software: checks their packages, runs the built command, makes a temporary folder.

    import evidence                        # prints "skipped: ..." and exits if a package is missing
    from evidence import FOLDER, at, check, qk, qk_json
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile

for needed in ("numpy", "onnx", "onnxruntime"):
    try:
        importlib.import_module(needed)
    except ImportError as missing:
        print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
        sys.exit(0)

QK = sys.argv[1]
_kept = tempfile.TemporaryDirectory(prefix="qk_evidence_")
FOLDER = _kept.name
failures = 0


def check(ok, what):
    """Prints whether `what` holds, and counts in `failures` what does not."""
    global failures
    print(("ok    " if ok else "WRONG ") + what, flush=True)
    failures += not ok


def at(name):
    return os.path.join(FOLDER, name)


def qk(*arguments, statuses=(0,)):
    """Runs the command and returns the process; a status not in `statuses` ends the script with the command's output."""
    done = subprocess.run([QK, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode not in statuses:
        raise SystemExit(f"qk {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def qk_json(*arguments, statuses=(0,)):
    """Runs the command with --json and returns its object."""
    return json.loads(qk(*arguments, "--json", statuses=statuses).stdout)
