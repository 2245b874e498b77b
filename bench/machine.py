# SPDX-License-Identifier: Apache-2.0
"""Says which processor this is, for the pages of measurements."""
import pathlib
import platform


def processor():
    """Returns its name and, where Linux tells them, its family and model."""
    try:
        first = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return platform.machine()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    if "model name" not in facts:
        return platform.machine()
    return facts["model name"] + "".join(f", {word} {facts[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in facts)
