# SPDX-License-Identifier: Apache-2.0
"""Checks the repository's papers: workflows, forms and settings are YAML in order, fit their schemas, and name what there is.

    papers_test.py SOURCE_FOLDER

The schemas come with the package check-jsonschema, so that nothing is fetched. Where it or yamllint is missing, this says so and skips.
"""
import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

# What each paper is, by check-jsonschema's name of the schema.
SCHEMAS = {".github/workflows/*.yml": "vendor.github-workflows", ".github/ISSUE_TEMPLATE/[!c]*.yml": "vendor.github-issue-forms",
           ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config", ".github/dependabot.yml": "vendor.dependabot"}
YAML = ["mkdocs.yml", ".clangd", ".pre-commit-config.yaml", ".github/dependabot.yml"]
YAML_RULES = "{extends: default, rules: {line-length: {max: 180}, document-start: disable, truthy: {check-keys: false}, comments: {min-spaces-from-content: 1}, braces: {max-spaces-inside: 1}}}"


def run(*words, root):
    done = subprocess.run([sys.executable, "-m", *words], cwd=root, capture_output=True, text=True)
    return [] if done.returncode == 0 else [line for line in (done.stdout + done.stderr).split("\n") if line.strip()]


def workflows(root):
    """Presets, targets and options that the workflows name are there, so are those of documents; every job has a limit and no more rights than it needs."""
    import yaml
    wrong, presets = [], {p["name"] for p in json.loads((root / "CMakePresets.json").read_text())["configurePresets"] if not p.get("hidden")}
    cmake = "\n".join(p.read_text() for p in [root / "CMakeLists.txt", *(root / "tests").rglob("*.cmake"), *(root / "tests").rglob("CMakeLists.txt")])
    verbs = set(re.findall(r"^       ?(?:usage: )?\./dev (\w+)|usage: \./dev (\w+)", (root / "dev").read_text(), re.M))
    verbs = {word for pair in verbs for word in pair if word}
    for path in sorted((root / ".github/workflows").glob("*.yml")):
        content, text = yaml.safe_load(path.read_text()), path.read_text()
        if content.get("permissions") != {"contents": "read"}:
            wrong.append(f"{path.name}: it may do more than read")
        for name, job in content["jobs"].items():
            if "timeout-minutes" not in job:
                wrong.append(f"{path.name}: job {name} has no limit of time")
            used = [row["preset"] for row in job.get("strategy", {}).get("matrix", {}).get("include", []) if "preset" in row]
            used += re.findall(r"--preset (\w+)", "\n".join(step.get("run", "") for step in job["steps"]))
            used += [word for word in re.findall(r"\./dev build (\w+)", "\n".join(step.get("run", "") for step in job["steps"]))]
            wrong += [f"{path.name}: job {name}: no preset is named {word}" for word in used if word not in presets]
            wrong += [f"{path.name}: job {name}: {step['uses']} has no version" for step in job["steps"] if "uses" in step and "@" not in step["uses"]]
        wrong += [f"{path.name}: no option is named {word}" for word in re.findall(r"-D ?(QK_\w+)", text) if f"option({word} " not in cmake]
        wrong += [f"{path.name}: no target is named {word}" for word in re.findall(r"--target (\w+)", text) if word not in cmake]
    for path in [*(root / ".github/workflows").glob("*.yml"), *root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        text = path.read_text()
        wrong += [f"{path.name}: ./dev has no {word}" for word in re.findall(r"\./dev (\w+)", text) if word not in verbs]
        wrong += [f"{path.name}: no preset is named {word}" for word in re.findall(r"--preset (\w+)", text) if word not in presets]
    return wrong


def hooks(root):
    """The files that pre-commit's hooks run are there, and their expressions are expressions."""
    import yaml
    wrong = []
    for hook in (hook for repo in yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]):
        wrong += [f".pre-commit-config.yaml: {hook['id']}: no {key}" for key in ("id", "name", "entry", "language") if not hook.get(key)]
        wrong += [f".pre-commit-config.yaml: {hook['id']}: {word} is not there" for word in hook["entry"].split() if word.startswith("tests/") and not (root / word).exists()]
        for key in ("files", "exclude"):
            re.compile(hook.get(key, ""))
    return wrong


def editor(root):
    """.editorconfig and .clang-format agree on the width of a line and of a step."""
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (root / ".editorconfig").read_text())
    form = (root / ".clang-format").read_text()
    pairs = {"max_line_length": "ColumnLimit", "indent_size": "IndentWidth"}
    return [f".editorconfig: {ours} is not {theirs} of .clang-format" for ours, theirs in pairs.items() if settings["*"][ours] != re.search(rf"^{theirs}: (\d+)", form, re.M)[1]]


def main():
    root = Path(sys.argv[1]).resolve()
    for package in ("yamllint", "check_jsonschema"):
        if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True).returncode:
            print(f"skipped: no {package} in this Python (./dev test makes build/venv)")
            return
    wrong, fitted = [], 0
    every = [root / name for name in YAML] + sorted((root / ".github").rglob("*.yml"))
    wrong += run("yamllint", "--strict", "-d", YAML_RULES, *(str(p.relative_to(root)) for p in dict.fromkeys(every)), root=root)
    for pattern, schema in SCHEMAS.items():
        files = sorted(root.glob(pattern))
        if not files:
            wrong.append(f"no file is named {pattern}")
            continue
        fitted += len(files)
        wrong += run("check_jsonschema", "--builtin-schema", schema, *map(str, files), root=root)
    wrong += workflows(root) + hooks(root) + editor(root)
    print("\n".join(wrong))
    print(f"{len(set(every))} papers, {fitted} fitted to schemas; {len(wrong)} faults")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
