# SPDX-License-Identifier: Apache-2.0
"""qk's scoreboards in Python, over libqk: the classes of include/qk/qk_pkg.sv, for benches in cocotb.

    board = ConverterScoreboard("mxfp8_e4m3")
    x = board.draw()  ...  board.element(code); board.scale(code)  ...
    if board.check() != 0: print(board.verdict())

QK_LIBRARY names the libqk.so to load; without it the system's is loaded. A text that qk does not know raises ValueError with qk's sentence.
"""
import ctypes
import os

qk = ctypes.CDLL(os.environ.get("QK_LIBRARY", "libqk.so.0"))
_pointer, _text, _unsigned, _code, _count = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int64
for name, result, arguments in (
    ("qk_last_error", _text, ()),
    ("qk_scoreboard_new", _pointer, (_text, _text, _count, ctypes.c_double, _count)),
    ("qk_scoreboard_draw", _unsigned, (_pointer,)),
    ("qk_scoreboard_input", None, (_pointer, _unsigned)),
    ("qk_scoreboard_output", None, (_pointer, _unsigned)),
    ("qk_scoreboard_element", None, (_pointer, _unsigned)),
    ("qk_scoreboard_scale", None, (_pointer, _unsigned)),
    ("qk_scoreboard_word", None, (_pointer, _unsigned)),
    ("qk_scoreboard_expected", _unsigned, (_pointer, _count)),
    ("qk_scoreboard_expected_scale", _unsigned, (_pointer, _count)),
    ("qk_scoreboard_matches", ctypes.c_int, (_pointer, _count, _unsigned)),
    ("qk_scoreboard_check", _count, (_pointer,)),
    ("qk_scoreboard_verdict", _text, (_pointer,)),
    ("qk_scoreboard_free", None, (_pointer,)),
    ("qk_dot_scoreboard_new", _pointer, (_text, _text, _text, _count)),
    ("qk_dot_scoreboard_without_c", None, (_pointer,)),
    ("qk_dot_scoreboard_draw", ctypes.c_int, (_pointer,)),
    ("qk_dot_scoreboard_a", _code, (_pointer, ctypes.c_int)),
    ("qk_dot_scoreboard_b", _code, (_pointer, ctypes.c_int)),
    ("qk_dot_scoreboard_scale_a", _code, (_pointer, ctypes.c_int)),
    ("qk_dot_scoreboard_scale_b", _code, (_pointer, ctypes.c_int)),
    ("qk_dot_scoreboard_c", _code, (_pointer,)),
    ("qk_dot_scoreboard_ask", None, (_pointer,)),
    ("qk_dot_scoreboard_put_a", None, (_pointer, ctypes.c_int, _code)),
    ("qk_dot_scoreboard_put_b", None, (_pointer, ctypes.c_int, _code)),
    ("qk_dot_scoreboard_put_scale_a", None, (_pointer, ctypes.c_int, _code)),
    ("qk_dot_scoreboard_put_scale_b", None, (_pointer, ctypes.c_int, _code)),
    ("qk_dot_scoreboard_put_c", None, (_pointer, _code)),
    ("qk_dot_scoreboard_expected", _code, (_pointer,)),
    ("qk_dot_scoreboard_matches", ctypes.c_int, (_pointer, _code)),
    ("qk_dot_scoreboard_answer", None, (_pointer, _code)),
    ("qk_dot_scoreboard_check", _count, (_pointer,)),
    ("qk_dot_scoreboard_verdict", _text, (_pointer,)),
    ("qk_dot_scoreboard_free", None, (_pointer,)),
):
    function = getattr(qk, name)
    function.restype, function.argtypes = result, arguments


class _Board:
    prefix = ""

    def __init__(self, board):
        if not board:
            raise ValueError(qk.qk_last_error().decode())
        self.board = board

    def _call(self, name, *arguments):
        return getattr(qk, self.prefix + name)(self.board, *arguments)

    def _right(self, *arguments):
        right = self._call("matches", *arguments)
        if right < 0:
            raise ValueError(qk.qk_last_error().decode())
        return right == 1

    def check(self):
        """Returns the number of differences, or -1 if nothing can be compared."""
        return self._call("check")

    def verdict(self):
        return self._call("verdict").decode()

    def close(self):
        self._call("free")
        self.board = None


class ConverterScoreboard(_Board):
    """Scoreboard of a converter: float32 in, codes (or float32) out."""

    prefix = "qk_scoreboard_"

    def __init__(self, number_format, semantics="ocp", row=0, scale=1.0, zero_point=0):
        super().__init__(qk.qk_scoreboard_new(number_format.encode(), semantics.encode(), row, scale, zero_point))

    def draw(self):
        """Returns the next input as the bits of a float32, and records it."""
        return self._call("draw")

    def record(self, float_bits):
        self._call("input", float_bits)

    def word(self, bits):
        """Records the random word of the next value, where the semantics rounds stochastically."""
        self._call("word", bits)

    def expected(self, position):
        """Returns the right code of input `position`; the inputs of its whole block must be recorded."""
        return self._code("expected", position)

    def expected_scale(self, block):
        return self._code("expected_scale", block)

    def matches(self, position, code):
        """Is true where `code` is right for input `position`; any NaN is, where NaN is."""
        return self._right(position, code)

    def _code(self, name, at):
        code = self._call(name, at)
        if code == 0xFFFFFFFF:
            raise ValueError(qk.qk_last_error().decode())
        return code

    def element(self, code):
        self._call("element", code)

    def scale(self, code):
        self._call("scale", code)

    def value(self, float_bits):
        self._call("output", float_bits)


class DotScoreboard(_Board):
    """Scoreboard of a unit that multiplies and adds: codes in, codes out."""

    prefix = "qk_dot_scoreboard_"

    def __init__(self, accumulator, a_format="", b_format="", k=32):
        super().__init__(qk.qk_dot_scoreboard_new(accumulator.encode(), a_format.encode(), b_format.encode(), k))

    def without_c(self):
        """Says before the first question that the unit adds no C: C is -0 in every question."""
        self._call("without_c")

    def draw(self):
        """Draws the next question; a(), b(), c(), scale_a() and scale_b() return its codes."""
        if self._call("draw") != 0:
            raise ValueError(qk.qk_last_error().decode())

    def a(self, position):
        return self._call("a", position)

    def b(self, position):
        return self._call("b", position)

    def scale_a(self, block):
        return self._call("scale_a", block)

    def scale_b(self, block):
        return self._call("scale_b", block)

    def c(self):
        return self._call("c")

    def ask(self):
        """Begins a question of the bench's own, in place of draw(): its codes are 0 until they are put."""
        self._call("ask")

    def put_a(self, position, code):
        self._call("put_a", position, code)

    def put_b(self, position, code):
        self._call("put_b", position, code)

    def put_scale_a(self, block, code):
        self._call("put_scale_a", block, code)

    def put_scale_b(self, block, code):
        self._call("put_scale_b", block, code)

    def put_c(self, code):
        self._call("put_c", code)

    def expected(self):
        return self._call("expected")

    def matches(self, d):
        """Is true where the device may give d; any NaN, where NaN is right."""
        return self._right(d)

    def answer(self, d):
        """Records the device's answer d to the question."""
        self._call("answer", d)
