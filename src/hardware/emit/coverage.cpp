// SPDX-License-Identifier: Apache-2.0
// What stands around the functions in a file of coverage: the bins, their counters, and a program that counts the words of lines.
#include "coverage.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "cases.hpp"

namespace qk::emit {
namespace {

std::string decimal(std::size_t n) { return std::to_string(n); }

struct row {
    std::uint32_t key;
    std::string name, about;
};
/// Bins of a kind, which stand side by side.
struct kind_of_bins {
    std::string about;
    std::size_t first = 0, count = 0;
};

/// What the three languages say of the bins.
struct coverage {
    case_shape shape;
    key_functions keys;
    std::vector<row> rows;  ///< ascending
    std::vector<kind_of_bins> kinds;
    bool every_code = false;  ///< the bins are the codes, in their order
};
coverage coverage_of(const file_request& r) {
    coverage c;
    c.keys = key_functions_of(r.what);
    c.shape = shape_of(r.what);
    for (const covered_bin& b : r.bins) c.rows.push_back({key_of(b.is), b.name, b.about});
    std::sort(c.rows.begin(), c.rows.end(), [](const row& a, const row& b) { return a.key < b.key; });
    for (std::size_t k = 0; k < c.rows.size(); ++k) {
        if (c.kinds.empty() || c.kinds.back().about != c.rows[k].about) c.kinds.push_back({c.rows[k].about, k, 0});
        ++c.kinds.back().count;
    }
    c.every_code =
        c.shape.is_decoder && !c.keys.of_lines && c.shape.in[0].width <= 16 && c.rows.size() == std::size_t{1} << c.shape.in[0].width;
    return c;
}
int widest_of(const std::vector<word_group>& groups) {
    int n = 0;
    for (const word_group& g : groups) n = std::max(n, g.width);
    return n;
}
std::string widths_of(const std::vector<word_group>& groups) {
    std::string s;
    for (const word_group& g : groups) {
        for (int k = 0; k < g.count; ++k) s += (s.empty() ? "" : ", ") + std::to_string(g.width);
    }
    return s;
}
std::vector<std::pair<std::string, std::string>> words_of(const coverage& c) {
    const std::string& n = c.shape.name;
    return {{"@NAME", n},
            {"@BINS", decimal(std::max<std::size_t>(1, c.rows.size()))},
            {"@LAST_BIN", decimal(std::max<std::size_t>(1, c.rows.size()) - 1)},
            {"@KINDS", decimal(c.kinds.size())},
            {"@ASKS", decimal(static_cast<std::size_t>(c.keys.asks))},
            {"@LINE_OR_WORD", c.keys.of_lines ? "a line of operands" : "a word"},
            {"@EXPECTED", c.keys.of_lines ? "@WORDS operands, of the bits that their formats have" : "a word of @WIDTH bits"},
            {"@WORDS", decimal(static_cast<std::size_t>(c.shape.in_words()))},
            {"@LENGTH", decimal(static_cast<std::size_t>(17 * (c.shape.in_words() + c.shape.out_words()) + 64))},
            {"@WIDTHS", widths_of(c.shape.in)},
            {"@WIDTH", decimal(static_cast<std::size_t>(c.shape.in[0].width))},
            {"@TOP", decimal(static_cast<std::size_t>(widest_of(c.shape.in)) - 1)}};
}

// C.

const char* const head_c = R"(#include <stdint.h>
#include <stdio.h>

)";
const char* const bins_c = R"(
/* The bins: keys, ascending, and names. */
static const struct { uint32_t key; const char *name; } @NAME_bins[@BINS] = {@ROWS};
/* The number of the bin of a key, or -1. */
static int @NAME_number(uint32_t key)
{
    int low = 0, high = @BINS;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (@NAME_bins[middle].key < key) low = middle + 1; else high = middle;
    }
    return low < @BINS && @NAME_bins[low].key == key ? low : -1;
}
static void @NAME_print(int number) { puts(@NAME_bins[number].name); }
)";
const char* const codes_c = R"(
/* The bins are the codes. */
static int @NAME_number(uint32_t key) { return (int)(key >> 10 & 0x1ffffu); }
static void @NAME_print(int number) { printf("code %d\n", number); }
)";
const char* const counters_c = R"(
uint64_t @NAME_hits[@BINS];

/* Counts what @LINE_OR_WORD hits. What a device gives for it changes nothing. */
@SAMPLE
/* Prints how many bins of each kind were hit, and the empty ones; returns how many are empty. */
int @NAME_report(void)
{
    static const struct { const char *about; int first, count; } kinds[@KINDS] = {@KIND_ROWS};
    int empty = 0, kind, k;
    for (kind = 0; kind < @KINDS; ++kind) {
        int hit = 0;
        for (k = 0; k < kinds[kind].count; ++k) hit += @NAME_hits[kinds[kind].first + k] != 0;
        empty += kinds[kind].count - hit;
        printf("%-24s %6d of %d\n", kinds[kind].about, hit, kinds[kind].count);
        for (k = 0; k < kinds[kind].count; ++k) {
            if (@NAME_hits[kinds[kind].first + k] != 0) continue;
            printf("  empty: ");
            @NAME_print(kinds[kind].first + k);
        }
    }
    printf("%d of @BINS bins hit\n", @BINS - empty);
    return empty;
}

#ifndef @NAME_WITHOUT_MAIN
/* Reads the operands of a line; returns 1, or 0 of an empty line, or -1. Results behind them are not looked at. */
static int operands_of(const char *line, uint64_t *word)
{
    static const int widths[@WORDS] = {@WIDTHS};
    int n;
    for (n = 0; n < @WORDS; ++n) {
        int digits = 0;
        while (*line == ' ' || *line == '\t' || *line == '\r' || *line == '\n') ++line;
        if (*line == '\0') return n == 0 ? 0 : -1;
        for (word[n] = 0; digits <= 16; ++line, ++digits) {
            const char c = *line;
            const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (value < 0) break;
            word[n] = word[n] << 4 | (uint64_t)value;
        }
        if (digits == 0 || digits > 16 || (widths[n] < 64 && word[n] >> widths[n] != 0)) return -1;
        if (*line != ' ' && *line != '\t' && *line != '\r' && *line != '\n' && *line != '\0') return -1;
    }
    return 1;
}
/* Counts lines of qk gen, with results behind the operands or without; ends with 1 where a bin is empty. */
int main(void)
{
    static char line[@LENGTH];
    static uint64_t word[@WORDS];
    unsigned long number = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        const int read = operands_of(line, word);
        ++number;
        if (read < 0) {
            fprintf(stderr, "line %lu: a line begins with @EXPECTED\n", number);
            return 2;
        }
        if (read > 0) @NAME_sample(@OPERANDS);
    }
    if (ferror(stdin)) return 2;
    return @NAME_report() != 0;
}
#endif
)";

std::string rows_in(const coverage& c, const char* before, const char* middle, const char* after) {
    std::string s;
    char key[16];
    for (const row& b : c.rows) {
        std::snprintf(key, sizeof key, "%08x", b.key);
        s += std::string(s.empty() ? "\n" : ",\n") + before + key + middle + b.name + after;
    }
    return s;
}
std::string kind_rows(const coverage& c, const char* open, const char* close) {
    std::string s;
    for (const kind_of_bins& k : c.kinds)
        s += (s.empty() ? "\n    " : ",\n    ") + (open + ("\"" + k.about) + "\", " + decimal(k.first) + ", " + decimal(k.count)) + close;
    return s;
}

}  // namespace

std::string coverage_in_c(const file_request& r) {
    const coverage c = coverage_of(r);
    std::string sample = "void @NAME_sample(uint32_t x)\n{\n";
    if (c.keys.of_lines) {
        const line_arguments in = arguments_in_c(c.shape);
        sample = "void @NAME_sample(const uint64_t in[@WORDS])\n{\n" + in.filled + "    uint32_t keys[@ASKS];\n    @NAME_keys(" +
                 in.arguments +
                 ", keys);\n    for (i = 0; i < @ASKS; ++i) {\n        const int k = @NAME_number(keys[i]);\n"
                 "        if (k >= 0) ++@NAME_hits[k];\n    }\n";
    } else if (c.shape.is_decoder) {
        sample += "    const int k = @NAME_number(@NAME_key(x));\n    if (k >= 0) ++@NAME_hits[k];\n";
    } else {
        sample +=
            "    const uint32_t y = @NAME_decode(@NAME_encode(x));\n    uint32_t which;\n"
            "    for (which = 0; which < @ASKS; ++which) {\n"
            "        const int k = @NAME_number(@NAME_key(x, y, which));\n"
            "        if (k >= 0) ++@NAME_hits[k];\n    }\n";
    }
    auto words = words_of(c);
    words.insert(words.begin(), {{"@SAMPLE", sample + "}\n"},
                                 {"@OPERANDS", c.keys.of_lines ? "word" : "(uint32_t)word[0]"},
                                 {"@ROWS", rows_in(c, "    {0x", "u, \"", "\"}")},
                                 {"@KIND_ROWS", kind_rows(c, "{", "}")}});
    const std::string functions = functions_in(c.keys.all, in_c, "\n");
    int widest = 0;
    for (const function& f : c.keys.all) widest = std::max(widest, widest_word(f));
    return head_c + wide_words_in_c(functions, widest) + functions +
           replaced(std::string(c.every_code ? codes_c : bins_c) + counters_c, words);
}

// Python.

namespace {

const char* const bins_python = R"(

# The bins: keys, ascending, and names.
BINS = (@ROWS,
)
NUMBERS = {key: number for number, (key, name) in enumerate(BINS)}


def name_of(number):
    return BINS[number][1]


def number_of(key):
    """The number of the bin of a key, or -1."""
    return NUMBERS.get(key, -1)
)";
const char* const codes_python = R"(

# The bins are the codes.
def name_of(number):
    return "code %d" % number


def number_of(key):
    return key >> 10 & 0x1ffff
)";
const char* const counters_python = R"(

KINDS = (@KIND_ROWS,
)
WIDTHS = (@WIDTHS,)
hits = [0] * @BINS


def sample(@SAMPLED):
    """Counts what @LINE_OR_WORD hits. What a device gives for it changes nothing."""
@SAMPLE

def report():
    """Prints how many bins of each kind were hit, and the empty ones; returns how many are empty."""
    empty = 0
    for about, first, count in KINDS:
        missed = [k for k in range(first, first + count) if not hits[k]]
        empty += len(missed)
        print("%-24s %6d of %d" % (about, count - len(missed), count))
        for k in missed:
            print("  empty: " + name_of(k))
    print("%d of @BINS bins hit" % (@BINS - empty))
    return empty


def main():
    """Counts lines of qk gen, with results behind the operands or without; ends with 1 where a bin is empty."""
    number = 0
    while True:
        try:
            line = input().split()[:@WORDS]
        except EOFError:
            break
        number += 1
        if not line:
            continue
        try:
            words = [int(w, 16) for w in line]
        except ValueError:
            words = []
        if len(words) != @WORDS or any(w < 0 or w >> n for w, n in zip(words, WIDTHS)):
            print("line %d: a line begins with @EXPECTED" % number)
            return 2
        sample(@OPERANDS)
    return 1 if report() else 0


if __name__ == "__main__":
    raise SystemExit(main())
)";

}  // namespace

std::string coverage_in_python(const file_request& r) {
    const coverage c = coverage_of(r);
    std::string sample =
        "    y = @NAME_decode(@NAME_encode(x))\n    for which in range(@ASKS):\n        k = number_of(@NAME_key(x, y, which))\n";
    if (c.keys.of_lines) sample = "    for key in @NAME_keys(" + arguments_in_python(c.shape) + "):\n        k = number_of(key)\n";
    sample += "        if k >= 0:\n            hits[k] += 1\n";
    if (c.shape.is_decoder && !c.keys.of_lines) sample = "    k = number_of(@NAME_key(x))\n    if k >= 0:\n        hits[k] += 1\n";
    auto words = words_of(c);
    words.insert(words.begin(), {{"@SAMPLED", c.keys.of_lines ? "words" : "x"},
                                 {"@SAMPLE", sample},
                                 {"@OPERANDS", c.keys.of_lines ? "words" : "words[0]"},
                                 {"@ROWS", rows_in(c, "    (0x", ", \"", "\")")},
                                 {"@KIND_ROWS", kind_rows(c, "(", ")")}});
    return "\n\n" + functions_in(c.keys.all, in_python, "\n\n") +
           replaced(std::string(c.every_code ? codes_python : bins_python) + counters_python, words);
}

// SystemVerilog.

namespace {

const char* const bins_sv = R"(
  // The number of the bin of a key, or -1.
  function automatic int number_of(input logic [31:0] key);
    case (key)
@NUMBERS      default: number_of = -1;
    endcase
  endfunction
  function automatic string name_of(input int number);
    case (number)
@NAMES      default: name_of = "";
    endcase
  endfunction
)";
const char* const codes_sv = R"(
  // The bins are the codes.
  // verilator lint_off UNUSEDSIGNAL
  function automatic int number_of(input logic [31:0] key);
    number_of = {15'd0, key[26:10]};
  endfunction
  // verilator lint_on UNUSEDSIGNAL
  function automatic string name_of(input int number);
    name_of = $sformatf("code %0d", number);
  endfunction
)";
const char* const counters_sv = R"(
  longint hits [0:@LAST_BIN];

`ifndef VERILATOR
  // The same bins as a covergroup, for reports of simulators; its bins have the names of name_of.
  covergroup covered_bins with function sample(logic [31:0] key);
    option.per_instance = 1;
@COVERPOINTS  endgroup
  covered_bins covered = new();
`endif

  // Counts what @LINE_OR_WORD hits@SIDE_BY_SIDE. What a device gives for it changes nothing.
  function automatic void sample(input logic @RANGE@SAMPLED);
@SAMPLE  endfunction
  function automatic void count_key(input logic [31:0] key);
    int k;
    k = number_of(key);
    if (k >= 0) begin
      hits[k] = hits[k] + 1;
`ifndef VERILATOR
      covered.sample(key);
`endif
    end
  endfunction

  function automatic int report_kind(input string about, input int first, input int count);
    int hit;
    hit = 0;
    for (int k = first; k < first + count; k = k + 1) if (hits[k] != 0) hit = hit + 1;
    $display("%-24s %0d of %0d", about, hit, count);
    for (int k = first; k < first + count; k = k + 1) if (hits[k] == 0) $display("  empty: %s", name_of(k));
    report_kind = count - hit;
  endfunction
  // Prints how many bins of each kind were hit, and the empty ones; returns how many are empty.
  function automatic int report();
    int empty;
    empty = 0;
@KIND_ROWS    $display("%0d of @BINS bins hit", @BINS - empty);
    report = empty;
  endfunction
endpackage

// Counts CASES, COUNT lines of operands as qk gen writes them; it ends with $finish where every bin is hit, else with $fatal.
module @NAME_cover;
// verilator lint_on DECLFILENAME
  parameter string CASES = "";
  parameter int COUNT = 0;
  logic [@TOP:0] words [0:(COUNT > 0 ? @WORDS * COUNT - 1 : 0)];
  logic @RANGEin;
  initial begin
    if (COUNT > 0) $readmemh(CASES, words);
    for (int k = 0; k < COUNT; k = k + 1) begin
@GATHER      @NAME_coverage::sample(in);
    end
    if (@NAME_coverage::report() > 0) $fatal(1, "some bins are empty");
    $finish;
  end
endmodule
)";

/// Returns a name as an identifier of SystemVerilog.
std::string identifier(const std::string& name) {
    std::string s;
    for (const char ch : replaced(name, {{"^-", " minus "}, {"^", " to the "}})) {
        const bool is_letter = std::isalnum(static_cast<unsigned char>(ch)) != 0;
        if (is_letter) s += ch;
        else if (!s.empty() && s.back() != '_') s += '_';
    }
    return s;
}

std::string coverpoints(const coverage& c) {
    if (c.every_code) {
        return "    codes: coverpoint key[26:10] { bins code[] = {[0:" + decimal(c.rows.size() - 1) + "]}; }\n";
    }
    std::string s;
    char key[16];
    for (const kind_of_bins& k : c.kinds) {
        s += "    " + identifier(k.about) + ": coverpoint key {\n";
        for (std::size_t n = k.first; n < k.first + k.count; ++n) {
            std::snprintf(key, sizeof key, "32'h%08x", c.rows[n].key);
            s += "      bins " + identifier(c.rows[n].name) + " = {" + key + "};\n";
        }
        s += "    }\n";
    }
    return s;
}

}  // namespace

std::string coverage_in_system_verilog(const file_request& r) {
    const coverage c = coverage_of(r);
    std::string one = "    logic [31:0] key;\n", gather;
    if (c.keys.of_lines)
        one = "    logic [@KEYS_TOP:0] keys;\n    keys = @NAME_keys(" + arguments_in_system_verilog(c.shape) +
              ");\n    for (int n = 0; n < @ASKS; n = n + 1) count_key(keys[n * 32 +: 32]);\n";
    else if (c.shape.is_decoder) one += "    key = @NAME_key(x);\n    count_key(key);\n";
    else
        one +=
            "    logic [31:0] y;\n    y = @NAME_decode(@NAME_encode(x));\n"
            "    for (int which = 0; which < @ASKS; which = which + 1) begin\n"
            "      key = @NAME_key(x, y, which[3:0]);\n      count_key(key);\n    end\n";
    int word_at = 0, bit_at = 0;
    const int widest = widest_of(c.shape.in);
    for (const word_group& g : c.shape.in) {
        const std::string w = std::to_string(g.width);
        gather += "      for (int i = 0; i < " + std::to_string(g.count) + "; i = i + 1) in[" + std::to_string(bit_at) + " + i * " + w +
                  " +: " + w + "] = words[k * @WORDS + " + std::to_string(word_at) + " + i]" +
                  (g.width == widest ? "" : "[" + std::to_string(g.width - 1) + ":0]") + ";\n";
        word_at += g.count, bit_at += g.count * g.width;
    }
    std::string numbers, names, kinds;
    char key[16];
    for (std::size_t k = 0; k < c.rows.size() && !c.every_code; ++k) {
        std::snprintf(key, sizeof key, "32'h%08x", c.rows[k].key);
        numbers += std::string("      ") + key + ": number_of = " + decimal(k) + ";\n";
        names += "      " + decimal(k) + ": name_of = \"" + c.rows[k].name + "\";\n";
    }
    for (const kind_of_bins& k : c.kinds)
        kinds += "    empty = empty + report_kind(\"" + k.about + "\", " + decimal(k.first) + ", " + decimal(k.count) + ");\n";
    auto words = words_of(c);
    words.insert(words.begin(), {{"@SAMPLED", c.keys.of_lines ? "in" : "x"},
                                 {"@SAMPLE", one},
                                 {"@GATHER", gather},
                                 {"@SIDE_BY_SIDE", c.keys.of_lines ? ", its words side by side, the first in the low bits" : ""},
                                 {"@KEYS_TOP", decimal(32 * static_cast<std::size_t>(c.keys.asks) - 1)},
                                 {"@RANGE", c.shape.in_bits() == 1 ? "" : "[" + std::to_string(c.shape.in_bits() - 1) + ":0] "},
                                 {"@NUMBERS", numbers},
                                 {"@NAMES", names},
                                 {"@KIND_ROWS", kinds},
                                 {"@COVERPOINTS", coverpoints(c)}});
    return replaced("\n// verilator lint_off DECLFILENAME\npackage @NAME_coverage;\n\n", words) +
           functions_in(c.keys.all, in_system_verilog, "\n") +
           replaced(std::string(c.every_code ? codes_sv : bins_sv) + counters_sv, words);
}

}  // namespace qk::emit
