#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes down what qk knows of values without running them, beside what running gives, so that a change of how it is known can show that
what was not known became known and right, and nothing else moved.

    python tests/knowledge.py build/dev --out before.txt       before the change
    python tests/knowledge.py build/dev --against before.txt   after it: prints what differs, and exits with 1 if anything may not

`knowledge_record` (a target of a build with -DQK_TOGETHER=1, as the preset dev has it) has the facts; its first comment says what a line means. No record is kept in git: a worktree of
the commit before the change makes it again in minutes. Equal lines of consecutive opsets are one line, LABEL@FIRST-LAST.

Of what is known, something that begins with "?" may become what was computed. Anything else that differs is told, and ends in status 1,
but for `file` (a raised model is written in another way) and `because` of another verdict. Models:
    node      ONNX's node tests, at their opset and raised to each later one
    case      the cases of opset_cases.py at each of their opsets, and the first one raised to each later one
    graph     random graphs (random_graphs.py) of a fixed seed
    network   the networks of the tests and, where it lies beside the project, of ../shared
`--only WORD` takes one kind. `--unknown KEY` counts by operator what is not known, `--wrong KEY` prints what is not as it was computed.
"""
import argparse
import collections
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import evidence
import numpy as np
import onnx
from onnx import numpy_helper

sys.path += [str(evidence.TESTS / "graph"), str(evidence.TESTS / "fuzz")]
NEWEST = onnx.defs.onnx_opset_version()
GRAPHS = 300


def written(folder, model, feeds):
    """Writes a model and its inputs; returns the file and the folder of the inputs."""
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    for i, value in enumerate(feeds):
        (folder / f"input_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(value)).SerializeToString())
    return folder / "model.onnx", folder


def later(model, newest=NEWEST):
    own = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=newest)
    return range(own + 1, newest + 1)


def nodes(folder):
    for place in evidence.folders("onnx_node_tests")[:1]:
        for test in sorted(p.parent for p in place.glob("onnx_node_tests/*/model.onnx")):
            yield test.name, test / "model.onnx", test / "test_data_set_0", later(onnx.load(test / "model.onnx"))


def cases(folder):
    import opset_cases
    for number, case in enumerate(opset_cases.cases()):
        for opset in range(max(case.first, opset_cases.FIRST), case.last + 1):
            model = case.model(opset)
            raised = later(model) if opset == max(case.first, opset_cases.FIRST) else ()
            yield f"{number}-{case.name}{'-raised' if raised else ''}", *written(folder / f"{number}-{opset}", model, case.feeds.values()), raised


def graphs(folder):
    from random_graphs import Graph
    for number in range(GRAPHS):
        random = np.random.default_rng([1, number])
        graph = Graph(random)
        yield str(number), *written(folder / str(number), graph.model(), graph.data(random).values()), ()


def networks(folder):
    random, seen = np.random.default_rng(7), set()
    for kind in ("models", "quark_models", "cases"):
        for place in evidence.folders(kind):
            for file in sorted((place / kind).rglob("*.onnx")):
                if (content := file.read_bytes()) in seen:
                    continue
                seen.add(content)
                model, data = onnx.load(file), folder / str(len(seen))
                held = {t.name for t in model.graph.initializer}
                feeds = [array_for(v, random) for v in model.graph.input if v.name not in held]
                written(data, onnx.ModelProto(), feeds)
                yield file.relative_to(place.parent), file, data, ()


def array_for(info, random):
    tensor = info.type.tensor_type
    lengths = [d.dim_value or (2 if i == 0 else 4) for i, d in enumerate(tensor.shape.dim)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return random.standard_normal(lengths).astype(dtype) if np.issubdtype(dtype, np.floating) else random.integers(0, 2, lengths).astype(dtype)


KINDS = {"node": nodes, "case": cases, "graph": graphs, "network": networks}


# ---- the record: {(label, opset, value): {key: (known, computed)}}

def facts_of(words):
    facts = {"operator": (words[0], "")}
    for word in words[1:]:
        key, _, text = word.partition("=")
        known, _, computed = text.partition("|")
        facts[key] = known, computed
    return facts


def record(kind, folder):
    """Returns {(label, value): [(opset, rest of the line)]}."""
    jobs = "".join(f"{kind}/{label}\t{file}\t{data}\t{','.join(map(str, opsets))}\n" for label, file, data, opsets in KINDS[kind](folder))
    (folder / "jobs").write_text(jobs)
    done = subprocess.run([evidence.command(), folder / "jobs"], capture_output=True, text=True, check=True)
    rows = {}
    for line in done.stdout.splitlines():
        label, value, rest = line.split("\t", 2)
        label, _, opset = label.rpartition("@")
        rows.setdefault((label, value), []).append((int(opset or 0), rest))
    return rows


def folded(rows):
    """Yields lines, one for consecutive opsets with equal facts."""
    for (label, value), each in rows.items():
        runs = []
        for opset, rest in sorted(each):
            if runs and runs[-1][2] == rest and runs[-1][1] == opset - 1:
                runs[-1][1] = opset
            else:
                runs.append([opset, opset, rest])
        for first, last, rest in runs:
            yield f"{label}@{first}-{last}\t{value}\t{rest}"


def unfolded(lines):
    rows = {}
    for line in lines:
        label, value, *words = line.split("\t")
        label, _, opsets = label.rpartition("@")
        first, last = map(int, opsets.split("-"))
        facts = facts_of(words)
        for opset in range(first, last + 1):
            rows[label, opset, value] = facts
    return rows


# ---- what may become known

def items(text):
    return text.strip("[]").split(",") if text.startswith("[") or "," in text else [text]


def fits(known, computed):
    """Returns whether what is known is what was computed. Lengths of one letter are one length."""
    if known == "?":
        return True
    a, b = items(known), items(computed)
    bound = {}
    return len(a) == len(b) and all(bound.setdefault(x, y) == y if x.startswith("?") and len(x) > 1 else x in ("?", y) for x, y in zip(a, b))


def learnt(before, now, computed):
    """Returns whether now more is known than before, and it is so."""
    if not computed or not fits(now, computed):
        return False
    a, b = items(before), items(now)
    return before == "?" or (len(a) == len(b) and all(x == y or x.startswith("?") for x, y in zip(a, b)))


def differences(before, now):
    """Returns {what: [sentences]}."""
    said = collections.defaultdict(list)
    for row in {**before, **now}:
        place = "{}@{} {}".format(*row)
        if row not in before or row not in now:
            said["rows that are new" if row not in before else "rows that are gone"].append(place)
            continue
        a, b = before[row], now[row]
        for key in {**a, **b}:
            if key not in a or key not in b:
                said[f"{key}: is new" if key not in a else f"{key}: is gone"].append(place)
            elif a[key] != b[key]:
                (old, computed_then), (new, computed) = a[key], b[key]
                kind = "is computed otherwise" if computed_then != computed else "became known" if learnt(old, new, computed) else "DIFFERS"
                kind = "is told otherwise" if key == "file" or (key == "because" and a["samples"] != b["samples"]) else kind
                said[f"{key}: {kind}"].append(f"{place} ({b['operator'][0]}): {old} -> {new}" + (f", computed {computed}" if computed else ""))
    return said


def allowed(what):
    return what.endswith((": became known", ": is told otherwise", ": is new"))


# ---- how much is known

def known_as(key, known, computed):
    if key == "samples" and known == "mixed" and computed in ("shared", "fails") or computed.startswith("rows") and known in ("shared", "mixed"):
        return "careful"  # rows that are apart by chance, or that the analysis does not see apart
    if not fits(known, computed):
        return "WRONG"
    return "unknown" if known == "?" else "partly" if any(x.startswith("?") for x in items(known)) else "known"


def count(rows):
    counts, by_operator, wrong = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter), collections.defaultdict(list)
    for (label, opset, value), facts in rows.items():
        for key, (known, computed) in facts.items():
            if computed:
                how = known_as(key, known, computed)
                counts[key][how] += 1
                by_operator[key, how][facts["operator"][0]] += 1
                if how == "WRONG":
                    wrong[key].append(f"{label}@{opset} {value} ({facts['operator'][0]}): {known}, computed {computed} {facts.get('because', [''])[0]}")
    for key, count in counts.items():
        print(f"{key:12}" + "".join(f"  {count[how]:7} {how}" for how in ("known", "partly", "unknown", "careful", "WRONG") if count[how]))
    return by_operator, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release", help="a build folder with knowledge_record and the data of the tests")
    parser.add_argument("--out", help="write the record here")
    parser.add_argument("--against", help="a record of an earlier run")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--unknown", metavar="KEY")
    parser.add_argument("--wrong", metavar="KEY")
    given = parser.parse_args()
    os.environ["QK_COMMAND"] = os.path.join(given.release, "tests", "knowledge_record")
    lines = []
    for kind in KINDS:
        if given.only in (None, kind):
            with tempfile.TemporaryDirectory() as folder:
                lines += folded(record(kind, Path(folder)))
    if given.out:
        Path(given.out).write_text("".join(f"{line}\n" for line in lines))
    rows = unfolded(lines)
    print(f"{len(rows)} rows in {len(lines)} lines, {hashlib.sha256(os.linesep.join(lines).encode()).hexdigest()[:16]} over all")
    by_operator, wrong = count(rows)
    if given.unknown:
        for operator, number in by_operator[given.unknown, "unknown"].most_common():
            print(f"{number:7} {operator}")
    if given.wrong:
        print("\n".join(wrong[given.wrong]))
    if given.against:
        before = unfolded(Path(given.against).read_text().splitlines())
        if given.only:
            before = {row: facts for row, facts in before.items() if row[0].startswith(given.only + "/")}
        said = differences(before, rows)
        for what, places in said.items():
            print(f"{len(places):7} {what}" + ("" if allowed(what) and not what.startswith("file") else "".join(f"\n    {p}" for p in places[:20])))
        return int(not all(map(allowed, said)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
