# SPDX-License-Identifier: Apache-2.0
"""Tests the examples of README.md, docs/ and every verb's help: C++ compiles, JSON parses, commands run.

    documentation_test.py QK SOURCE_FOLDER COMPILER
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

CPP = """
#include <qk/qk.hpp>
#include <qk/graph/search.hpp>
#include <qk/systems.hpp>
{includes}
{functions}
void documented([[maybe_unused]] std::span<const float> x, [[maybe_unused]] std::span<float> y, [[maybe_unused]] const qk::graph::model& model,
                [[maybe_unused]] const qk::graph::named_tensors& inputs, [[maybe_unused]] const qk::graph::calibration& calibration,
                [[maybe_unused]] const std::vector<std::int64_t>& labels);
void documented(std::span<const float> x, std::span<float> y, const qk::graph::model& model, const qk::graph::named_tensors& inputs,
                const qk::graph::calibration& calibration, const std::vector<std::int64_t>& labels) {{
    (void)x, (void)y, (void)model, (void)inputs, (void)calibration, (void)labels;
{body}
}}
"""
# Pages whose blocks a reader types one after the other, in a clone: they run as they stand, on files that are shipped.
AS_THEY_STAND = ("README.md", "command_line.md", "goldens.md")
# Commands that have one of these are not run: they need several processes, a device, a model of two inputs, or a runtime that is not here.
LEFT_OUT = ("mpirun", "compare --dot", "--inputs a=a.npy", "values.hex", "./dev", *(() if find_spec("onnxruntime") else ("--against onnxruntime",)),
            *(() if find_spec("openvino") else ("--verify openvino",)))
# A line that measures the machine does so on small tensors, for no time.
BRIEFLY = (" --seconds 0", " --bytes 65536")


OPTION = r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]"
OTHER_PROGRAMS = r"\b(?:apt-get|cmake|conan|conda|convert_hf_to_gguf|ctest|git|mpirun|pip|pkg-config|rattler-build|vcpkg)\b"
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.S | re.M)


def prepare(folder, qk, source):
    """Makes the files that the examples name."""
    digits = source / "examples" / "digits"
    for name in ("model.onnx", "m.onnx"):
        shutil.copy(digits / "digits.onnx", folder / name)
    images, labels = np.load(digits / "test_images.npy")[:32], np.load(digits / "test_labels.npy")[:32]
    for name in ("x.npy", "c.npy"):
        np.save(folder / name, images)
    np.save(folder / "y.npy", labels)
    np.save(folder / "v.npy", np.ones((len(images), 10), np.float32))
    np.save(folder / "s.npy", np.full(len(images), 0.05, np.float32))
    np.save(folder / "a.npy", images.reshape(len(images), -1)[:4])
    np.save(folder / "b.npy", images.reshape(len(images), -1)[4:7].T.copy())
    run(qk, folder, "qk vectors --device amd.cdna3.mfma.f32_f16 --out made")
    shutil.copy(folder / "made" / "case.npz", folder / "mine.npz")
    (folder / "requests.json").write_text('{"default": {"activation": "int8", "weight": "int8"}}')  # of the verbs' help
    run(qk, folder, "qk convert x.npy device.npy --format mxfp8_e4m3")
    run(qk, folder, "qk quantize model.onnx -o quantized.onnx --activation int8 --weight int8 --calibration x.npy")
    run(qk, folder, "qk convert x.npy codes.npy --format mxfp4 --packed device.npz")
    sys.path.insert(0, str(source / "tests" / "tool"))
    from language_models import gpt
    gpt(folder / "gpt.onnx")
    for name in ("t1.npz", "t2.npz"):
        ids = np.arange(len(name) + len(list(folder.glob("t?.npz"))))[None]
        np.savez(folder / name, input_ids=ids, attention_mask=np.ones_like(ids))
    sys.path.insert(0, str(source / "tests" / "checkpoint"))
    import make_files
    import llama_files
    llama_files.write(folder / "llama")
    (folder / "quantized").mkdir()
    tensors = make_files.Checkpoints(1).modelopt_nvfp4()[0]
    tensors["m.norm.weight"] = ("F32", np.ones(8, np.float32))
    for name in ("model", "a"):
        (folder / f"{name}.safetensors").write_bytes(make_files.safetensors(tensors))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {t: "model.safetensors" for t in tensors}}))
    for name in ("model", "b", "model-q4_k"):
        (folder / f"{name}.gguf").write_bytes(make_files.gguf(make_files.gguf_tensors(1, kinds=["Q4_K"])[0]))
    (folder / "formats.json").write_text('{"requests": [{"weight": "f16"}]}')
    planes = np.load(folder / "device.npz")
    (folder / "device.bin").write_bytes(b"".join(planes[k].tobytes() for k in planes.files if planes[k].dtype == np.uint8 and k != "format"))


def files_of(page):
    """Returns the files that a page shows: the JSON below a line that ends with `NAME.json`."""
    return re.findall(r"`(\w+\.json)`:\n\n```json\n(.*?)^```", page.read_text(), re.S | re.M)


def run(qk, folder, line):
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True,
                          env={"QK_PYTHON": sys.executable, **os.environ, "PATH": f"{qk.parent}:{os.environ['PATH']}"})


def run_as_it_stands(qk, source, page, counted):
    """Runs a page's blocks in one shell, in the folder of a clone. Returns what failed."""
    lines = [line for text in blocks(page, "sh") for line in text.splitlines() if not line.startswith("./dev")]
    counted["commands"] += sum(line.startswith("qk ") for line in lines)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source / "examples", Path(folder) / "examples")
        r = run(qk, folder, "set -euxo pipefail\n" + "\n".join(lines))
    return [f"{page.name}, its blocks one after the other: status {r.returncode}\n{r.stderr[-1500:]}"] if r.returncode or not lines else []


def unknown_options(source, pages, helps):
    """Finds options in documents that no verb's help and no other program of this repository has. Lines about others' programs are their own."""
    programs = [source / "dev", *(p for folder in ("bench", "tests", "examples") for p in (source / folder).rglob("*") if p.suffix in (".py", ".sh", ".cpp"))]
    known = set(re.findall(OPTION, helps + "\n".join(p.read_text() for p in programs)))
    return [f"{page.name}: no verb and no program has the option {option}" for page in pages for line in page.read_text().split("\n") if not re.search(OTHER_PROGRAMS, line)
            for option in re.findall(OPTION, line) if option not in known]


def wrong_counts(qk, source, pages):
    """Counts again what documents count: devices by the command, drivers by their files."""
    devices = len(json.loads(run(qk, source, "qk formats --devices --json").stdout)["devices"])
    text, wrong = "\n".join(p.read_text() for p in pages), []
    named = re.findall(r"lists (\d+) (?:devices|units)", text)
    wrong += [f"a document has {n} devices, qk formats --devices {devices}" for n in named if int(n) != devices]
    number, drivers = re.search(r"There are (\w+) drivers: (.*?)[.;]\s", text, re.S).groups()
    drivers = re.findall(r"`(\w+)`", drivers)
    if number != NUMBERS[len(drivers)] or not all((source / f"include/qk/kernels/drivers/{name}.hpp").exists() for name in drivers):
        wrong.append(f"a document has {number} drivers: {drivers}")
    return wrong + ([] if len(named) > 1 else ["no document counts the devices"])


def main():
    qk, source, compiler = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3]
    # tests/tool/transformers.py runs the lines of language_models.md with models of its own.
    pages = [source / "README.md", *(p for p in sorted((source / "docs").rglob("*.md")) if p.name != "language_models.md")]
    failures, counted = [], {"C++": 0, "JSON": 0, "commands": 0}
    for page in pages:
        for text in blocks(page, "cpp"):
            counted["C++"] += 1
            includes = "\n".join(line for line in text.splitlines() if line.startswith("#include"))
            body = "\n".join(line for line in text.splitlines() if not line.startswith("#include"))
            whole = re.search(r"^[\w:<>]+ \w+\(.*\) \{$", body, re.M)  # a block of functions stands by itself
            program = CPP.format(includes=includes, functions=body if whole else "", body="" if whole else body)
            r = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-DONNX_ML=1", "-DONNX_NAMESPACE=onnx", f"-I{source}/include",
                                "-isystem", "/usr/include/eigen3", "-x", "c++", "-"], input=program, capture_output=True, text=True)
            if r.returncode:
                failures.append(f"{page.name}: C++ does not compile\n{text}\n{r.stderr[:2000]}")
        for text in blocks(page, "json"):
            counted["JSON"] += 1
            try:
                json.loads(text)
            except ValueError as e:
                failures.append(f"{page.name}: JSON: {e}\n{text}")

    verbs = re.findall(r"^  ([a-z]+) ", run(qk, source, "qk --help").stdout.split("Subcommands:")[-1], re.M)
    shown, files, operators = {}, {}, {}
    for page in pages:
        if page.name in AS_THEY_STAND:
            failures += run_as_it_stands(qk, source, page, counted)
            continue
        files[page.name] = files_of(page)
        operators[page.name] = re.findall(r"^    (operators  .*)$", page.read_text(), re.M)
        shown[page.name] = [line for text in blocks(page, "sh") for line in text.splitlines()]
    helps = {verb: run(qk, source, f"qk {verb} --help").stdout for verb in verbs}
    failures += unknown_options(source, pages, "\n".join(helps.values())) + wrong_counts(qk, source, pages)
    for verb in verbs:
        shown[f"qk {verb} --help"] = [line.strip() for line in helps[verb].splitlines() if re.match(r"^  (qk|mpirun|QK_ARCH=\w+ qk) ", line)]
        if not shown[f"qk {verb} --help"]:
            failures.append(f"qk {verb} --help shows no example")
    with tempfile.TemporaryDirectory() as prepared:
        prepare(Path(prepared), qk, source)
        for where, lines in shown.items():
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(prepared, folder, dirs_exist_ok=True)
                for name, text in files.get(where, []):
                    (Path(folder) / name).write_text(text)
                printed = ""
                for line in lines:  # in order: a line may read what the lines before it wrote
                    for_x86 = line.startswith("QK_ARCH=") and platform.machine() == "x86_64"
                    if not (line.startswith("qk ") or for_x86) or any(part in line for part in LEFT_OUT):
                        continue
                    if "qk bench" in line:
                        line += "".join(more for more in BRIEFLY if more.split()[0] not in line)
                    counted["commands"] += 1
                    if "layout=nhwc" in line:
                        np.save(Path(folder) / "x.npy", np.load(Path(folder) / "x.npy").transpose(0, 2, 3, 1))
                    r = run(qk, folder, line)
                    printed += r.stdout
                    if r.returncode not in (0, 1):  # 1: a comparison or a target failed
                        failures.append(f"{where}: {line}\n  status {r.returncode}: {r.stderr.strip()}")
                    if "layout=nhwc" in line:
                        shutil.copy(Path(prepared) / "x.npy", folder)
                failures += [f"{where}: no line of the page prints '{line}'" for line in operators.get(where, []) if line not in printed]
    for f in failures:
        print(f, file=sys.stderr)
    print(", ".join(f"{n} {what}" for what, n in counted.items()), f"tried; {len(failures)} failed")
    sys.exit(bool(failures) or not all(counted.values()))


main()
