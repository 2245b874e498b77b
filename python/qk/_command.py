# SPDX-License-Identifier: Apache-2.0
"""The command `qk`, as pip installs it."""

import sys

from . import _qk


def main():
    """Runs the command for this process's arguments and returns its exit status."""
    sys.stdout.flush()
    return _qk.run_program(["qk", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
