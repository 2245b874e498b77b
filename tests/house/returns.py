# SPDX-License-Identifier: Apache-2.0
# Counts how often somebody who reads a request from its verb on, following calls, comes back to a file: each function is read once, where it
# is first called, and its calls in their order. A stay is a stretch of the reading in one file; the first stay in a file is no return.
#
#   python3 tests/house/returns.py .                       `qk quantize`
#   python3 tests/house/returns.py . --verb search --files
#
# It reads the text alone: a call is a name with "(" or "{" behind it that one of our files defines. A name that several files define means
# the caller's own file, else the one that the caller includes; where that leaves a choice, the call is not followed.
import argparse
import collections
import pathlib
import re
import sys

FOLDERS = ("include/qk/graph", "src/graph", "src/learn", "tools")
WORDS = {"if", "for", "while", "switch", "return", "sizeof", "catch", "throw", "static_cast", "case", "else", "do", "new", "delete", "decltype", "alignof", "requires",
         "constexpr", "namespace", "struct", "class", "enum", "union", "extern", "operator", "assert", "defined"}
CALL = re.compile(r"\b([a-z_]\w*)\s*(?:<[^<>;(){}]*>)?\s*[({]")
HEAD = re.compile(r"(?:^|[\s*&>:~])([a-z_]\w*)\s*\([^;]*$", re.S)


def plain(text):
    """The text without comments, texts and preprocessor lines, at the same places."""
    blank = lambda m: re.sub(r"[^\n]", " ", m[0])
    text = re.sub(r'R"\((?:.|\n)*?\)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", blank, text, flags=re.M)


def functions(text):
    """The functions that a text defines, as (name, body)."""
    stack, head = [], 0  # of each open brace: the name of the function that it begins, where its body begins
    for at in re.finditer(r"[{};]", text):
        place, c = at.start(), at[0]
        inside = any(name for name, _ in stack)
        if c == "{":
            name = None
            if not inside:
                before = text[head:place]
                found = re.match(r"\s*(?:[\w:<>,&*\s\[\]=~]|\([^()]*\))*", before)
                first = before.partition("(")[0].split()
                if found and "(" in before and first and not WORDS.intersection(first[:1]) and "=" not in before.partition("(")[0]:
                    called = re.search(r"([a-z_]\w*)\s*$", before.partition("(")[0])
                    name = called[1] if called and called[1] not in WORDS else None
            stack.append((name, place))
        elif c == "}" and stack:
            name, begun = stack.pop()
            if name:
                yield name, text[begun:place]
        if c != ";" or not inside:
            head = at.end()


def read(root):
    places, includes = collections.defaultdict(list), {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp"):
                text, file = path.read_text(), str(path.relative_to(root))
                includes[file] = {"include/" * i.startswith("qk/") + i for i in re.findall(r'^#include "([^"]+)"', text, re.M)}
                for name, body in functions(plain(text)):
                    places[name].append((file, body))
    return places, includes


def chosen(name, caller, places, includes):
    """The definition that a call in a file means, or None."""
    found = places.get(name, [])
    stems = {i.rpartition(".")[0].removeprefix("include/qk/") for i in includes[caller]}
    for fits in (lambda f: f == caller, lambda f: any(f.rpartition(".")[0].endswith(s) for s in stems), lambda f: True):
        here = [d for d in found if fits(d[0])]
        if here:
            return here[0] if len({f for f, _ in here}) == 1 else None
    return None


def reading(root, verb):
    places, includes = read(root)
    start = f"tools/verbs/{verb}.cpp"
    files, seen = [start], set()

    def enter(file, body):
        for call in CALL.finditer(body):
            to = None if call[1] in WORDS else chosen(call[1], file, places, includes)
            if to is None or (to[0], call[1]) in seen:
                continue
            seen.add((to[0], call[1]))
            files.append(to[0])
            enter(*to)
            files.append(file)

    for name, body in functions(plain((root / start).read_text())):
        if name == verb:
            enter(start, body)
    return files


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--verb", default="quantize")
    parser.add_argument("--files", action="store_true", help="list the files, with the stays in each")
    options = parser.parse_args()
    sys.setrecursionlimit(10000)
    files = reading(options.root, options.verb)
    stays = [file for file, before in zip(files, [None, *files]) if file != before]
    count = collections.Counter(stays)
    print(f"{options.verb}: {len(stays)} stays in {len(count)} files, {len(stays) - len(count)} returns")
    if options.files:
        print("".join(f"    {n:4} {file}\n" for file, n in count.most_common()), end="")


if __name__ == "__main__":
    main()
