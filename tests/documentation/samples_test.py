# SPDX-License-Identifier: Apache-2.0
"""Runs every row of docs/guide/samples.md: what says the same here as a line of another system's page, on the network that is shipped.

Where ../shared has the pages, each key and option of their samples must stand in a row's left column.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT as SOURCE, check

import numpy as np
import pytest

TOP1 = """import sys
import numpy as np
y, labels = np.load(sys.argv[1]), np.load("y.npy")
print((y.reshape(len(labels), -1).argmax(1) == labels).mean())
"""
# Words of the pages' samples that are Python's, torch's or the user's own.
OTHERS = {"model", "pretrained", "batch_size", "shuffle", "num_workers", "ping_memory", "criterion", "args", "device", "input_shape", "dummy_input", "val_dataset", "val_dataloader",
          "q_model", "config", "quantizer", "quant_config", "quant_sim"}


def rows():
    """Yields (section, left, right) of the page's tables."""
    section = ""
    for line in (SOURCE / "docs/guide/samples.md").read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [c.strip() for c in line.split(" | ")]
        if line.startswith("| ") and len(cells) == 2 and cells[0] != "| the page's line":
            yield section, cells[0][2:], cells[1].removesuffix("|").strip()


def prepare(folder):
    digits = SOURCE / "examples" / "digits"
    shutil.copy(digits / "digits.onnx", folder / "model.onnx")
    shutil.copy(SOURCE / "examples/mixed_precision/inc_tuning_space.json", folder / "tuning.json")
    np.save(folder / "x.npy", np.load(digits / "test_images.npy")[:32])
    np.save(folder / "y.npy", np.load(digits / "test_labels.npy")[:32])
    (folder / "top1.py").write_text(TOP1)


def requests(text, folder):
    """Writes an entry as a requests file; a request alone stands under a default of int8."""
    asked = json.loads(text)
    if not {"default", "requests", "model_inputs", "model_outputs"} & set(asked):
        asked = {"requests": [asked]}
    asked.setdefault("default", {"activation": "int8", "weight": "int8"})
    (folder / "r.json").write_text(json.dumps(asked))


def command(fragment, folder):
    """Returns the command of a fragment of the right column; None for a word that is none."""
    quantize, data = "qk quantize model.onnx -o q.onnx --overwrite", " --calibration x.npy"
    if fragment.startswith("{"):
        requests(fragment, folder)
        strict = "" if "placement" in fragment else " --strict"  # tensors between formats are the wider one there
        return f"{quantize}{data} --plan r.json{strict}"
    if fragment.startswith("qk "):
        return fragment
    if fragment.startswith("quantize "):
        return "qk " + fragment
    if fragment.startswith("search "):
        more = "" if "--narrow" in fragment or "--plan" in fragment else " --wide int16/int8 --narrow int8/int8"
        return f"qk search model.onnx --inputs x.npy --labels y.npy --overwrite {fragment.removeprefix('search ')}{more}"
    if fragment.startswith("-"):
        formats = "" if re.search(r"--(activation|weight|plan)\b", fragment) else " --activation int8 --weight int8"
        inputs = " --inputs x.npy" if "--labels" in fragment else ""
        output = "qk quantize model.onnx --overwrite " if "-o " in fragment else quantize + " "
        return f"{output}{fragment}{formats}{inputs}{'' if '--calibration x' in fragment else data}"
    return None


def run(line, folder):
    paths = f"{Path(evidence.command()).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": paths})


def keys_of_pages(documents):
    """Returns the options and keys that the pages' samples name."""
    found = set()
    for page in sorted(documents.glob("*.txt")):
        for line in page.read_text().splitlines():
            code = line.split("#")[0]
            if re.search(r"[(={]|^\s*['\"]", code) and "$" not in code:
                found |= set(re.findall(r"\b([a-z_]+)=(?!=)", code)) | set(re.findall(r"""['"]([A-Za-z0-9]+)['"]\s*:""", code)) | set(re.findall(r"\.(set_\w+|apply|fit|save|quantize_model)\(", code))
    return found - OTHERS


PAGE = list(rows())


@pytest.fixture(scope="module")
def folder(shared):
    """A folder for all rows: some read what those before them wrote."""
    prepare(shared)
    return shared


@pytest.mark.parametrize("section, left, right", PAGE, ids=range(len(PAGE)))
def test_row(folder, section, left, right):
    own = 0
    for fragment in re.findall(r"`([^`]+)`", right):
        try:
            line = command(fragment, folder)
        except ValueError as wrong:
            line = None
            check(False, f"{section}: {fragment}: {wrong}")
        if line is None:
            continue
        own += 1
        r = run(line, folder)
        check(not r.returncode and "unused: option" not in r.stderr, f"{section}: {left}\n  {line}\n  status {r.returncode}: {r.stderr.strip()[-600:]}")
    check(own > 0 or "C++" in right, f"{section}: {left}: nothing in the right column runs")


def test_the_page_is_whole():
    fragments = [f for _, _, right in PAGE for f in re.findall(r"`([^`]+)`", right) if f.startswith(("{", "qk ", "quantize ", "search ", "-"))]
    assert len(fragments) >= 40, f"{len(fragments)} commands in {len(PAGE)} rows"


def test_keys_of_the_pages_stand_in_rows():
    documents = SOURCE.parent / "shared" / "documents"
    if not documents.exists():
        pytest.skip("the pages are not beside the project")
    left = " ".join(cells[1] for cells in PAGE)
    for k in sorted(keys_of_pages(documents)):
        check(re.search(rf"\b{k}\b", left), f"the pages' '{k}' stands in no row")


if __name__ == "__main__":
    evidence.main()
