#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the house rules that a compiler does not: arrows of includes, short functions, clang-format, and that what is large says why.

A file above 600 lines says in its first comment why its idea is that long. docs/design/rooms.md says what orders a folder of more
than 25 files. A header of the graph module has more than one includer, tests counted; one alone is part of its includer. Data have a row a
line, not a number a line, and no JSON file is large.

    python3 tests/house/house_test.py SOURCE_FOLDER

Prints each place that breaks a rule, and exits with 1 if there is one.
"""
import re
import subprocess
import sys
from pathlib import Path

# Lowest first (docs/design/rooms.md): a room includes only itself and rooms before it.
ROOMS = ["base", "files", "model", "ops", "plan", "evaluate", "calibrate", "gradient", "quantize", "export", "report", "recover", "search", "pipeline"]
# The same within the core; encode and decode do not include each other. Which folder stands above which follows from the includes (arrows_back).
# A family's room has files on three levels: its format and text, its step and fast forms, its codes.
CORE = ["memory", "formats", "lanes", "memory/narrow_codes.hpp", "steps", "formats/*/step", "kernels/drivers", "kernels", "formats/*/codes", "codec/layout",
        "codec/encode codec/decode", "product"]
LEVEL_OF_FILE = {"step.hpp": "formats/*/step", "fast.hpp": "formats/*/step", "codes.hpp": "formats/*/codes"}
# Components that a build may leave out include public headers, their own, and src/disk. Those above the graph module also look into some of its rooms.
COMPONENTS = {"src/hardware/devices/": "base ops evaluate", "src/hardware/": "", "src/learn/": "base model ops evaluate gradient quantize pipeline",
              "src/checkpoint/": "", "src/systems/": "", "src/onnxruntime/": ""}
ABOVE_GRAPH = re.compile(r'#include "((?:qk/graph/)?(?:hardware|learn)[./][^"]+|(?:qk/)?(?:checkpoint|compare|onnxruntime|systems)[./][^"]+)"')
LEVELS = {room: level for level, rooms in enumerate(CORE) for room in rooms.split()}
LINES_THAT_ASK_WHY = 600
LINES_OF_A_FUNCTION = 80
FILES_THAT_ASK_WHY = 25
# These headers are rows: one kind of operators with its gradient each, which one table lists. Every row has cases of its own (ONNX's node tests,
# central differences), and a new row is a new file.
ROWS = re.compile(r"constexpr (op_entry|backward_entry) \w+\[\]")
# src/disk alone opens files: regular ones for reading, parts for writing. What opens by itself says why:
OPENERS = {"src/graph/base/process_memory.cpp": "what the system says of this process", "tools/options/standard_streams.cpp": "stand-ins of its own"}
OPENING = re.compile(r"#include <(fstream|sys/mman\.h)>|\bstd::[io]?fstream\b|\bfopen\(|(?<!\w)::(open|openat|creat|mmap)\(")
BYTES_OF_JSON = 200_000
LINES_OF_DATA = 20
# A line of data that has one value alone: a number, with or without its name, or one text of a list.
ONE_VALUE = re.compile(r'(?:"[^"]*"\s*:\s*)?-?(?:\d[\d.]*(?:[eE][-+]?\d+)?|0x[0-9a-fA-F]+|inf|nan)|"(?:[^"\\]|\\.)*"', re.I)
# include/qk/lanes alone names instruction sets; others ask it by what they mean: QK_HAS(BYTE_SHUFFLES). What lanes itself stands on names them, too.
INSTRUCTION_SETS = re.compile(r"\b__(AVX|SSE|F16C|FMA|BMI|ARM_NEON|aarch64|wasm|riscv)\w*")
BELOW_LANES = ("include/qk/exact/", "include/qk/isa.hpp")
# An operator is one row (src/graph/ops), and others ask the row. The compiler holds operator_name to the places that graph/model/operator_name.hpp lists; the
# text of a name is compared with no word.
OPERATOR_PLACE = re.compile(r'^    \{"(src/[^"]+)", "[^"]+"\},$', re.M)
OPERATOR_NAMED = re.compile(r'op_type\(\)\s*[!=]=\s*"|one_of\([^{]*op_type\(\)|op_type\(\)\.(?:starts_with|ends_with|find|contains)\("|std::string(?:_view)?&? \w+ = [^;{+]*op_type\(\)[^;{+,]*;|\bop_type\s*[!=]=\s*"')
OPERATOR_ASKED = re.compile(r"\boperator_of\(|\boperator_word\b")
# Tables with one line for each entry, which clang-format would spoil.
HAND_FORMATTED = {"src/hardware/compare/mistakes.cpp"}


def files_of(root, *folders):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *folders], cwd=root, capture_output=True, text=True)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [str(p.relative_to(root)) for d in folders for p in (root / d).rglob("*")]
    return [name for name in names if (root / name).is_file()]


def sources(root):
    return [name for name in files_of(root, "include", "src", "tools", "tests", "bench", "examples") if name.endswith((".hpp", ".cpp", ".h"))]


def unwieldy_data(root):
    """Finds large files of JSON, and data with a value a line, where a change of one row moves a page of lines. Old versions wrote those of old_files."""
    for name in files_of(root, "bench", "docs", "examples", "profiles", "python", "tests"):
        if not name.endswith((".json", ".jsonl", ".txt", ".csv", ".tsv")) or name.startswith("tests/data/old_files/"):
            continue
        content = (root / name).read_bytes()
        if name.endswith(".json") and len(content) > BYTES_OF_JSON:
            yield f"{name}: {len(content)} bytes ({BYTES_OF_JSON} at most); a row a line, and shorter rows (bench/rows.py)"
        lines = [line for raw in content.decode(errors="replace").split("\n") if (line := raw.strip(" \t\r[]{},"))]
        alone = sum(bool(ONE_VALUE.fullmatch(line)) for line in lines)
        if len(lines) > LINES_OF_DATA and alone * 2 > len(lines):
            yield f"{name}: {alone} of {len(lines)} lines have one value alone; write a row a line (bench/rows.py)"


def room_in_core(path):
    folder, _, file = path.rpartition("/")
    if path in LEVELS:
        return path
    if folder == "formats/codes":
        return LEVEL_OF_FILE["codes.hpp"]
    if folder == "formats":
        return LEVEL_OF_FILE["codes.hpp"] if file == "codes.hpp" else folder
    return LEVEL_OF_FILE.get(file, "formats") if folder.startswith("formats/") else folder


def arrows_up_in_core(name, text):
    included = re.findall(r'#include "qk/([^"]+)"', text)
    own = room_in_core(name.removeprefix("include/qk/"))
    broken = [f"{name}: the core includes qk/{m}" for m in included if m.startswith("graph/")]
    if own == "reference":  # the oracle never asks the code under test
        broken += [f"{name}: the oracle includes qk/{m}" for m in included if m.startswith(("kernels/", "lanes/", "codec/", "memory/", "steps/")) or room_in_core(m).startswith("formats/")]
    for m in included:
        room = room_in_core(m)
        if own in LEVELS and room in LEVELS and room != own and LEVELS[room] >= LEVELS[own]:
            broken.append(f"{name}: {own} includes qk/{m}, which is not below it")
    return broken


def arrows_back(texts):
    """Finds folders of include/qk (each with the door of its name) and headers beside them whose includes go round in a circle: no order has all of them point down."""
    def room(path):
        return path.split("/")[0].split(".")[0]
    arrows = {}
    for name, text in texts.items():
        if name.startswith("include/qk/"):
            own = room(name.removeprefix("include/qk/"))
            for included in re.findall(r'#include [<"]qk/([^">]+)[">]', text):
                if room(included) != own:
                    arrows.setdefault((own, room(included)), []).append(f"{name} includes qk/{included}")
    left, before = set(arrows), None
    while left != before:  # an arrow that no other leads to, or that none goes on from, is in no circle
        before = left
        left = {(a, b) for a, b in left if any(to == a for _, to in left) and any(of == b for of, _ in left)}
    return [f"in a circle of folders: {of} to {to}, {len(arrows[of, to])} includes, such as {arrows[of, to][0]}" for of, to in sorted(left, key=lambda pair: len(arrows[pair]))]


def arrows_up(name, text):
    if name.startswith("include/qk/") and not name.startswith("include/qk/graph"):
        return arrows_up_in_core(name, text)
    if name.startswith("src/disk/"):
        return [f"{name}: includes {m}, which is not below it" for m in re.findall(r'#include "(?!disk/)([^"]+)"', text)]
    found = re.match(r"(?:include/qk/graph|src/graph)/(\w+)/", name)
    if not found or found[1] == "learn":
        return []
    level = ROOMS.index(found[1])
    broken = [f"{name}: the graph module includes {m}, of a component that a build may leave out" for m in ABOVE_GRAPH.findall(text)]
    return broken + [f"{name}: {found[1]} includes {m}, a room above it" for m in re.findall(r'#include "(?:qk/)?graph/(\w+)/', text) if m in ROOMS and ROOMS.index(m) > level]


def reaches_inside(name, text):
    """Finds what a component, or the command, uses of others beside their public names."""
    folder = next((folder for folder in COMPONENTS if name.startswith(folder)), "")
    hidden = re.compile(r"(?<![\w:])(qk::)?detail::" if folder not in ("", "src/learn/") else r"\bqk::detail\b")
    broken = [f"{name}:{number}: uses qk::detail, which is not public" for number, line in enumerate(text.split("\n"), 1)
              if (folder or name.startswith("tools/")) and hidden.search(line.split("//")[0])]
    if not folder:
        return broken
    rooms, own = COMPONENTS[folder].split(), Path(folder).parts[1]
    may = re.compile(rf"disk/|{own}/|[^/]+$|" + (rf"qk/|graph/({'|'.join(rooms)})/" if rooms else "qk/(?!graph/)"))
    return broken + [f"{name}: includes {m}, which is inside another component" for m in re.findall(r'#include "([^"]+)"', text) if not may.match(m)]


def opens_files(name, text):
    if not name.startswith(("include/", "src/", "tools/")) or name.startswith("src/disk/") or name in OPENERS:
        return []
    return [f"{name}:{number}: opens a file by itself; src/disk does it for all (qk/graph/files.hpp for the graph module and the command)"
            for number, line in enumerate(text.split("\n"), 1) if OPENING.search(line.split("//")[0])]


def names_instruction_sets(name, text):
    if not name.startswith("include/qk/") or name.startswith(("include/qk/lanes/", *BELOW_LANES)):
        return []
    return [f"{name}:{number}: names an instruction set; qk/lanes/instructions.hpp has words for what it can do" for number, line in enumerate(text.split("\n"), 1)
            if INSTRUCTION_SETS.search(line.split("//")[0])]


def names_operators(texts):
    """Finds texts of operators' names that are compared as such, and places that may compare names and do not."""
    places = OPERATOR_PLACE.findall(texts["src/graph/model/operator_name.hpp"])
    for name, text in texts.items():
        if name.startswith(("src/graph/", "src/learn/", "src/hardware/")):
            yield from (f"{name}: '{line.strip()}' compares a text; ask the operator's row (graph/ops/op.hpp), or operator_of" for line in text.split("\n")
                        if OPERATOR_NAMED.search(line.split("//")[0]))
    asked = [name for name, text in texts.items() if OPERATOR_ASKED.search(text)]
    yield from (f"{place}: compares no operators any more, and stands in graph/model/operator_name.hpp" for place in places if not any(n.startswith(place) for n in asked))


def only_one_includer(texts):
    """Finds headers of the graph module that one file alone includes, or none."""
    includers = {}
    for name, text in texts.items():
        for included in set(re.findall(r'^\s*#\s*include [<"]([^">]+)[">]', text, re.M)):
            includers.setdefault(included, []).append(name)
    for name, text in texts.items():
        if re.match(r"(?:include/qk/graph/\w+/|src/graph/).*\.hpp", name) and not ROWS.search(text):
            found = includers.get(re.sub(r"^(include|src)/", "", name), [])
            if not found:
                yield f"{name}: nobody includes it"
            elif len(found) == 1 and not re.fullmatch(r"include/qk/graph/\w+\.hpp", found[0]):
                yield f"{name}: {found[0]} alone includes it, so it belongs there"


def long_functions(name, text):
    """Finds functions over the limit: braces after what looks like a function's head, of one line or several; `= {` opens a table."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    found, stack, head, first, depth = [], [], "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", line).strip()
        if re.match(r"(template|requires|#)", code) and not head:
            continue
        for c in code + " ":
            depth += (c == "(") - (c == ")")
            if c == "}" and stack:
                begun, of, depth = stack.pop()
                is_function = "(" in of and not re.match(r"(namespace|class|struct|enum|extern|union)\b", of) and "=" not in of.split("(")[0]
                if is_function and number - begun + 1 > LINES_OF_A_FUNCTION:
                    found.append(f"{name}:{begun}: a function of {number - begun + 1} lines ({LINES_OF_A_FUNCTION} at most)")
            if c == "{":
                stack.append((first or number, head.strip(), depth))
                depth = 0
            if c in "{}" or (c == ";" and depth == 0):
                head, first = "", 0
            elif not c.isspace() or head:
                head, first = head + c, first or number
    return found


def badly_formatted(root, names):
    """Returns the places that clang-format, in the version of tests/requirements.txt, would change."""
    ours = [name for name in names if name not in HAND_FORMATTED]
    run = subprocess.run([str(Path(sys.executable).parent / "clang-format"), "--dry-run", "-Werror", "--ferror-limit=1", *ours], cwd=root, capture_output=True, text=True)
    places = re.findall(r"^(\S+?:\d+):\d+: error:", run.stderr, re.M)
    if run.returncode != 0 and not places:
        return ["clang-format: " + run.stderr.strip()]
    return [f"{place}: not as clang-format writes it (./dev format)" for place in places]


def main():
    root = Path(sys.argv[1]).resolve()
    names = sources(root)
    if not names:
        sys.exit("no sources found: nothing was checked")
    broken, folders, texts = [], {}, {}
    for name in names:
        texts[name] = text = (root / name).read_text()
        folders.setdefault(str(Path(name).parent), []).append(name)
        broken += arrows_up(name, text) + reaches_inside(name, text) + long_functions(name, text) + opens_files(name, text)
        broken += names_instruction_sets(name, text)
        lines = text.count("\n")
        if lines > LINES_THAT_ASK_WHY and "long because" not in text[:1500]:
            broken.append(f"{name}: {lines} lines, and its first comment does not say what it is long because of ('long because')")
    rooms = (root / "docs/design/rooms.md").read_text()
    if re.findall(r"^\| `(\w+)` \| .* \| `\w+\.hpp` \|$", rooms, re.M) != ROOMS:
        broken.append("docs/design/rooms.md: the rooms of the graph module are not those of this test")
    broken += [f"{folder}: {len(files)} files, and docs/design/rooms.md does not say what orders them" for folder, files in folders.items()
               if len(files) > FILES_THAT_ASK_WHY and f"`{folder}`" not in rooms]
    broken += arrows_back(texts) + list(only_one_includer(texts)) + list(names_operators(texts))
    broken += unwieldy_data(root)
    broken += badly_formatted(root, names)
    print("\n".join(broken))
    print(f"{len(names)} sources, {len(folders)} folders, {len(broken)} broken rules")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
