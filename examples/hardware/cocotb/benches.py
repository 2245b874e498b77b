# SPDX-License-Identifier: Apache-2.0
"""The two benches of the folder above in Python: check each device, with its mistake (BUG=1) and without, against qk's scoreboard."""
import os

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from qk_scoreboard import ConverterScoreboard, DotScoreboard

has_mistake = os.environ.get("BUG") == "1"


def word(lanes, bits):
    """Packs lanes into an integer as SystemVerilog packs an array, with lane 0 in the lowest bits."""
    return sum(lane << (i * bits) for i, lane in enumerate(lanes))


def judge(board, cause):
    differences, verdict = board.check(), board.verdict()
    board.close()
    cocotb.log.info("%d differences\n%s", differences, verdict)
    if not has_mistake:
        assert differences == 0, verdict
        return
    assert differences > 0
    assert cause in verdict, f"not named: {cause}\n{verdict}"


@cocotb.test(skip=os.environ.get("DEVICE") != "mx_converter")
async def converter(dut):
    cocotb.start_soon(Clock(dut.clock, 2, "step").start())
    board = ConverterScoreboard("mxfp8_e4m3")
    for _ in range(256):
        dut.x.value = word([board.draw() for _ in range(32)], 32)
        await FallingEdge(dut.clock)
        await FallingEdge(dut.clock)
        board.scale(int(dut.scale.value))
        elements = int(dut.element.value)
        for i in range(32):
            board.element(elements >> (8 * i) & 0xFF)
    judge(board, "likely cause: sticky bits dropped")


@cocotb.test(skip=os.environ.get("DEVICE") != "block_dot")
async def dot_product(dut):
    cocotb.start_soon(Clock(dut.clock, 2, "step").start())
    board = DotScoreboard("groups=16,align=25,round=toward-zero", "fp8_e4m3fn", "fp8_e4m3fn", 16)
    for _ in range(1152):
        board.draw()
        dut.a.value = word([board.a(i) for i in range(16)], 8)
        dut.b.value = word([board.b(i) for i in range(16)], 8)
        dut.c.value = board.c()
        await FallingEdge(dut.clock)
        await FallingEdge(dut.clock)
        board.answer(int(dut.d.value))
    judge(board, "likely cause: cut=down where toward-zero is expected")
