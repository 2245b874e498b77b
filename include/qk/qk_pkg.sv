// SPDX-License-Identifier: Apache-2.0
// qk in SystemVerilog, over DPI-C: scoreboards that compare a device with a number format or an accumulator and name its mistakes.
// Compile this file first and link libqk (pkg-config --libs libqk). examples/hardware has two benches.
//
//   qk_pkg::converter_scoreboard board = new("mxfp8_e4m3");
//   x = board.draw();  ... board.element(code); board.scale(code); ...
//   if (board.check() != 0) $display("%s", board.verdict());
package qk_pkg;

  import "DPI-C" function string qk_version();
  import "DPI-C" function string qk_last_error();

  import "DPI-C" function chandle qk_scoreboard_new(input string format, input string semantics, input longint row, input real scale,
                                                    input longint zero_point);
  import "DPI-C" function int unsigned qk_scoreboard_draw(input chandle board);
  import "DPI-C" function void qk_scoreboard_input(input chandle board, input int unsigned float_bits);
  import "DPI-C" function void qk_scoreboard_output(input chandle board, input int unsigned float_bits);
  import "DPI-C" function void qk_scoreboard_element(input chandle board, input int unsigned code);
  import "DPI-C" function void qk_scoreboard_scale(input chandle board, input int unsigned code);
  import "DPI-C" function void qk_scoreboard_word(input chandle board, input int unsigned word);
  import "DPI-C" function int unsigned qk_scoreboard_expected(input chandle board, input longint position);
  import "DPI-C" function int unsigned qk_scoreboard_expected_scale(input chandle board, input longint block);
  import "DPI-C" function int qk_scoreboard_matches(input chandle board, input longint position, input int unsigned code);
  import "DPI-C" function longint qk_scoreboard_check(input chandle board);
  import "DPI-C" function string qk_scoreboard_verdict(input chandle board);
  import "DPI-C" function void qk_scoreboard_free(input chandle board);

  import "DPI-C" function chandle qk_dot_scoreboard_new(input string accumulator, input string a_format, input string b_format,
                                                        input longint k);
  import "DPI-C" function void qk_dot_scoreboard_without_c(input chandle board);
  import "DPI-C" function int qk_dot_scoreboard_draw(input chandle board);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_a(input chandle board, input int position);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_b(input chandle board, input int position);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_scale_a(input chandle board, input int block);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_scale_b(input chandle board, input int block);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_c(input chandle board);
  import "DPI-C" function void qk_dot_scoreboard_ask(input chandle board);
  import "DPI-C" function void qk_dot_scoreboard_put_a(input chandle board, input int position, input longint unsigned code);
  import "DPI-C" function void qk_dot_scoreboard_put_b(input chandle board, input int position, input longint unsigned code);
  import "DPI-C" function void qk_dot_scoreboard_put_scale_a(input chandle board, input int block, input longint unsigned code);
  import "DPI-C" function void qk_dot_scoreboard_put_scale_b(input chandle board, input int block, input longint unsigned code);
  import "DPI-C" function void qk_dot_scoreboard_put_c(input chandle board, input longint unsigned code);
  import "DPI-C" function longint unsigned qk_dot_scoreboard_expected(input chandle board);
  import "DPI-C" function int qk_dot_scoreboard_matches(input chandle board, input longint unsigned d);
  import "DPI-C" function void qk_dot_scoreboard_answer(input chandle board, input longint unsigned d);
  import "DPI-C" function longint qk_dot_scoreboard_check(input chandle board);
  import "DPI-C" function string qk_dot_scoreboard_verdict(input chandle board);
  import "DPI-C" function void qk_dot_scoreboard_free(input chandle board);

  // A converter: float32 in, codes (or float32) out. A wrong text stops the simulation with the sentence that says why.
  class converter_scoreboard;
    chandle board;

    function new(string format, string semantics = "ocp", longint row = 0, real scale = 1.0, longint zero_point = 0);
      board = qk_scoreboard_new(format, semantics, row, scale, zero_point);
      if (board == null) $fatal(1, "%s", qk_last_error());
    endfunction
    // The next input, as float32's bits; it is recorded.
    function int unsigned draw();
      return qk_scoreboard_draw(board);
    endfunction
    function void record(int unsigned float_bits);
      qk_scoreboard_input(board, float_bits);
    endfunction
    function void element(int unsigned code);
      qk_scoreboard_element(board, code);
    endfunction
    function void scale(int unsigned code);
      qk_scoreboard_scale(board, code);
    endfunction
    function void value(int unsigned float_bits);
      qk_scoreboard_output(board, float_bits);
    endfunction
    // The random word of the next value, where the semantics rounds stochastically.
    function void word(int unsigned bits);
      qk_scoreboard_word(board, bits);
    endfunction
    // The right code of input `position`, and of a block's scale, counted from 0; the inputs of its whole block must be recorded.
    function int unsigned expected(longint position);
      return qk_scoreboard_expected(board, position);
    endfunction
    function int unsigned expected_scale(longint block);
      return qk_scoreboard_expected_scale(board, block);
    endfunction
    // Is 1 where `code` is right for input `position`; any NaN is, where NaN is. (`matches` is a word of the language.)
    function bit accepts(longint position, int unsigned code);
      automatic int right = qk_scoreboard_matches(board, position, code);
      if (right < 0) $fatal(1, "%s", qk_last_error());
      return right == 1;
    endfunction
    // Differences, or -1 where nothing can be compared.
    function longint check();
      return qk_scoreboard_check(board);
    endfunction
    function string verdict();
      return qk_scoreboard_verdict(board);
    endfunction
    function void close();
      qk_scoreboard_free(board);
      board = null;
    endfunction
  endclass

  // A unit that multiplies and adds: codes in, codes out.
  class dot_scoreboard;
    chandle board;

    function new(string accumulator, string a_format = "", string b_format = "", longint k = 32);
      board = qk_dot_scoreboard_new(accumulator, a_format, b_format, k);
      if (board == null) $fatal(1, "%s", qk_last_error());
    endfunction
    // For a unit that adds no C, before the first question: C is -0 in all of them.
    function void without_c();
      qk_dot_scoreboard_without_c(board);
    endfunction
    // Makes the next question; a, b, c and scales are its codes.
    function void draw();
      if (qk_dot_scoreboard_draw(board) != 0) $fatal(1, "%s", qk_last_error());
    endfunction
    function longint unsigned a(int position);
      return qk_dot_scoreboard_a(board, position);
    endfunction
    function longint unsigned b(int position);
      return qk_dot_scoreboard_b(board, position);
    endfunction
    function longint unsigned scale_a(int block);
      return qk_dot_scoreboard_scale_a(board, block);
    endfunction
    function longint unsigned scale_b(int block);
      return qk_dot_scoreboard_scale_b(board, block);
    endfunction
    function longint unsigned c();
      return qk_dot_scoreboard_c(board);
    endfunction
    // Begins a question of the bench's own, in place of draw: its codes are 0 until they are put.
    function void ask();
      qk_dot_scoreboard_ask(board);
    endfunction
    function void put_a(int position, longint unsigned code);
      qk_dot_scoreboard_put_a(board, position, code);
    endfunction
    function void put_b(int position, longint unsigned code);
      qk_dot_scoreboard_put_b(board, position, code);
    endfunction
    function void put_scale_a(int block, longint unsigned code);
      qk_dot_scoreboard_put_scale_a(board, block, code);
    endfunction
    function void put_scale_b(int block, longint unsigned code);
      qk_dot_scoreboard_put_scale_b(board, block, code);
    endfunction
    function void put_c(longint unsigned code);
      qk_dot_scoreboard_put_c(board, code);
    endfunction
    function longint unsigned expected();
      return qk_dot_scoreboard_expected(board);
    endfunction
    // Is 1 where the device may give d; any NaN, where NaN is right.
    function bit accepts(longint unsigned d);
      return qk_dot_scoreboard_matches(board, d) == 1;
    endfunction
    // What the device gave; the question is recorded with it.
    function void answer(longint unsigned d);
      qk_dot_scoreboard_answer(board, d);
    endfunction
    function longint check();
      return qk_dot_scoreboard_check(board);
    endfunction
    function string verdict();
      return qk_dot_scoreboard_verdict(board);
    endfunction
    function void close();
      qk_dot_scoreboard_free(board);
      board = null;
    endfunction
  endclass

endpackage
