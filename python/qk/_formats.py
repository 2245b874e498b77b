# SPDX-License-Identifier: Apache-2.0
"""Formats as objects: their facts, and a drawing of their numbers."""

import html

import numpy as np

from . import _qk
from ._arrays import _spec, fake_quantize


class Format:
    """A number format. Its facts are attributes: bits_per_value, largest, lowest, smallest_normal, smallest_subnormal, infinity, nan,
    negative_zero, block_size, family, source. It is given wherever a format's name is."""

    __slots__ = ("name", "_facts")

    def __init__(self, name):
        spec = _spec(name)
        self.name, self._facts = spec.text, spec.facts

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._facts[name]
        except KeyError:
            raise AttributeError(f"a format has no {name!r}; it has {', '.join(self._facts)}") from None

    def __dir__(self):
        return sorted({*object.__dir__(self), *self._facts})

    def to_dict(self):
        return dict(self._facts)

    def values(self, most=4096):
        """Returns the numbers of the format, ascending: of a block format those of a block whose scale is 1 or, where blocks share an
        exponent, whose largest number is the largest of exponent 0. At most `most` of them around 0, evenly cut."""
        size = self.block_size or 1
        top = self._top()
        low = float(self.lowest) if self.family in ("integer", "table") else -top
        grid = np.linspace(low, top, 1 << 15, dtype=np.float32)
        tiny = np.geomspace(top * 2.0**-40, top, 1 << 12).astype(np.float32)
        grid = np.concatenate([grid, tiny, -tiny])
        if size > 1:  # each block gets the largest number, which fixes its scale
            blocks = np.full((-(-grid.size // (size - 1)), size), top, np.float32)
            rest = np.resize(grid, (blocks.shape[0], size - 1))
            blocks[:, 1:] = rest
            found = np.unique(fake_quantize(blocks, self.name))
        else:
            found = np.unique(fake_quantize(grid, self.name))
        found = found[np.isfinite(found)] + np.float32(0)  # one zero, without a sign
        return found if found.size <= most else found[np.linspace(0, found.size - 1, most).astype(int)]

    def _top(self):
        if self.family in ("integer", "table"):
            return float(self.largest)
        if self.family == "floating":
            return float(min(self.largest, 3e38))
        found = fake_quantize(np.full(self.block_size, 1.0, np.float32), self.name)  # a block of ones: an element's place in it
        if self.family == "microscaling":
            for top in (448.0, 240.0, 57344.0, 28.0, 7.5, 6.0, 2.0, 1.0):  # the largest element that a scale of 1 carries
                block = np.zeros(self.block_size, np.float32)
                block[0], block[1] = top, top / 2
                if fake_quantize(block, self.name)[0] == top:
                    return top
        return float(found[0])

    def _svg(self, width=640, height=46):
        values = self.values(600)
        if values.size == 0:
            return ""
        top = float(np.max(np.abs(values))) or 1.0
        place = lambda v: 12 + (v / top + 1) / 2 * (width - 24)  # noqa: E731
        lines = "".join(f'<line x1="{place(v):.1f}" x2="{place(v):.1f}" y1="6" y2="26"/>' for v in values)
        low, high = float(values[0]), float(values[-1])
        ends = [(low, "start" if place(low) < 40 else "middle"), (high, "end" if place(high) > width - 40 else "middle")]
        if min(abs(place(0.0) - place(v)) for v in (low, high)) > 60:  # the three do not meet
            ends.append((0.0, "middle"))
        texts = "".join(
            f'<text x="{place(v) + {"start": -11, "end": 11}.get(anchor, 0):.1f}" y="42" font-size="11" text-anchor="{anchor}">{v:.4g}</text>'
            for v, anchor in ends
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"><g stroke="#2b6cb0" stroke-width="1">{lines}</g>'
            f'<line x1="12" x2="{width - 12}" y1="26" y2="26" stroke="#718096"/><g fill="#2d3748">{texts}</g></svg>'
        )

    def _repr_html_(self):
        rows = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(f'{v:.6g}' if isinstance(v, float) else str(v))}</td></tr>"
                       for k, v in self._facts.items() if k != "name")
        return f"<div><b>{html.escape(self.name)}</b><br>{self._svg()}<table>{rows}</table></div>"

    def __repr__(self):
        return f"<qk.Format {self.name}: {self.bits_per_value:.6g} bits, {self.lowest:.6g} to {self.largest:.6g}>"

    def __str__(self):
        return self.name

    def __eq__(self, other):
        return isinstance(other, Format) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __reduce__(self):
        return (Format, (self.name,))


def format(name):
    """Returns a format by its name or textual form, as "mxfp4" or "bfp:block=16,exponent=8,mantissa=5"."""
    return name if isinstance(name, Format) else Format(name)


def formats():
    """Returns the catalogue of formats."""
    return [Format(name) for name in _qk.catalogue()]


def semantics():
    """Returns the names of semantics: whose choices are taken where a format leaves them open."""
    return _qk.semantics_names()


def roundings():
    """Returns the names of roundings."""
    return _qk.rounding_names()
