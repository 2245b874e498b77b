// SPDX-License-Identifier: Apache-2.0
// 32 float32 numbers into a block of MXFP8 (E4M3): one shared exponent, 32 elements of 8 bits (OCP Microscaling v1.0, section 6.3).
// BUG = 1 plants a mistake: what lies behind the bit that decides a rounding (the sticky bits) is dropped.
module mx_converter #(
    parameter bit BUG = 0
) (
    input  logic clock,
    input  logic [31:0][31:0] x,
    output logic [7:0] scale,
    output logic [31:0][7:0] element
);
  // floor(log2 |x|) of a finite number other than 0; subnormal ones count.
  function automatic int exponent_of(logic [31:0] v);
    int e;
    if (v[30:23] != 0) return int'(v[30:23]) - 127;
    e = -127;
    for (int i = 22; i >= 0; i--) begin
      if (v[i]) return e;
      e--;
    end
    return e;
  endfunction

  // |v| / 2^shared, to nearest, ties to even.
  function automatic logic [7:0] element_of(logic [31:0] v, int shared);
    logic [63:0] significand, kept, rest, half;
    int own, shift;
    if (v[30:0] == 0) return {v[31], 7'd0};
    own = exponent_of(v);
    significand = v[30:23] != 0 ? {40'd0, 1'b1, v[22:0]} : {41'd0, v[22:0]} << (-126 - own);
    own = own - shared;
    shift = 20 + (own < -6 ? -6 - own : 0);  // down to 3 fraction bits; subnormal elements have fewer
    if (shift > 40) shift = 40;
    kept = significand >> shift;
    half = 64'd1 << (shift - 1);
    rest = significand & ((64'd1 << shift) - 1);
    if (BUG) rest &= half;
    if (rest > half || (rest == half && kept[0])) kept++;
    if (own >= -6) kept += (64'(own) + 6) << 3;  // the hidden bit raises the field by one
    if (kept > 64'h7e) kept = 64'h7e;  // 448
    return {v[31], kept[6:0]};
  endfunction

  always_ff @(posedge clock) begin
    logic special;
    int largest, shared;
    special = 0;
    largest = -200;
    for (int i = 0; i < 32; i++) begin
      if (x[i][30:23] == 8'hff) special = 1;
      else if (x[i][30:0] != 0 && exponent_of(x[i]) > largest) largest = exponent_of(x[i]);
    end
    shared = largest - 8;
    if (shared < -127) shared = -127;
    scale <= special ? 8'hff : 8'(shared + 127);
    for (int i = 0; i < 32; i++) element[i] <= special ? 8'd0 : element_of(x[i], shared);
  end
endmodule
