# SPDX-License-Identifier: Apache-2.0
"""Copies headers as Doxygen is to read them; lines stay lines. Writes layout.xml beside them, in which a page begins with its text.

    doxygen_headers.py INCLUDE_FOLDER NEW_FOLDER

A header's first comment, which has its contract, becomes the text of the header's page. Comments are plain sentences, so that \\ and @ are
no commands in them. The comments of qk.h, which is C, become documentation comments.
"""
import re
import subprocess
import sys
from pathlib import Path


def c_header(text):
    """The first comment is the page's text, all others belong to what follows or stands before them."""
    text = text.replace("/* SPDX-License-Identifier: Apache-2.0 */\n", "", 1)
    first, rest = text.split(" */", 1)
    text = re.sub(r"^ \* ?", "", first, flags=re.M) + " */" + rest
    text = re.sub(r"^/\* (?!-)", "/** ", text, flags=re.M)
    text = re.sub(r"(?<=[;,\d]) +/\* ", "  /**< ", text)
    return text.replace("/** ", "/** @file\n@verbatim ", 1).replace(" */", " @endverbatim */", 1)


def cpp_header(text):
    lines = text.split("\n")
    count = next((i for i, line in enumerate(lines) if not line.startswith("//")), 0)
    for i in range(count, len(lines)):
        code, mark, comment = lines[i].partition("///")
        if mark:
            # What stands between backticks is code already, in which Doxygen sees no commands.
            parts = comment.split("`")
            parts[::2] = [part.replace("\\", "\\\\").replace("@", "\\@") for part in parts[::2]]
            lines[i] = code + mark + "`".join(parts)
    if count > 1:
        words = [line[2:].removeprefix(" ").replace("*/", "* /") for line in lines[1:count]]
        lines[:count] = ["/** @file", "@verbatim " + words[0], *words[1:]]
        lines[count - 1] += " @endverbatim */"
    return "\n".join(lines)


def main():
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    for path in sorted(source.rglob("*.h*")):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((c_header if path.suffix == ".h" else cpp_header)(path.read_text()))
    layout = target / "layout.xml"
    subprocess.run(["doxygen", "-l", layout], check=True)
    head, file, tail = re.split(r"(<file>.*?</file>)", layout.read_text(), flags=re.S)
    file = re.sub(r" *<detaileddescription[^>]*/>\n", "", file)
    file = re.sub(r"( *)<briefdescription[^>]*/>\n", r'\1<detaileddescription title=""/>\n', file)
    layout.write_text(head + file + tail)


main()
