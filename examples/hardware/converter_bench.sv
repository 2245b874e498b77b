// SPDX-License-Identifier: Apache-2.0
// Two converters, one of them with a mistake, against qk's scoreboard.
module converter_bench;
  import qk_pkg::*;
  logic clock = 0;
  initial forever #1 clock = !clock;

  logic [31:0][31:0] x;
  logic [1:0][7:0] scale;
  logic [31:0][7:0] element0, element1;
  mx_converter #(.BUG(0)) good (.clock(clock), .x(x), .scale(scale[0]), .element(element0));
  mx_converter #(.BUG(1)) bad (.clock(clock), .x(x), .scale(scale[1]), .element(element1));

  initial begin
    automatic converter_scoreboard right = new("mxfp8_e4m3");
    automatic converter_scoreboard wrong = new("mxfp8_e4m3");
    for (int block = 0; block < 512; block++) begin
      for (int i = 0; i < 32; i++) begin
        x[i] = right.draw();
        wrong.record(x[i]);
      end
      @(negedge clock);
      right.scale(32'(scale[0]));
      wrong.scale(32'(scale[1]));
      for (int i = 0; i < 32; i++) begin
        right.element(32'(element0[i]));
        wrong.element(32'(element1[i]));
      end
    end
    $display("the converter: %0d differences", right.check());
    $display("the converter with a mistake: %0d differences\n%s", wrong.check(), wrong.verdict());
    right.close();
    wrong.close();
    $finish;
  end
endmodule
