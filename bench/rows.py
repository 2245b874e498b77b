# SPDX-License-Identifier: Apache-2.0
"""Files of results: JSON with a row a line, so that a measurement changes the lines of its own rows and no others.

    {"machine": "an EPYC", "rates": [["format", "GB/s"], ["mxfp4", 80.1], ["int8", 92.5]]}

is written with a line for the machine, and one for each row of the rates. The first row of a table names its columns; null is a cell that a row lacks.
"""
import json
from pathlib import Path


def table(rows, columns):
    """Dictionaries as a table."""
    left_out = {name for row in rows for name in row} - set(columns)
    if left_out:
        raise ValueError(f"no column for {sorted(left_out)}")
    return [list(columns), *([row.get(name) for name in columns] for row in rows)]


def of(table):
    """A table as dictionaries, without the cells that a row lacks."""
    return [{name: value for name, value in zip(table[0], row) if value is not None} for row in table[1:]]


def text(document):
    def member(value):
        if isinstance(value, list) and value and all(isinstance(row, (list, dict)) for row in value):
            return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n]"
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(name, ensure_ascii=False)}: {member(value)}" for name, value in document.items()) + "\n}\n"


def write(path, document):
    Path(path).write_text(text(document), encoding="utf-8")


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))
