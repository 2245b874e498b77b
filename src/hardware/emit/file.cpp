// SPDX-License-Identifier: Apache-2.0
// A file: its first comment, the functions, and around them a program that checks lines, or a module that compares a device.
#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "elements.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"

namespace qk::emit {
namespace {

std::string decimal(double v) {
    char text[40];
    return {text, std::to_chars(text, text + sizeof text, v).ptr};
}
std::string hex(std::uint64_t v) {
    char text[20];
    return {text, std::to_chars(text, text + sizeof text, v, 16).ptr};
}
std::string replaced(std::string s, const std::vector<std::pair<std::string, std::string>>& words) {
    for (const auto& [from, to] : words) {
        for (std::size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
    }
    return s;
}

const char* word_of(overflow_rule r) {
    switch (r) {
        case overflow_rule::by_width: return "saturates in 8 bits or fewer, else Inf";
        case overflow_rule::saturate: return "saturate";
        case overflow_rule::ieee: return "ieee";
        case overflow_rule::fn_saturates: return "ieee, fn formats saturate";
        case overflow_rule::propagate: return "propagate";
    }
    return "";
}

std::string facts_of(const converter& c) {
    const format_facts f = facts(c.format);
    std::string s = std::string(to_text(c.format).view()) + ": largest " + decimal(f.largest) + ", lowest " + decimal(f.lowest) +
                    ", smallest normal " + decimal(f.smallest_normal) + ", smallest " + decimal(f.smallest) + (f.infinity ? ", Inf" : "") +
                    (f.nan ? ", NaN" : "") + (f.negative_zero ? ", -0" : "");
    if (std::holds_alternative<integer>(c.format))
        s += "; scale 2^" + std::to_string(c.scale_exponent) + ", zero point " + std::to_string(c.zero_point);
    return s;
}
std::string semantics_of(const converter& c) {
    if (c.decode) return "decoder to float32";
    std::string s = "rounding " + std::string(to_text(c.how.rounding));
    if (is_stochastic(c.how.rounding)) s += " by " + std::to_string(c.how.stochastic_bits) + " random bits";
    s += ", overflow: " + std::string(word_of(c.how.overflow));
    if (c.how.flush_inputs) s += ", subnormal float32 inputs are zero";
    if (c.how.flush_outputs) s += ", subnormal results are zero";
    return s;
}

std::string first_comment(const file_request& r, const char* mark) {
    std::string s;
    for (const std::string& line : {r.command + "            qk " + r.version, facts_of(r.what), semantics_of(r.what),
                                    "SHA-256 of its golden vectors (lines of qk gen with results): " + r.digest})
        s += std::string(mark) + " " + line + "\n";
    return s;
}

/// What a program needs to know of the functions.
struct shape {
    std::string golden;  ///< the function that is checked
    int operand_bits = 0, result_bits = 0, random_bits = 0;
    std::uint64_t seed = 0;
};
shape shape_of(const std::vector<function>& all, const converter& c) {
    const function& f = all.front();
    shape s{f.name, f.inputs[0].width(), f.result.width(), 0, c.how.seed};
    if (f.inputs.size() > 1) s.random_bits = f.inputs[1].width();
    return s;
}
std::vector<std::pair<std::string, std::string>> words_of(const file_request& r, const shape& s) {
    const auto number = [](int n) { return std::to_string(n); };
    return {{"@NAME", r.what.name},
            {"@GOLDEN", s.golden},
            {"@COUNT", number(static_cast<int>(r.examples.size()))},
            {"@TWICE", number(2 * static_cast<int>(r.examples.size()))},
            {"@IN_TOP", number(s.operand_bits - 1)},
            {"@OUT_TOP", number(s.result_bits - 1)},
            {"@IN_DIGITS", number((s.operand_bits + 3) / 4)},
            {"@OUT_DIGITS", number((s.result_bits + 3) / 4)},
            {"@RANDOM_BITS", number(s.random_bits)},
            {"@RANDOM_TOP", number(s.random_bits - 1)},
            {"@DROPPED", number(32 - s.random_bits)}};
}

// C.

const char* const random_c = R"(
/* The random bits of the case with that index, as `qk gen` counts them. */
static uint32_t mix(uint32_t v)
{
    v = (v ^ (v >> 16)) * 0x7feb352du;
    v = (v ^ (v >> 15)) * 0x846ca68bu;
    return v ^ (v >> 16);
}
static uint32_t random_word(uint64_t index)
{
    const uint32_t low = mix(@SEED_LOWu + 0x9e3779b9u);
    return mix((uint32_t)index ^ mix((uint32_t)(index >> 32) + mix(@SEED_HIGHu ^ low)));
}
)";
const char* const main_c = R"(
static int same(uint32_t a, uint32_t b)
{
    return a == b || (@NAME_is_nan(a) && @NAME_is_nan(b));
}

static const uint32_t examples[@COUNT][2] = {@EXAMPLES};

/* Reads up to three hexadecimal words of a line; returns how many, or -1 where one is none. */
static int words_in(const char *line, uint32_t *word)
{
    int n = 0, digits = 0;
    for (; ; ++line) {
        const char c = *line;
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (value >= 0) {
            if (digits == 0 && n++ == 3) return 3;
            if (++digits > 8) return -1;
            word[n - 1] = (digits == 1 ? 0u : word[n - 1] << 4) | (uint32_t)value;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0') {
            digits = 0;
            if (c == '\n' || c == '\0') return n;
        } else {
            return -1;
        }
    }
}

/* Writes where codes change over all words of the input, as a Verilog function: yosys compares it with the SystemVerilog file. */
static void write_intervals(uint64_t from, uint64_t to, int every)
{
    uint64_t at = from;
    while (at <= to) {
        const uint32_t code = @GOLDEN((uint32_t)at);
        uint64_t low = at, high = to + 1;  /* the code is another one at `high` */
        if (every) {
            while (low + 1 < high && @GOLDEN((uint32_t)(low + 1)) == code) ++low;
        } else if (@GOLDEN((uint32_t)to) != code) {
            high = to;
            while (high - low > 1) {
                const uint64_t middle = low + (high - low) / 2;
                if (@GOLDEN((uint32_t)middle) == code) low = middle; else high = middle;
            }
        } else {
            low = to;
        }
        printf("    else if (x <= 32'h%08x) table_code = 32'h%08x;\n", (unsigned)low, (unsigned)code);
        at = low + 1;
    }
}

int main(int argc, char **argv)
{
    char line[4096];
    uint32_t word[3];
    unsigned long cases = 0, differ = 0, number = 0;
    int k;
    if (argc == 2 && (strcmp(argv[1], "--intervals") == 0 || strcmp(argv[1], "--every-interval") == 0)) {
        const int every = strcmp(argv[1], "--every-interval") == 0;
        printf("function automatic [31:0] table_code(input [31:0] x);\n    if (1'b0) table_code = 32'd0;\n");
@REGIONS        printf("    else table_code = 32'd0;\nendfunction\n");
        return 0;
    }
    for (k = 0; k < @COUNT; ++k) {
        const uint32_t y = @EVALUATE_EXAMPLE;
        if (!same(y, examples[k][1])) {
            fprintf(stderr, "self-test: %0@IN_DIGITSx gives %0@OUT_DIGITSx, right is %0@OUT_DIGITSx\n", (unsigned)examples[k][0], (unsigned)y, (unsigned)examples[k][1]);
            return 1;
        }
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        const int n = words_in(line, word);
        ++number;
        if (n == 0) continue;
        if (n < 0 || n > 2 || (word[0] & ~@IN_MASK) != 0u) {
            fprintf(stderr, "line %lu is no operand of @IN_BITS bits with or without its result\n", number);
            return 2;
        }
        {
            const uint32_t y = @EVALUATE_WORD;
            if (n == 1) {
                printf("%0@IN_DIGITSx %0@OUT_DIGITSx\n", (unsigned)word[0], (unsigned)y);
            } else if (!same(word[1], y)) {
                if (++differ <= 20) printf("line %lu: %0@IN_DIGITSx gave %0@OUT_DIGITSx, right is %0@OUT_DIGITSx\n", number, (unsigned)word[0], (unsigned)word[1], (unsigned)y);
            }
            cases += n == 2;
            ++index_of_case;
        }
    }
    if (ferror(stdin) || fflush(stdout) != 0) return 2;
    fprintf(stderr, "%d cases of its own, 0 differ\n", @COUNT);
    if (cases != 0) printf("%lu cases, %lu differ\n", cases, differ);
    return differ != 0;
}
)";

std::string examples_c(const file_request& r, const char* before, const char* after, const char* open, const char* close) {
    std::string s;
    for (std::size_t k = 0; k < r.examples.size(); ++k) {
        const auto& e = r.examples[k];
        s += (k % 4 == 0 ? "\n    " : " ") + std::string(open) + before + hex(e.operands[0]) + after + ", " + before + hex(e.results[0]) +
             after + close + (k + 1 < r.examples.size() ? "," : "");
    }
    return s;
}

std::string functions_in(const std::vector<function>& all, std::string (*print)(const function&), const char* between) {
    std::string s;
    for (const function& f : all) s += (s.empty() ? "" : between) + print(f);
    return s;
}

/// Where a converter's codes follow the numbers: finite ones, Inf and NaN of each sign; a decoder's words have no such order.
std::string regions(const converter& c) {
    const int width = bits(c.input);
    const std::uint64_t half = std::uint64_t{1} << (width - 1), infinity = infinity_magnitude(c.input);
    std::string s;
    for (const std::uint64_t sign : {std::uint64_t{0}, half}) {
        const std::uint64_t ends[] = {0, infinity, infinity + 1, half};
        for (std::size_t k = 0; k < 3; ++k)
            s += "        write_intervals(UINT64_C(0x" + hex(sign + ends[k]) + "), UINT64_C(0x" + hex(sign + ends[k + 1] - 1) +
                 "), every);\n";
    }
    return s;
}

std::string check_in_c(const file_request& r, const std::vector<function>& all) {
    const shape s = shape_of(all, r.what);
    std::string text = s.random_bits > 0 ? random_c : "";
    text += "\nstatic uint64_t index_of_case;\n";
    std::string main = main_c;
    if (r.what.decode || s.random_bits > 0) {  // no table of intervals
        const std::size_t from = main.find("Writes where codes") - 3, to = main.find("int main(");
        main.erase(from, to - from);
        const std::size_t begin = main.find("    if (argc == 2 &&"), end = main.find("    for (k = 0");
        main.replace(begin, end - begin, "    (void)argc;\n    (void)argv;\n");
    }
    const std::string random = s.random_bits > 0 ? ", random_word(@INDEX) >> @DROPPED" : "";
    auto words = words_of(r, s);
    words.insert(words.begin(), {{"@EXAMPLES", examples_c(r, "0x", "u", "{", "}")},
                                 {"@REGIONS", regions(r.what)},
                                 {"@EVALUATE_EXAMPLE", "@GOLDEN(examples[k][0]" + replaced(random, {{"@INDEX", "example_index[k]"}}) + ")"},
                                 {"@EVALUATE_WORD", "@GOLDEN(word[0]" + replaced(random, {{"@INDEX", "index_of_case"}}) + ")"},
                                 {"@SEED_LOW", std::to_string(static_cast<std::uint32_t>(s.seed))},
                                 {"@SEED_HIGH", std::to_string(static_cast<std::uint32_t>(s.seed >> 32))},
                                 {"@IN_MASK", "0x" + hex(ones(s.operand_bits)) + "u"},
                                 {"@IN_BITS", std::to_string(s.operand_bits)}});
    if (s.random_bits > 0) {
        std::string indices;
        for (const example& e : r.examples) indices += (indices.empty() ? "" : ", ") + std::to_string(e.index) + "u";
        text += "static const uint32_t example_index[@COUNT] = {" + indices + "};\n";
    }
    return replaced(text + main, words);
}

// Python.

const char* const random_python = R"(
def mix(v):
    v = ((v ^ (v >> 16)) * 0x7feb352d) & 0xffffffff
    v = ((v ^ (v >> 15)) * 0x846ca68b) & 0xffffffff
    return v ^ (v >> 16)


def random_word(index):
    """The random bits of the case with that index, as `qk gen` counts them."""
    low = mix((@SEED_LOW + 0x9e3779b9) & 0xffffffff)
    return mix((index & 0xffffffff) ^ mix(((index >> 32) + mix(@SEED_HIGH ^ low)) & 0xffffffff))

)";
const char* const main_python = R"(
EXAMPLES = (@EXAMPLES)


def same(a, b):
    return a == b or (@NAME_is_nan(a) and @NAME_is_nan(b))


def main():
    for index, x, right in EXAMPLES:
        y = @EVALUATE_INDEX
        if not same(y, right):
            print("self-test: %0@IN_DIGITSx gives %0@OUT_DIGITSx, right is %0@OUT_DIGITSx" % (x, y, right))
            return 1
    cases = differ = number = index = 0
    while True:
        try:
            line = input()
        except EOFError:
            break
        number += 1
        try:
            words = [int(w, 16) for w in line.split()]
        except ValueError:
            words = []
        if not line.strip():
            continue
        if len(words) not in (1, 2) or words[0] >> @IN_BITS:
            print("line %d is no operand of @IN_BITS bits with or without its result" % number)
            return 2
        x = words[0]
        y = @EVALUATE_INDEX
        index += 1
        if len(words) == 1:
            print("%0@IN_DIGITSx %0@OUT_DIGITSx" % (x, y))
            continue
        cases += 1
        if not same(words[1], y):
            differ += 1
            if differ <= 20:
                print("line %d: %0@IN_DIGITSx gave %0@OUT_DIGITSx, right is %0@OUT_DIGITSx" % (number, x, words[1], y))
    if cases:
        print("%d cases, %d differ" % (cases, differ))
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
)";

std::string check_in_python(const file_request& r, const std::vector<function>& all) {
    const shape s = shape_of(all, r.what);
    std::string examples;
    for (std::size_t k = 0; k < r.examples.size(); ++k)
        examples += (k % 4 == 0 ? "\n    (" : " (") + std::to_string(r.examples[k].index) + ", 0x" + hex(r.examples[k].operands[0]) +
                    ", 0x" + hex(r.examples[k].results[0]) + "),";
    auto words = words_of(r, s);
    words.insert(words.begin(), {{"@EXAMPLES", examples},
                                 {"@EVALUATE_INDEX", s.random_bits > 0 ? "@GOLDEN(x, random_word(index) >> @DROPPED)" : "@GOLDEN(x)"},
                                 {"@SEED_LOW", std::to_string(static_cast<std::uint32_t>(s.seed))},
                                 {"@SEED_HIGH", std::to_string(static_cast<std::uint32_t>(s.seed >> 32))},
                                 {"@IN_BITS", std::to_string(s.operand_bits)}});
    return replaced((s.random_bits > 0 ? std::string("\n") + random_python : "\n") + main_python, words);
}

// SystemVerilog.

const char* const check_sv = R"(
// Checks CASES, lines of an operand and its result as `qk gen` and a device write them; without a file, cases of its own alone. It ends
// with $finish where nothing differs, else with $fatal.
// verilator lint_off DECLFILENAME
module @NAME_check;
// verilator lint_on DECLFILENAME
  parameter string CASES = "";
  parameter int COUNT = 0;  // lines of the file
  localparam logic [31:0] EXAMPLES [@TWICE] = '{@EXAMPLES};  // an operand, then its result
  logic [31:0] words [0:(COUNT > 0 ? 2 * COUNT - 1 : 0)];
  int differ = 0;

  function automatic logic same(input logic [@OUT_TOP:0] a, input logic [@OUT_TOP:0] b);
    same = a == b || (@NAME_is_nan(a) && @NAME_is_nan(b));
  endfunction
  task automatic judge(input logic [@IN_TOP:0] x, input logic [@OUT_TOP:0] result);
    if (!same(@GOLDEN(x), result)) begin
      differ = differ + 1;
      if (differ <= 20) $display("%h gave %h, right is %h", x, result, @GOLDEN(x));
    end
  endtask

  initial begin
    for (int k = 0; k < @COUNT; k = k + 1) judge(EXAMPLES[2 * k][@IN_TOP:0], EXAMPLES[2 * k + 1][@OUT_TOP:0]);
    if (COUNT > 0) begin
      $readmemh(CASES, words);
      for (int k = 0; k < COUNT; k = k + 1) judge(words[2 * k][@IN_TOP:0], words[2 * k + 1][@OUT_TOP:0]);
    end
    $display("%0d cases, %0d differ", @COUNT + COUNT, differ);
    if (differ > 0) $fatal(1, "the device differs");
    $finish;
  end
endmodule
)";

std::string check_in_sv(const file_request& r, const std::vector<function>& all) {
    const shape s = shape_of(all, r.what);
    if (s.random_bits > 0)
        throw std::invalid_argument("a SystemVerilog check has no random words of its own; give --language c or python, or --as function");
    std::string examples;
    for (std::size_t k = 0; k < r.examples.size(); ++k) {
        examples += (k % 4 == 0 ? "\n    " : " ") + std::string("32'h") + hex(r.examples[k].operands[0]) + ", 32'h" +
                    hex(r.examples[k].results[0]) + (k + 1 < r.examples.size() ? "," : "");
    }
    auto words = words_of(r, s);
    words.insert(words.begin(), {"@EXAMPLES", examples});
    return replaced(check_sv, words);
}

// A golden and a device side by side.

const char* const miter_sv = R"(
// The device that is compared:
//   module @NAME_device(input logic [@IN_TOP:0] x, output logic [@OUT_TOP:0] y);
// verilator lint_off DECLFILENAME
module @NAME_miter(input logic [@IN_TOP:0] x, output logic same);
// verilator lint_on DECLFILENAME
  logic [@OUT_TOP:0] golden, device;
  @NAME_device the_device(.x(x), .y(device));
  assign golden = @GOLDEN(x);
  assign same = golden == device || (@NAME_is_nan(golden) && @NAME_is_nan(device));
  always_comb assert (same);
endmodule
)";
const char* const miter_c = R"(
uint32_t @NAME_device(uint32_t x);  /* the device that is compared */

static int same(uint32_t a, uint32_t b)
{
    return a == b || (@NAME_is_nan(a) && @NAME_is_nan(b));
}

#ifdef __CPROVER__
uint32_t nondet_word(void);
int main(void)
{
    const uint32_t x = nondet_word() & @IN_MASK;
    __CPROVER_assert(same(@GOLDEN(x), @NAME_device(x)), "the device gives the code of the golden");
    return 0;
}
#else
#include <stdio.h>
int main(void)  /* without CBMC: over the hexadecimal words on standard input */
{
    unsigned x;
    int differ = 0;
    while (scanf("%x", &x) == 1) {
        if (same(@GOLDEN(x & @IN_MASK), @NAME_device(x & @IN_MASK))) continue;
        printf("%0@IN_DIGITSx: the device gives %0@OUT_DIGITSx, the golden %0@OUT_DIGITSx\n", x, (unsigned)@NAME_device(x & @IN_MASK),
               (unsigned)@GOLDEN(x & @IN_MASK));
        differ = 1;
    }
    return differ;
}
#endif
)";

std::string miter_of(const file_request& r, const std::vector<function>& all) {
    const shape s = shape_of(all, r.what);
    if (all.front().inputs.size() > 1)
        throw std::invalid_argument("a miter compares functions of one word; leave stochastic rounding out, or give --as function");
    auto words = words_of(r, s);
    words.emplace_back("@IN_MASK", "0x" + hex(ones(s.operand_bits)) + "u");
    return replaced(r.language == language::c ? miter_c : miter_sv, words);
}

}  // namespace

std::string yosys_script(const file_request& r, const std::string& file) {
    return replaced(
        "read_verilog -sv -formal @FILE\nread_verilog -sv -formal device.sv\nprep -flatten -top @NAME_miter\n"
        "sat -verify -prove-asserts -show-inputs @NAME_miter\n",
        {{"@FILE", file}, {"@NAME", r.what.name}});
}
std::string symbiyosys_script(const file_request& r, const std::string& file) {
    return replaced(
        "[options]\nmode prove\ndepth 1\n\n[engines]\nsmtbmc\n\n[script]\nread -formal @FILE\nread -formal device.sv\n"
        "prep -top @NAME_miter\n\n[files]\n@FILE\ndevice.sv\n",
        {{"@FILE", file}, {"@NAME", r.what.name}});
}

std::string file_of(const file_request& r) {
    std::vector<function> all = functions_of(r.what);
    if (r.form == form::miter && r.language == language::python)
        throw std::invalid_argument("a miter is for a solver, which reads no Python; give --language sv or c");
    if (r.form == form::miter && is_block_format(r.what.format))
        throw std::invalid_argument("a miter compares functions of one word; give --as function for the functions of a block");
    if (r.form == form::check && is_block_format(r.what.format))
        throw std::invalid_argument("a check reads one value a line; give --as function for the functions of a block");
    if (r.form != form::function) all.push_back(is_nan_of(r.what));
    switch (r.language) {
        case language::c: {
            const bool program = r.form == form::check;
            return first_comment(r, "//") +
                   (program ? "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n" : "#include <stdint.h>\n") + "\n" +
                   functions_in(all, in_c, "\n") +
                   (program                 ? check_in_c(r, all)
                    : r.form == form::miter ? miter_of(r, all)
                                            : "");
        }
        case language::system_verilog: {
            const std::string functions = functions_in(all, in_system_verilog, "\n");
            return first_comment(r, "//") + "\n" + functions +
                   (r.form == form::check   ? check_in_sv(r, all)
                    : r.form == form::miter ? miter_of(r, all)
                                            : "");
        }
        case language::python:
            return first_comment(r, "#") + "\n\n" + functions_in(all, in_python, "\n\n") +
                   (r.form == form::check ? "\n" + check_in_python(r, all) : "");
    }
    return {};
}

}  // namespace qk::emit
