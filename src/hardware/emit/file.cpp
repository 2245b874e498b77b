// SPDX-License-Identifier: Apache-2.0
// A file: its first comment, the functions, and around them a program that checks lines, or a module that compares a device.
// It is long because of the programs that it writes around the functions.
#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "cases.hpp"
#include "coverage.hpp"
#include "qk/dot/text.hpp"
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

std::string facts_of(const multiplier& m) {
    return "d = a[0] b[0] + ... + a[" + std::to_string(m.k - 1) + "] b[" + std::to_string(m.k - 1) + "] + c; a in " +
           std::string(to_text(m.a).view()) + ", b in " + std::string(to_text(m.b).view());
}
std::string semantics_of(const multiplier& m) { return "accumulator: " + std::string(to_text(m.how).view()); }

std::string first_comment(const file_request& r, const char* mark) {
    std::string s;
    const auto of = [&](const auto& facts) { return std::visit(facts, r.what); };
    for (const std::string& line :
         {r.command + "            qk " + r.version, of([](const auto& u) { return facts_of(u); }),
          of([](const auto& u) { return semantics_of(u); }), "SHA-256 of its golden vectors (lines of qk gen with results): " + r.digest})
        s += std::string(mark) + " " + line + "\n";
    return s;
}

/// Returns "8" of codes of 8 bits: how many hexadecimal digits a word has.
int digits_of(int width) { return (width + 3) / 4; }
/// Returns the widths of a line's words, as a list.
std::string widths(const std::vector<word_group>& groups) {
    std::string s;
    for (const word_group& g : groups) {
        for (int k = 0; k < g.count; ++k) s += (s.empty() ? "" : ", ") + std::to_string(g.width);
    }
    return s;
}
std::vector<std::pair<std::string, std::string>> words_of(const file_request& r, const case_shape& s) {
    const auto number = [](int n) { return std::to_string(n); };
    return {{"@NAME", s.name},
            {"@GOLDEN", s.golden},
            {"@COUNT", number(static_cast<int>(r.examples.size()))},
            {"@IN_WORDS", number(s.in_words())},
            {"@OUT_WORDS", number(s.out_words())},
            {"@ALL_WORDS", number(s.in_words() + s.out_words())},
            {"@IN_DIGITS", number(digits_of(s.in[0].width))},
            {"@OUT_DIGITS", number(digits_of(s.out[0].width))},
            {"@WIDTHS", widths(s.in) + ", " + widths(s.out)},
            {"@LINE", number(17 * (s.in_words() + s.out_words()) + 64)},
            {"@SEED_LOW", std::to_string(static_cast<std::uint32_t>(s.seed))},
            {"@SEED_HIGH", std::to_string(static_cast<std::uint32_t>(s.seed >> 32))}};
}
/// Returns a line's words of the self-test, index first.
std::string examples(const file_request& r, const case_shape& s, const char* before, const char* after, const char* open,
                     const char* close) {
    std::string t;
    const bool one = s.in_words() + s.out_words() == 2;
    for (std::size_t k = 0; k < r.examples.size(); ++k) {
        const example& e = r.examples[k];
        t += (one && k % 4 != 0 ? " " : "\n    ") + std::string(open);
        if (s.random_bits > 0) t += before + hex(e.index) + after + ", ";
        for (std::size_t i = 0; i < e.operands.size(); ++i) t += (i == 0 ? "" : ", ") + (before + hex(e.operands[i])) + after;
        for (const std::uint64_t y : e.results) t += ", " + (before + hex(y)) + after;
        t += std::string(close) + (k + 1 < r.examples.size() ? "," : "");
    }
    return t;
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
/// How two results are compared.
const char* const same_c = R"(
static int same(const uint64_t *a, const uint64_t *b)
{
    int i;
    @BLOCK_IS_NANfor (i = 0; i < @OUT_WORDS; ++i) {
        if (a[i] != b[i]@VALUE_IS_NAN) return 0;
    }
    return 1;
}
)";
const char* const main_c = R"(
static const int widths[@ALL_WORDS] = {@WIDTHS};
static const uint64_t examples[@COUNT][@EXAMPLE_WORDS] = {@EXAMPLES};

/* Reads the hexadecimal words of a line; returns how many, one more than there is room for, or -1 where one is none. */
static int words_in(const char *line, uint64_t *word)
{
    int n = 0, digits = 0;
    for (; ; ++line) {
        const char c = *line;
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (value >= 0) {
            if (digits == 0 && n++ == @ALL_WORDS) return n;
            if (++digits > 16) return -1;
            word[n - 1] = (digits == 1 ? 0u : word[n - 1] << 4) | (uint64_t)value;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0') {
            digits = 0;
            if (c == '\n' || c == '\0') return n;
        } else {
            return -1;
        }
    }
}
static void put(FILE *to, const uint64_t *word, int from, int end)
{
    int i;
    for (i = from; i < end; ++i) fprintf(to, "%s%0*llx", i == from ? "" : " ", (widths[i] + 3) / 4, (unsigned long long)word[i - from]);
}
@INTERVALS
int main(@ARGUMENTS)
{
    static char line[@LINE];
    static uint64_t word[@ALL_WORDS], right[@OUT_WORDS];
    unsigned long cases = 0, differ = 0, number = 0;
    uint64_t index = 0;
    int k;
@INTERVALS_ASKED    for (k = 0; k < @COUNT; ++k) {
        const uint64_t *asked = examples[k]@SKIP;
        golden(asked, @EXAMPLE_INDEX, right);
        if (!same(right, asked + @IN_WORDS)) {
            fprintf(stderr, "self-test: ");
            put(stderr, asked, 0, @IN_WORDS);
            fprintf(stderr, " gives ");
            put(stderr, right, @IN_WORDS, @ALL_WORDS);
            fprintf(stderr, ", right is ");
            put(stderr, asked + @IN_WORDS, @IN_WORDS, @ALL_WORDS);
            fprintf(stderr, "\n");
            return 1;
        }
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        const int n = words_in(line, word);
        ++number;
        if (n == 0) continue;
        for (k = 0; k < @IN_WORDS && k < n && (widths[k] == 64 || word[k] >> widths[k] == 0); ++k) continue;
        if ((n != @IN_WORDS && n != @ALL_WORDS) || k < @IN_WORDS) {
            fprintf(stderr, "line %lu: a line has @IN_WORDS operands, of the bits that their formats have, and @OUT_WORDS results may follow\n", number);
            return 2;
        }
        golden(word, index++, right);
        if (n == @IN_WORDS) {
            put(stdout, word, 0, @IN_WORDS);
            putchar(' ');
            put(stdout, right, @IN_WORDS, @ALL_WORDS);
            putchar('\n');
            continue;
        }
        ++cases;
        if (same(word + @IN_WORDS, right) || ++differ > 20) continue;
        printf("line %lu: ", number);
        put(stdout, word, 0, @IN_WORDS);
        printf(" gave ");
        put(stdout, word + @IN_WORDS, @IN_WORDS, @ALL_WORDS);
        printf(", right is ");
        put(stdout, right, @IN_WORDS, @ALL_WORDS);
        putchar('\n');
    }
    if (ferror(stdin) || fflush(stdout) != 0) return 2;
    fprintf(stderr, "%d cases of its own, 0 differ\n", @COUNT);
    if (cases != 0) printf("%lu cases, %lu differ\n", cases, differ);
    return differ != 0;
}
)";
const char* const intervals_c = R"(
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
)";
const char* const intervals_asked_c =
    R"(    if (argc == 2 && (strcmp(argv[1], "--intervals") == 0 || strcmp(argv[1], "--every-interval") == 0)) {
        const int every = strcmp(argv[1], "--every-interval") == 0;
        printf("function automatic [31:0] table_code(input [31:0] x);\n    if (1'b0) table_code = 32'd0;\n");
@REGIONS        printf("    else table_code = 32'd0;\nendfunction\n");
        return 0;
    }
)";

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

std::string same_in_c(const case_shape& s) {
    const bool block = s.judged < 0;
    const std::string scale = std::to_string(s.is_block && !s.is_decoder ? s.in_words() : 0);
    return replaced(
        same_c, {{"@BLOCK_IS_NAN",
                  block ? "if (@NAME_is_nan((uint32_t)a[" + scale + "]) && @NAME_is_nan((uint32_t)b[" + scale + "])) return 1;\n    " : ""},
                 {"@VALUE_IS_NAN", block ? std::string()
                                   : s.widest() > 32 && s.is_sum && s.out[0].width > 32
                                       ? " && !(@NAME_is_nan(a[i]) && @NAME_is_nan(b[i]))"
                                       : " && !(@NAME_is_nan((uint32_t)a[i]) && @NAME_is_nan((uint32_t)b[i]))"}});
}

std::string check_in_c(const file_request& r) {
    const case_shape s = shape_of(r.what);
    const converter* c = std::get_if<converter>(&r.what);
    const bool intervals = c != nullptr && !c->decode && !s.is_block && s.random_bits == 0;
    const std::string text = (s.random_bits > 0 ? random_c : "") + case_in_c(s) + same_in_c(s) + main_c;
    auto words = words_of(r, s);
    words.insert(words.begin(), {{"@EXAMPLES", examples(r, s, "0x", "u", "{", "}")},
                                 {"@EXAMPLE_WORDS", s.random_bits > 0 ? std::to_string(s.in_words() + s.out_words() + 1) : "@ALL_WORDS"},
                                 {"@SKIP", s.random_bits > 0 ? " + 1" : ""},
                                 {"@EXAMPLE_INDEX", s.random_bits > 0 ? "examples[k][0]" : "0"},
                                 {"@INTERVALS_ASKED", intervals ? intervals_asked_c : ""},
                                 {"@INTERVALS", intervals ? intervals_c : ""},
                                 {"@ARGUMENTS", intervals ? "int argc, char **argv" : "void"},
                                 {"@REGIONS", intervals ? regions(*c) : ""}});
    return replaced(text, words);
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
WIDTHS = (@WIDTHS)
EXAMPLES = (@EXAMPLES)


def same(a, b):
@SAME

def text(words, first):
    return " ".join("%0*x" % ((WIDTHS[first + i] + 3) // 4, w) for i, w in enumerate(words))


def main():
    for words in EXAMPLES:
        @SPLIT
        asked, right = words[:@IN_WORDS], list(words[@IN_WORDS:])
        result = golden(asked, index)
        if not same(result, right):
            print("self-test: %s gives %s, right is %s" % (text(asked, 0), text(result, @IN_WORDS), text(right, @IN_WORDS)))
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
            words = [0]
        if not line.strip():
            continue
        if len(words) not in (@IN_WORDS, @ALL_WORDS) or any(w >> n for w, n in zip(words[:@IN_WORDS], WIDTHS)):
            print("line %d: a line has @IN_WORDS operands, of the bits that their formats have, and @OUT_WORDS results may follow" % number)
            return 2
        asked, given = words[:@IN_WORDS], words[@IN_WORDS:]
        right = golden(asked, index)
        index += 1
        if not given:
            print(text(asked, 0), text(right, @IN_WORDS))
            continue
        cases += 1
        if not same(given, right):
            differ += 1
            if differ <= 20:
                print("line %d: %s gave %s, right is %s" % (number, text(asked, 0), text(given, @IN_WORDS), text(right, @IN_WORDS)))
    if cases:
        print("%d cases, %d differ" % (cases, differ))
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
)";

std::string check_in_python(const file_request& r) {
    const case_shape s = shape_of(r.what);
    const std::string scale = std::to_string(s.is_block && !s.is_decoder ? s.in_words() : 0);
    auto words = words_of(r, s);
    words.insert(words.begin(),
                 {{"@EXAMPLES", examples(r, s, "0x", "", "(", ")") + ","},
                  {"@SPLIT", s.random_bits > 0 ? "index, words = words[0], words[1:]" : "index = 0"},
                  {"@SAME", s.judged < 0 ? "    return a == b or (@NAME_is_nan(a[" + scale + "]) and @NAME_is_nan(b[" + scale + "]))\n"
                                         : "    return all(x == y or (@NAME_is_nan(x) and @NAME_is_nan(y)) for x, y in zip(a, b))\n"}});
    return replaced((s.random_bits > 0 ? std::string("\n") + random_python : "\n") + case_in_python(s) + "\n" + main_python, words);
}

// SystemVerilog.

const char* const check_sv = R"(
// Checks CASES, lines of operands and their results as `qk gen` and a device write them; without a file, cases of its own alone. It ends
// with $finish where nothing differs, else with $fatal.
// verilator lint_off DECLFILENAME
module @NAME_check;
// verilator lint_on DECLFILENAME
  parameter string CASES = "";
  parameter int COUNT = 0;  // lines of the file
  localparam logic [@WORD_TOP:0] EXAMPLES [@EXAMPLE_WORDS] = '{@EXAMPLES};  // operands, then results
  logic [@WORD_TOP:0] words [0:(COUNT > 0 ? @ALL_WORDS * COUNT - 1 : 0)];
  int differ = 0;

  function automatic logic same(input logic [@OUT_TOP:0] a, input logic [@OUT_TOP:0] b);
@SAME  endfunction
  task automatic judge(input logic [@IN_TOP:0] in, input logic [@OUT_TOP:0] result);
    if (!same(@NAME_case(in), result)) begin
      differ = differ + 1;
      if (differ <= 20) $display("%h gave %h, right is %h", in, result, @NAME_case(in));
    end
  endtask
  // Puts the words of a line side by side.
  task automatic judge_line(input int from, input logic of_file);
    logic [@IN_TOP:0] in;
    logic [@OUT_TOP:0] result;
@GATHER    judge(in, result);
  endtask

  initial begin
    for (int k = 0; k < @COUNT; k = k + 1) judge_line(k * @ALL_WORDS, 1'b0);
    if (COUNT > 0) begin
      $readmemh(CASES, words);
      for (int k = 0; k < COUNT; k = k + 1) judge_line(k * @ALL_WORDS, 1'b1);
    end
    $display("%0d cases, %0d differ", @COUNT + COUNT, differ);
    if (differ > 0) $fatal(1, "the device differs");
    $finish;
  end
endmodule
)";

std::string top_of(int bits) { return std::to_string(bits - 1); }
/// Returns what two results, words side by side, are compared by.
std::string same_in_sv(const case_shape& s, const std::string& returned) {
    if (s.judged < 0) {
        const int at = s.out[0].width * s.out[0].count;
        const auto nan = [&](const char* of) {
            return s.name + "_is_nan(" + of + "[" + std::to_string(at) + " +: " + std::to_string(s.out[1].width) + "])";
        };
        return "    " + returned + " = a == b || (" + nan("a") + " && " + nan("b") + ");\n";
    }
    const int w = s.out[0].width;
    if (s.out_words() == 1) return "    " + returned + " = a == b || (" + s.name + "_is_nan(a) && " + s.name + "_is_nan(b));\n";
    const std::string part = "[i * " + std::to_string(w) + " +: " + std::to_string(w) + "]";
    return "    integer i;\n    " + returned + " = 1'b1;\n    for (i = 0; i < " + std::to_string(s.out_words()) +
           "; i = i + 1)\n      if (a" + part + " != b" + part + " && !(" + s.name + "_is_nan(a" + part + ") && " + s.name + "_is_nan(b" +
           part + "))) " + returned + " = 1'b0;\n";
}
std::string gathered(const case_shape& s) {
    std::string t;
    int word = 0;
    for (const auto* part : {&s.in, &s.out}) {
        int at = 0;
        for (const word_group& g : *part) {
            const std::string w = std::to_string(g.width), slice = part == &s.in ? "in" : "result",
                              from = "from + " + std::to_string(word) + " + i",
                              bits = g.width == s.widest() ? "" : "[" + top_of(g.width) + ":0]";
            t += "    for (int i = 0; i < " + std::to_string(g.count) + "; i = i + 1)\n      " + slice + "[" + std::to_string(at) +
                 " + i * " + w + " +: " + w + "] = of_file ? words[" + from + "]" + bits + " : EXAMPLES[" + from + "]" + bits + ";\n";
            at += g.width * g.count, word += g.count;
        }
    }
    return t;
}

std::string check_in_sv(const file_request& r) {
    const case_shape s = shape_of(r.what);
    if (s.random_bits > 0)
        throw std::invalid_argument("a SystemVerilog check has no random words of its own; give --language c or python, or --as function");
    const std::string word = std::to_string(s.widest()) + "'h";
    auto words = words_of(r, s);
    words.insert(words.begin(), {{"@EXAMPLES", examples(r, s, word.c_str(), "", "", "")},
                                 {"@EXAMPLE_WORDS", std::to_string(static_cast<int>(r.examples.size()) * (s.in_words() + s.out_words()))},
                                 {"@WORD_TOP", top_of(s.widest())},
                                 {"@IN_TOP", top_of(s.in_bits())},
                                 {"@OUT_TOP", top_of(s.out_bits())},
                                 {"@SAME", same_in_sv(s, "same")},
                                 {"@GATHER", gathered(s)}});
    return case_in_system_verilog(s) + replaced(check_sv, words);
}

// A golden and a device side by side.

const char* const miter_sv = R"(
// The device that is compared:
//   module @NAME_device(@PORTS);
// verilator lint_off DECLFILENAME
module @NAME_miter(@INPUTS, output logic same);
// verilator lint_on DECLFILENAME
  logic [@OUT_TOP:0] golden, device;
  @NAME_device the_device(@CONNECTIONS);
  assign golden = @NAME_case({@OPERANDS}@RANDOM);
  function automatic logic same_results(input logic [@OUT_TOP:0] a, input logic [@OUT_TOP:0] b);
@SAME  endfunction
  assign same = same_results(device, golden);
  always_comb assert (same);
endmodule
)";
const char* const miter_c = R"(
/* The device that is compared: operands in the order of a line of qk gen in, results out. */
void @NAME_device(const uint64_t in[@IN_WORDS], uint64_t out[@OUT_WORDS]);

static const int widths[@IN_WORDS] = {@IN_WIDTHS};
static uint64_t in[@IN_WORDS], right[@OUT_WORDS], given[@OUT_WORDS];

#ifdef __CPROVER__
uint64_t nondet_word(void);
int main(void)
{
    int i;
    for (i = 0; i < @IN_WORDS; ++i) in[i] = widths[i] == 64 ? nondet_word() : nondet_word() & ((UINT64_C(1) << widths[i]) - 1);
    golden(in, 0, right);
    @NAME_device(in, given);
    __CPROVER_assert(same(given, right), "the device gives the results of the golden");
    return 0;
}
#else
#include <stdio.h>
int main(void)  /* without CBMC: over the hexadecimal operands on standard input */
{
    unsigned long long word;
    unsigned long number = 0;
    int i = 0, k, differ = 0;
    while (scanf("%llx", &word) == 1) {
        in[i] = widths[i] == 64 ? word : word & ((UINT64_C(1) << widths[i]) - 1);
        if (++i < @IN_WORDS) continue;
        i = 0;
        ++number;
        golden(in, 0, right);
        @NAME_device(in, given);
        if (same(given, right)) continue;
        differ = 1;
        printf("case %lu,", number);
        for (k = 0; k < @IN_WORDS; ++k) printf(" %llx", (unsigned long long)in[k]);
        printf(": the device gives");
        for (k = 0; k < @OUT_WORDS; ++k) printf(" %llx", (unsigned long long)given[k]);
        printf(", the golden");
        for (k = 0; k < @OUT_WORDS; ++k) printf(" %llx", (unsigned long long)right[k]);
        printf("\n");
    }
    return differ;
}
#endif
)";

std::string miter_of(const file_request& r) {
    const case_shape s = shape_of(r.what);
    auto words = words_of(r, s);
    if (r.language == language::c) {
        if (s.random_bits > 0)
            throw std::invalid_argument(
                "a harness in C has no random words for the device; leave stochastic rounding out, or give --language sv");
        words.insert(words.begin(), {"@IN_WIDTHS", widths(s.in)});
        return replaced(case_in_c(s) + same_in_c(s) + miter_c, words);
    }
    std::string ports, inputs, connections, operands;
    const auto port = [](const char* direction, int bits, const std::string& name) {
        return std::string(direction) + " logic " + (bits == 1 ? "" : "[" + top_of(bits) + ":0] ") + name;
    };
    std::vector<word_group> in = s.in;
    if (s.random_bits > 0) in.push_back({"random", s.random_bits, s.in_words()});
    for (const word_group& g : in) {
        inputs += (inputs.empty() ? "" : ", ") + port("input", g.width * g.count, g.name);
        connections += "." + g.name + "(" + g.name + "), ";
        if (g.name != "random") operands = g.name + (operands.empty() ? "" : ", " + operands);
    }
    ports = inputs;
    int at = 0;
    for (const word_group& g : s.out) {
        const int bits = g.width * g.count;
        ports += ", " + port("output", bits, g.name);
        connections +=
            "." + g.name + "(device[" + std::to_string(at) + " +: " + std::to_string(bits) + "])" + (&g == &s.out.back() ? "" : ", ");
        at += bits;
    }
    words.insert(words.begin(), {{"@PORTS", ports},
                                 {"@INPUTS", inputs},
                                 {"@CONNECTIONS", connections},
                                 {"@OPERANDS", operands},
                                 {"@RANDOM", s.random_bits > 0 ? ", random" : ""},
                                 {"@OUT_TOP", top_of(s.out_bits())},
                                 {"@SAME", same_in_sv(s, "same_results")}});
    return case_in_system_verilog(s) + replaced(miter_sv, words);
}

}  // namespace

std::string yosys_script(const file_request& r, const std::string& file) {
    return replaced(
        "read_verilog -sv -formal @FILE\nread_verilog -sv -formal device.sv\nprep -flatten -top @NAME_miter\n"
        "sat -verify -prove-asserts -show-inputs @NAME_miter\n",
        {{"@FILE", file}, {"@NAME", name_of(r.what)}});
}
std::string symbiyosys_script(const file_request& r, const std::string& file) {
    return replaced(
        "[options]\nmode prove\ndepth 1\n\n[engines]\nsmtbmc\n\n[script]\nread -formal @FILE\nread -formal device.sv\n"
        "prep -top @NAME_miter\n\n[files]\n@FILE\ndevice.sv\n",
        {{"@FILE", file}, {"@NAME", name_of(r.what)}});
}

std::string file_of(const file_request& r) {
    if (r.form == form::miter && r.language == language::python)
        throw std::invalid_argument("a miter is for a solver, which reads no Python; give --language sv or c");
    if (r.form == form::coverage) {
        switch (r.language) {
            case language::c: return first_comment(r, "//") + coverage_in_c(r);
            case language::system_verilog: return first_comment(r, "//") + coverage_in_system_verilog(r);
            case language::python: return first_comment(r, "#") + coverage_in_python(r);
        }
    }
    std::vector<function> all = functions_of(r.what);
    if (r.form != form::function) all.push_back(is_nan_of(r.what));
    switch (r.language) {
        case language::c: {
            const std::string functions = functions_in(all, in_c, "\n");
            int widest = 0;
            for (const function& f : all) widest = std::max(widest, widest_word(f));
            return first_comment(r, "//") +
                   (r.form == form::check ? "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n" : "#include <stdint.h>\n") +
                   "\n" + wide_words_in_c(functions, widest) + functions +
                   (r.form == form::check   ? check_in_c(r)
                    : r.form == form::miter ? miter_of(r)
                                            : "");
        }
        case language::system_verilog:
            return first_comment(r, "//") + "\n" + functions_in(all, in_system_verilog, "\n") +
                   (r.form == form::check   ? check_in_sv(r)
                    : r.form == form::miter ? miter_of(r)
                                            : "");
        case language::python:
            return first_comment(r, "#") + "\n\n" + functions_in(all, in_python, "\n\n") +
                   (r.form == form::check ? "\n" + check_in_python(r) : "");
    }
    return {};
}

}  // namespace qk::emit
