// SPDX-License-Identifier: Apache-2.0
// c + the sum of 16 products of E4M3 numbers, in float32: everything is aligned to the largest exponent and cut to 25 fraction bits, added
// exactly, and the sum is truncated to float32. qk's text for it: groups=16,align=25,round=toward-zero.
// BUG = 1 plants a mistake: numbers are shifted as two's complement, so that negative ones are cut toward minus infinity.
module block_dot #(
    parameter bit BUG = 0
) (
    input  logic clock,
    input  logic [15:0][7:0] a,
    input  logic [15:0][7:0] b,
    input  logic [31:0] c,
    output logic [31:0] d
);
  localparam int FRACTION = 25;

  // value * 2^shift.
  function automatic longint aligned(longint value, int shift);
    if (shift >= 0) return value <<< shift;
    if (shift < -60) shift = -60;
    if (BUG) return value >>> -shift;
    return value < 0 ? -((-value) >>> -shift) : value >>> -shift;
  endfunction

  // Of the leading bit; subnormal numbers have the smallest normal one's, and zero has float32's.
  function automatic int exponent_of(logic [6:0] v);
    if (v == 0) return -126;
    return v[6:3] == 0 ? -6 : int'(v[6:3]) - 7;
  endfunction

  always_ff @(posedge clock) begin
    longint product[16], sum, own, magnitude;
    int exponent[16], top, ec, lead, at, drop;
    logic nan, negative, zeros;
    nan = 0;
    zeros = c == 32'h80000000;
    ec = c[30:0] == 0 ? -126 : c[30:23] == 0 ? -126 : int'(c[30:23]) - 127;
    own = c[30:23] == 0 ? longint'(c[22:0]) : longint'({1'b1, c[22:0]});
    top = ec;
    for (int i = 0; i < 16; i++) begin
      longint x, y;
      x = a[i][6:3] == 0 ? longint'(a[i][2:0]) : longint'({1'b1, a[i][2:0]});
      y = b[i][6:3] == 0 ? longint'(b[i][2:0]) : longint'({1'b1, b[i][2:0]});
      nan |= a[i][6:0] == 7'h7f || b[i][6:0] == 7'h7f;
      product[i] = a[i][7] ^ b[i][7] ? -(x * y) : x * y;
      zeros &= x * y == 0 && (a[i][7] ^ b[i][7]);
      exponent[i] = exponent_of(a[i][6:0]) + exponent_of(b[i][6:0]);
      if (exponent[i] > top) top = exponent[i];
    end
    sum = aligned(c[31] ? -own : own, ec - 23 - (top - FRACTION));
    for (int i = 0; i < 16; i++) sum += aligned(product[i], exponent[i] - 6 - (top - FRACTION));
    negative = sum < 0;
    magnitude = negative ? -sum : sum;
    lead = 0;
    for (int i = 0; i < 63; i++) if (magnitude[i]) lead = i;
    at = lead + top - FRACTION;
    if (at < -126) at = -126;
    drop = at - 23 - (top - FRACTION);
    magnitude = drop > 0 ? magnitude >> drop : magnitude << -drop;
    d <= {negative, 31'(((longint'(at) + 126) << 23) + magnitude)};
    if (sum == 0) d <= {zeros, 31'd0};
    if (c[30:23] == 8'hff) d <= c[22:0] != 0 ? 32'h7fc00000 : c;
    if (nan) d <= 32'h7fc00000;
  end
endmodule
