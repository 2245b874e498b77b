# SPDX-License-Identifier: Apache-2.0
"""Runs every row of docs/guide/samples.md: what says the same here as a line of another system's page, on the network that is shipped.

    samples_test.py QK SOURCE_FOLDER

Where ../shared has the pages, each key and option of their samples must stand in a row's left column.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

QK, SOURCE = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
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
    paths = f"{QK.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
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


def main():
    failures, tried = [], 0
    page = list(rows())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        for section, left, right in page:
            own = 0
            for fragment in re.findall(r"`([^`]+)`", right):
                try:
                    line = command(fragment, folder)
                except ValueError as wrong:
                    line = None
                    failures.append(f"{section}: {fragment}: {wrong}")
                if line is None:
                    continue
                own += 1
                r = run(line, folder)
                if r.returncode or "unused: option" in r.stderr:
                    failures.append(f"{section}: {left}\n  {line}\n  status {r.returncode}: {r.stderr.strip()[-600:]}")
            tried += own
            if own == 0 and "C++" not in right:
                failures.append(f"{section}: {left}: nothing in the right column runs")
    documents, missing = SOURCE.parent / "shared" / "documents", set()
    if documents.exists():
        left = " ".join(cells[1] for cells in page)
        missing = {k for k in keys_of_pages(documents) if not re.search(rf"\b{k}\b", left)}
        failures += [f"the pages' '{k}' stands in no row" for k in sorted(missing)]
    for f in failures:
        print(f, file=sys.stderr)
    print(f"{len(page)} rows, {tried} commands tried; {len(failures)} failed")
    sys.exit(bool(failures) or tried < 40)


main()
