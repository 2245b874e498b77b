# SPDX-License-Identifier: Apache-2.0
"""Writes the stubs of the verbs, whose options come from the command's own table, below those of python/qk/__init__.pyi that stand there by hand:
make_stubs.py [FILE], where FILE is that file if none is named."""

import pathlib
import sys

sys.path.pop(0)  # the package that is installed, not its sources beside this script
from qk import _run  # noqa: E402

STUBS = pathlib.Path(__file__).with_name("qk") / "__init__.pyi"
MARK = "# Verbs, written by python/make_stubs.py.\n"

KINDS = {"flag": "bool", "text": "str | Path | None", "whole": "int | None", "number": "float | None", "list": "str | Path | Sequence[str | Path] | None"}
OWN = {
    "labels": "Any", "vector": "Any", "calibration": "Data", "plan": "Plan | Mapping[str, Any] | Path | None",
    "target": "Mapping[str, Any] | Path | None", "latency_table": "Mapping[str, Any] | Path | None",
    "metric": "str | Sequence[str] | Callable[..., float] | None", "compare": "Mapping[str, Any] | Path | None",
    "activation": "FormatName | None", "weight": "FormatName | None", "bias": "FormatName | None", "kv_cache": "FormatName | None",
    "progress": "Progress", "eval_func": "Callable[..., float] | None", "eval_func_path": "bool", "executor": "Executor | Any",
    "outputs": "bool", "against": "Any", "strict": "bool | str | None", "library": "bool | str | Path | None",
    "budget": "float | str | None",
}
RESULTS = {"search": "SearchResult", "sensitivity": "SensitivityResult", "calibrate": "Calibration"}


def main(file):
    import inspect

    import qk

    text = STUBS.read_text(encoding="utf-8").partition(MARK)[0] + MARK
    for verb in ("quantize", "calibrate", "evaluate", "diff", "sensitivity", "search", "gradient", "finetune"):
        options = _run.options_of(verb)
        parts, keyword = [], False
        for name, p in inspect.signature(getattr(qk, verb)).parameters.items():
            if p.kind is p.KEYWORD_ONLY and not keyword:
                parts.append("*")
                keyword = True
            kind = OWN.get(name) or ("Any" if name in ("model", "data") else KINDS[options[name]["kind"]])
            parts.append(f"{name}: {kind}" + ("" if p.default is p.empty else " = ..."))
        text += f"def {verb}(\n" + "".join(f"    {p},\n" for p in parts) + f") -> {RESULTS.get(verb, 'Result')}: ...\n"
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else STUBS)
