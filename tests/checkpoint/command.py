# SPDX-License-Identifier: Apache-2.0
"""Common start and end of the scripts that run the built command on checkpoints, which is the script's first argument.

    from command import check, finish, ok, qk, run
"""
import subprocess
import sys
from pathlib import Path

qk = str(Path(sys.argv[1]).resolve())
failures, checks = [], 0


def check(right, what):
    """Counts a check, and keeps `what` for the end where it is not right."""
    global checks
    checks += 1
    if not right:
        failures.append(what)


def run(*arguments, **how):
    """Runs the command; `how` goes to subprocess.run."""
    return subprocess.run([qk, *map(str, arguments)], capture_output=True, text=True, **how)


def ok(*arguments):
    """Runs the command, which has to end with 0."""
    done = run(*arguments)
    check(done.returncode == 0, f"qk {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr.strip()}")
    return done


def finish():
    """Prints what is wrong and how many checks there were, and ends the script: with 1 if something is wrong."""
    print("\n".join(failures))
    print(f"{checks} checks, {len(failures)} failures")
    sys.exit(1 if failures else 0)
