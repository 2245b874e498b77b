# SPDX-License-Identifier: Apache-2.0
"""Raises a model of every operator of ai.onnx at every opset from 7 to 25 to each of those that an export may ask for, and runs both in onnxruntime.

    opset_evidence.py RAISE_MODELS    # the program of raise_models.cpp, build/release/tests/raise_models

The answers must be equal. The cases are those of opset_cases.py, the changes those of opset_changes.py, whose document must be the one in docs/.
Every operator must have a case at every opset, and every attribute that went or whose default moved a case that has it, or leaves it out.
"""
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import ROOT, check, program
from evidence.runtimes import session
import opset_cases
import opset_changes

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

TARGETS = (10, 12, 13, 19, 21, 25)  # those that formats and styles ask for, and the newest
DOCUMENT = ROOT / "docs" / "reference" / "opset_changes.md"

# onnxruntime has these up to an older opset, from which on only the list of types grew. The same nodes run there under that opset.
OLDER_KERNEL = {"GlobalLpPool": 21, "MaxRoiPool": 21, "RoiAlign": 21, "Bernoulli": 21, "Multinomial": 21, "RandomNormal": 21, "RandomNormalLike": 21, "RandomUniform": 21,
                "RandomUniformLike": 21}
# onnxruntime has these at no opset, or not in this form or type: onnx.reference answers.
ONLY_REFERENCE = {"Clip-double", "Swish", "Swish-alpha", "RNN-layout", "GRU-layout", "LSTM-layout"}
# Nothing here runs these: the nodes must stay as they are.
NOWHERE = {"ImageDecoder": "decodes images"}


def stamped(model, opset):
    older = onnx.ModelProto()
    older.CopyFrom(model)
    for imports in (older.opset_import, *[f.opset_import for f in older.functions]):
        for o in imports:
            if o.domain == "" and o.version > opset:
                o.version = opset
    return older


def run(case, model):
    """Returns the outputs as onnxruntime, or where it cannot, another interpreter gives them."""
    if case.name in ONLY_REFERENCE:
        return ReferenceEvaluator(model).run(None, case.feeds)
    if case.op in OLDER_KERNEL:
        model = stamped(model, OLDER_KERNEL[case.op])
    return session(model.SerializeToString(), "off").run(None, case.feeds)


def difference(got, want):
    for i, (a, b) in enumerate(zip(got, want)):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {i} is {a.dtype}{list(a.shape)}, was {b.dtype}{list(b.shape)}"
        if a.dtype.kind == "f":
            if not np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True):
                return f"output {i} differs by {np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64))):.3g}: {a.ravel()[:4]} was {b.ravel()[:4]}"
        elif not np.array_equal(a, b):
            return f"output {i} is {a.ravel()[:6]}, was {b.ravel()[:6]}"
    return ""


def check_coverage(cases):
    """Every operator has a case at every opset, and every change a case that shows it."""
    wrong = []
    have = {(c.op, o) for c in cases for o in range(max(c.first, opset_cases.FIRST), c.last + 1)}
    for name in opset_changes.versions():
        for opset in range(opset_cases.FIRST, opset_cases.LAST + 1):
            try:
                deprecated = onnx.defs.get_schema(name, opset, "").deprecated and name in ("Upsample", "Scatter")
            except onnx.defs.SchemaError:
                continue
            if not deprecated and (name, opset) not in have:
                wrong.append(f"{name} has no case at opset {opset}")
    for name, schemas in opset_changes.versions().items():
        for a, b in zip(schemas, schemas[1:]):
            before = b.since_version - 1
            if before < opset_cases.FIRST:
                continue
            nodes = [n for c in cases if c.op == name and c.first <= before <= c.last for n in all_nodes(c.model(before)) if n.op_type == name]
            sets = Counter(x.name for n in nodes for x in n.attribute)
            for attribute, old in a.attributes.items():
                new = b.attributes.get(attribute)
                if new is None and sets[attribute] == 0:
                    wrong.append(f"no case of {name} at opset {before} has {attribute}, which opset {b.since_version} has no more")
                moved = new is None or opset_changes.default(new) != opset_changes.default(old)
                if moved and not old.required and all(any(x.name == attribute for x in n.attribute) for n in nodes):
                    wrong.append(f"no case of {name} at opset {before} leaves {attribute} out, whose default moved in opset {b.since_version}")
    return wrong


def all_nodes(model):
    def inside(nodes):
        for n in nodes:
            yield n
            for a in n.attribute:
                for g in [a.g, *a.graphs]:
                    yield from inside(g.node)
    yield from inside(model.graph.node)
    for f in model.functions:
        yield from inside(f.node)


def raise_all(jobs):
    """jobs: (bytes of a model, opset). Returns the raised model or the text of an error for each."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        with open(f"{folder}/jobs", "w") as f:
            for i, (data, opset) in enumerate(jobs):
                if data not in files:
                    files[data] = f"{folder}/{len(files)}.onnx"
                    with open(files[data], "wb") as out:
                        out.write(data)
                f.write(f"{files[data]}\t{opset}\t{folder}/raised{i}.onnx\n")
        done = subprocess.run([program("raise_models"), f"{folder}/jobs"], capture_output=True, text=True, check=True)
        errors = done.stdout.split("\n")[:-1]
        assert len(errors) == len(jobs), f"{len(errors)} answers to {len(jobs)} models"
        result = []
        for i, error in enumerate(errors):
            there = os.path.exists(f"{folder}/raised{i}.onnx")
            assert there == (error == ""), f"a file where there is an error, or none where there is none: {error}"
            result.append(error if error else onnx.load(f"{folder}/raised{i}.onnx"))
        return result


def check_cases(cases):
    jobs, who, wrong = [], [], []
    for c in cases:
        for opset in range(max(c.first, opset_cases.FIRST), c.last + 1):
            data = c.model(opset).SerializeToString()
            for target in TARGETS:
                if target > opset:
                    jobs.append((data, target))
                    who.append((c, opset, target))
    raised = raise_all(jobs)
    answers, compared, refused = {}, 0, 0
    for (data, _), (c, opset, target), m in zip(jobs, who, raised):
        label = f"{c.name} of opset {opset} raised to {target}"
        if c.refused and c.refused[0] <= target <= c.refused[1]:
            refused += 1
            if not (isinstance(m, str) and c.refused[2] in m and f"({c.op})" in m):
                wrong.append(f"{label} does not say '{c.refused[2]}': {m if isinstance(m, str) else 'no error'}")
            continue
        if isinstance(m, str):
            wrong.append(f"{label}: {m}")
            continue
        try:
            if c.op in NOWHERE:
                assert [n.SerializeToString() for n in m.graph.node] == [n.SerializeToString() for n in c.model(opset).graph.node], "the node changed"
                continue
            if (id(c), opset) not in answers:
                answers[id(c), opset] = run(c, c.model(opset))
            found = difference(run(c, m), answers[id(c), opset])
        except Exception as failed:
            found = str(failed)[:300]
        compared += 1
        if found:
            wrong.append(f"{label}: {found}")
    return wrong, compared, refused


def test_the_table_in_docs():
    documented = DOCUMENT.read_text()
    assert documented.endswith(opset_changes.MARK + "\n\n" + opset_changes.table()), "docs/reference/opset_changes.md is old: run opset_changes.py with it"


def test_every_operator_and_change_has_a_case():
    wrong = check_coverage(opset_cases.cases())
    assert not wrong, "\n".join(wrong)


def test_raised_models_give_the_same():
    wrong, compared, refused = check_cases(opset_cases.cases())
    for line in wrong:
        check(False, line)
    check(compared > 0 and refused > 0, f"{compared} raised models compared with the old ones, {refused} errors as they should be")


if __name__ == "__main__":
    evidence.main()
