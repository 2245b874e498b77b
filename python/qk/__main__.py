# SPDX-License-Identifier: Apache-2.0
"""`python -m qk` is the command."""

import sys

from ._command import main

sys.exit(main())
