# SPDX-License-Identifier: Apache-2.0
"""Checks the pages without building the site: links, the site's list of pages, examples on the first screen, lengths, words, the version.

    pages_test.py SOURCE_FOLDER
"""
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

WORDS_OF_A_PARAGRAPH = 120
WORDS_BEFORE_THE_EXAMPLE = 110
LINES_OF_A_SCREEN = 40
WORDS_OF_A_FIRST_EVENING = 1000
WIDTH_OF_A_ROW = 200
PAPERS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"]


def without_code(text):
    """Returns text with what stands in fences and indented blocks emptied, line for line."""
    out, fence, before = [], False, ""
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
            out.append("")
        elif fence or (line.startswith("    ") and (not before.strip() or before == "\0")):
            out.append("")
            before = before if fence else "\0"
            continue
        else:
            out.append(line)
        before = line
    return "\n".join(out)


def anchors(text):
    """Returns the names that a page's headings have, as Markdown's readers make them."""
    names, seen = set(), {}
    for heading in re.findall(r"^#+ +(.+?)\s*$", without_code(text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", words.lower()).strip())
        seen[name] = seen.get(name, -1) + 1
        names.add(name if not seen[name] else f"{name}_{seen[name]}")
    return names


def broken_links(root, pages):
    broken, count = [], 0
    texts = {page: page.read_text() for page in pages}
    for page, text in texts.items():
        plain = re.sub(r"`[^`\n]+`", "", without_code(text))
        for target in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            path, _, anchor = target.partition("#")
            at = (page.parent / path).resolve() if path else page.resolve()
            if not at.exists() or not at.is_relative_to(root):
                broken.append(f"{page.relative_to(root)}: {target} leads nowhere")
            elif anchor and at.suffix == ".md" and anchor not in anchors(texts.get(at) or at.read_text()):
                broken.append(f"{page.relative_to(root)}: no heading is {target}")
    return broken, count


def list_of_pages(root):
    """Compares the site's list of pages with the pages that there are."""
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (root / "mkdocs.yml").read_text(), re.M)
    there = {p.relative_to(root / "docs").as_posix() for p in (root / "docs").rglob("*.md")} | {f"project/{name}" for name in PAPERS}
    return ([f"mkdocs.yml: {name} is not there" for name in listed if name not in there] + [f"mkdocs.yml: {name} is not in the list" for name in sorted(there - set(listed))] +
            [f"mkdocs.yml: {name} stands twice" for name in set(listed) if listed.count(name) > 1])


def paragraphs(text):
    """Returns (line, words) of each paragraph; an item of a list is one, tables and headings are none."""
    found, words, first = [], 0, 0
    for number, line in enumerate(without_code(text).split("\n") + [""], 1):
        item = re.match(r"\s*([-*]|\d+\.)\s", line)
        if not line.strip() or line.startswith(("|", "#")) or item:
            found.append((first, words))
            words = 0
        if line.strip() and not line.startswith(("|", "#")):
            first = number if words == 0 else first
            words += len(line.split())
    return found


def long_paragraphs(root, pages):
    return [f"{page.relative_to(root)}:{line}: a paragraph of {words} words ({WORDS_OF_A_PARAGRAPH} at most)"
            for page in pages for line, words in paragraphs(page.read_text()) if words > WORDS_OF_A_PARAGRAPH]


def first_screens(root):
    """Each guide page opens with an example and what it prints."""
    wrong = []
    for page in sorted((root / "docs" / "guide").glob("*.md")):
        lines = page.read_text().split("\n")
        command = next((i for i, line in enumerate(lines) if re.match(r"```(sh|text|python)$", line)), len(lines))
        end = next((i for i in range(command + 1, len(lines)) if lines[i].startswith("```")), len(lines))
        said = sum(len(line.split()) for line in lines[1:command] if not line.startswith(("|", "{", " ", "`")))
        shown = lines[command] == "```text" if command < len(lines) else False  # such a block has commands and output
        output = end if shown else next((i for i in range(end + 1, min(LINES_OF_A_SCREEN, len(lines))) if lines[i].startswith("    ")), None)
        if said > WORDS_BEFORE_THE_EXAMPLE:
            wrong.append(f"{page.relative_to(root)}: {said} words stand before its first example ({WORDS_BEFORE_THE_EXAMPLE} at most)")
        if output is None or output > LINES_OF_A_SCREEN:
            wrong.append(f"{page.relative_to(root)}: the first {LINES_OF_A_SCREEN} lines have no example with its output")
    return wrong


def lists_after_paragraphs(root, pages):
    """MkDocs takes a list for a part of the paragraph before it if no empty line stands between them."""
    wrong = []
    for page in pages:
        lines = without_code(page.read_text()).split("\n")
        for number in range(1, len(lines)):
            item, before = re.match(r"([-*]|\d+\.) ", lines[number]), lines[number - 1]
            if item and before.strip() and not re.match(r"\s|[-*] |\d+\. ", before):
                wrong.append(f"{page.relative_to(root)}:{number + 1}: a list needs an empty line before it")
    return wrong


def words_of(pages):
    return sum(len(p.read_text().split()) for p in pages)


def share_of_results(root):
    docs, results = words_of((root / "docs").rglob("*.md")), words_of((root / "docs" / "results").rglob("*.md"))
    return [f"docs/results has {results} of {docs} words of docs/: a quarter at most"] if results * 4 > docs else []


def first_evening(root):
    words = words_of([root / "docs/design/architecture.md"])
    return [f"architecture.md has {words} words ({WORDS_OF_A_FIRST_EVENING} at most); rooms.md has the tables"] if words > WORDS_OF_A_FIRST_EVENING else []


def glossary(root):
    """One word has one meaning: rooms.md and glossary.md say the same of each."""
    def table(path):
        text = path.read_text()
        return dict((cell.strip() for cell in line.strip("|").split("|", 1)) for line in text[text.index("| word | meaning |"):].split("\n")[2:] if line.startswith("|"))
    code, user = table(root / "docs/design/rooms.md"), table(root / "docs/reference/glossary.md")
    wrong = [f"glossary.md: '{word}' is not there, or has another meaning than in rooms.md" for word, meaning in code.items() if user.get(word) != meaning]
    order = [word.lower() for word in user]
    return wrong + ([] if order == sorted(order) and len(code) > 20 else ["glossary.md: words are not in the order of the alphabet, or a table was not read"])


def version(root, qk):
    """The version stands in version.hpp; documents and the program that was built have the same."""
    wanted = ".".join(re.findall(r"^#define QK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (root / "include/qk/version.hpp").read_text(), re.M))
    minor = wanted.rpartition(".")[0]
    changes, readme = (root / "CHANGELOG.md").read_text(), (root / "README.md").read_text()
    headings = re.findall(r"^## (.+)$", changes, re.M)
    wrong = []
    if headings[:1] != ["[Unreleased]"] or not all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", h) for h in headings[1:]):
        wrong.append("CHANGELOG.md: headings are [Unreleased], then [VERSION] - YEAR-MONTH-DAY")
    elif not headings[1].startswith(f"[{wanted}]"):
        wrong.append(f"CHANGELOG.md: the newest release is {headings[1]}, version.hpp has {wanted}")
    for text in (f"This is version {wanted}", f"find_package(qk {minor} "):
        if text not in readme:
            wrong.append(f"README.md: '{text}' is not there")
    wrong += [f"{page.name}: find_package(qk {found}), version.hpp has {wanted}" for page in (root / "docs").rglob("*.md") for found in re.findall(r"find_package\(qk ([\d.]+)", page.read_text())
              if found != minor]
    for section in re.split(r"^## ", changes, flags=re.M)[2:]:
        if section.count("\n") > 60:
            wrong.append(f"CHANGELOG.md: {section.split()[0]} has {section.count(chr(10))} lines; a release fits a screen")
    newest = changes.split("\n## ")[2]
    wrong += [f"CHANGELOG.md: '{entry[:50]}...' takes more than two rows of {WIDTH_OF_A_ROW}" for entry in re.findall(r"^- .*(?:\n  .*)*", newest, re.M)
              if entry.count("\n") > 1 or max(map(len, entry.split("\n"))) > WIDTH_OF_A_ROW]
    if not newest.split("\n### ")[1].startswith("Changed"):
        wrong.append("CHANGELOG.md: the newest release begins with what a user may have to do")
    if qk:
        said = subprocess.run([qk, "--version"], capture_output=True, text=True).stdout.strip()
        if said.split()[-1:] != [wanted]:
            wrong.append(f"qk --version says '{said}', version.hpp has {wanted}")
    return wrong


def tags(root, pages):
    """What documents tell git to take is there: the branch main, a tag, or in RELEASING.md the tag to come. A clone of a part of the history (CI's) may lack
    the tags: there the form of a version is enough."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True).stdout.split()
    version_form = r"v\d+\.\d+\.\d+"
    there, complete = {"main", *git("tag")}, git("rev-parse", "--is-shallow-repository") == ["false"]
    coming = "v" + ".".join(re.findall(r"^#define QK_VERSION_\w+ (\d+)$", (root / "include/qk/version.hpp").read_text(), re.M))
    named = [(page.name, name) for page in pages for name in sorted(set(re.findall(rf"(?<=GIT_TAG )[^\s)]+|\b{version_form}\b", page.read_text())))]
    return [f"{page}: git has no {name}" for page, name in named if name not in there and (page, name) != ("RELEASING.md", coming) and
            (complete or not re.fullmatch(version_form, name))] + ([] if named else ["no document says what git takes"])


def names(root, pages):
    """Files, folders, headers, macros and names of C++ in documents are there. Capitals stand for a name of the reader's, * and {a,b} for several."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True).stdout.split()
    files = [name for name in listed if (root / name).is_file()]
    tree = {part for name in files for part in (name, name.removesuffix(Path(name).suffix), *map(str, Path(name).parents))}
    words = set(re.findall(r"\w+", "\n".join((root / name).read_text() for name in files if re.search(r"\.([hc]pp|h|py|txt|cmake|in|sh)$|^dev$", name))))
    folder = "|".join(sorted(re.escape(part) for part in tree if "/" not in part and part != "." and (root / part).is_dir()))
    wrong, count = [], 0
    for page in pages:
        text = page.read_text()
        paths = set(re.findall(rf"(?<![\w./-])(?:{folder})/[\w./*{{}},-]*[\w*}}]", text))
        paths |= {f"include/{header}" for header in re.findall(r"(?<![\w./-])qk/[\w./]+\.(?:hpp|h)\b", text)} | {f"*{name}" for name in re.findall(r"`([\w/]+\.(?:hpp|cpp|inc|cmake))`", text)}
        for path in sorted(paths):
            choice = re.search(r"{(.*)}", path)
            for one in [path.replace(choice[0], word) for word in choice[1].split(",")] if choice else [path]:
                if one not in tree and not fnmatch.filter(tree, re.sub(r"[A-Z]{3,}(?=[/.]|$)", "*", one)):
                    wrong.append(f"{page.relative_to(root)}: no file or folder is {one}")
        used = set(re.findall(r"\bQK_[A-Z0-9_]+\b", text)) | {word for pair in re.findall(r"`(?:\w+::)*([a-z]\w*)::([a-z]\w*)", text) for word in pair if word != "std"}
        wrong += [f"{page.relative_to(root)}: nothing is named {word}" for word in sorted(used - words)]
        count += len(paths) + len(used)
    return wrong + ([] if count > 500 else [f"documents name {count} things only"])


def results_remade(root):
    """Every title that is kept has a command in remake.md, and results are as bench/rows.py writes them."""
    sys.path.insert(0, str(root / "bench"))
    import rows

    text = (root / "docs/results/remake.md").read_text()
    kept = {path: rows.read(path) for path in sorted((root / "docs/results/data").rglob("*.json"))}
    unwritten = [path for path, document in kept.items() if not isinstance(document, dict) or rows.text(document) != path.read_text()]
    return [f"remake.md does not name '{title}' of measurements.json" for title in kept[root / "docs/results/data/measurements.json"] if title not in text] + \
        [f"{path.relative_to(root)} is not as bench/rows.py writes it" for path in unwritten]


def main():
    root = Path(sys.argv[1]).resolve()
    qk = sys.argv[2] if len(sys.argv) > 2 else None
    pages = [root / name for name in PAPERS] + sorted((root / "docs").rglob("*.md"))
    broken, links = broken_links(root, pages)
    broken += list_of_pages(root) + long_paragraphs(root, pages) + first_screens(root) + lists_after_paragraphs(root, pages)
    broken += share_of_results(root) + first_evening(root) + glossary(root) + version(root, qk) + tags(root, pages) + names(root, [page for page in pages if page.name != "CHANGELOG.md"]) + results_remade(root)
    print("\n".join(broken))
    print(f"{len(pages)} pages, {words_of(pages)} words, {links} links; {len(broken)} faults")
    sys.exit(bool(broken) or links < 50)


if __name__ == "__main__":
    main()
