// SPDX-License-Identifier: Apache-2.0
// Two dot-product units, one of them with a mistake, against qk's scoreboard.
module dot_bench;
  import qk_pkg::*;
  logic clock = 0;
  initial forever #1 clock = !clock;

  logic [15:0][7:0] a, b;
  logic [31:0] c;
  logic [1:0][31:0] d;
  block_dot #(.BUG(0)) good (.clock(clock), .a(a), .b(b), .c(c), .d(d[0]));
  block_dot #(.BUG(1)) bad (.clock(clock), .a(a), .b(b), .c(c), .d(d[1]));

  initial begin
    automatic string unit = "groups=16,align=25,round=toward-zero";
    automatic dot_scoreboard right = new(unit, "fp8_e4m3fn", "fp8_e4m3fn", 16);
    automatic dot_scoreboard wrong = new(unit, "fp8_e4m3fn", "fp8_e4m3fn", 16);
    for (int question = 0; question < 1152; question++) begin
      right.draw();
      wrong.draw();  // the same questions
      for (int i = 0; i < 16; i++) begin
        a[i] = 8'(right.a(i));
        b[i] = 8'(right.b(i));
      end
      c = 32'(right.c());
      @(negedge clock);
      right.answer(64'(d[0]));
      wrong.answer(64'(d[1]));
    end
    // A question of the bench's own: 1 times 2 in each place, and 0.5.
    right.ask();
    for (int i = 0; i < 16; i++) begin
      a[i] = 8'h38;
      b[i] = 8'h40;
      right.put_a(i, 64'(a[i]));
      right.put_b(i, 64'(b[i]));
    end
    c = 32'h3f000000;
    right.put_c(64'(c));
    @(negedge clock);
    right.answer(64'(d[0]));
    $display("its own question: %h, expected %h, %s", d[0], 32'(right.expected()), right.accepts(64'(d[0])) ? "right" : "wrong");
    $display("the unit: %0d differences", right.check());
    $display("the unit with a mistake: %0d differences\n%s", wrong.check(), wrong.verdict());
    right.close();
    wrong.close();
    $finish;
  end
endmodule
