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
    c.every_code = c.shape.is_decoder && c.shape.in[0].width <= 16 && c.rows.size() == std::size_t{1} << c.shape.in[0].width;
    return c;
}
std::vector<std::pair<std::string, std::string>> words_of(const coverage& c) {
    const std::string& n = c.shape.name;
    return {{"@NAME", n},
            {"@BINS", decimal(std::max<std::size_t>(1, c.rows.size()))},
            {"@LAST_BIN", decimal(std::max<std::size_t>(1, c.rows.size()) - 1)},
            {"@KINDS", decimal(c.kinds.size())},
            {"@ASKS", decimal(static_cast<std::size_t>(c.keys.asks))},
            {"@WIDTH", decimal(static_cast<std::size_t>(c.shape.in[0].width))},
            {"@TOP", decimal(static_cast<std::size_t>(c.shape.in[0].width) - 1)}};
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

/* Counts what a word hits. What a device gives for it changes nothing. */
void @NAME_sample(uint32_t x)
{
@SAMPLE}

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
/* Counts lines of qk gen, with results behind the word or without; ends with 1 where a bin is empty. */
int main(void)
{
    char line[256];
    unsigned long number = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long long word = 0;
        char rest[2];
        const int read = sscanf(line, "%llx%1[^ \t\r\n]", &word, rest);
        ++number;
        if (read == EOF) continue;
        if (read != 1@TOO_WIDE) {
            fprintf(stderr, "line %lu: a line begins with a word of @WIDTH bits\n", number);
            return 2;
        }
        @NAME_sample((uint32_t)word);
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
    const bool code = c.shape.is_decoder;
    const std::string one = code ? "    const int k = @NAME_number(@NAME_key(x));\n    if (k >= 0) ++@NAME_hits[k];\n"
                                 : "    const uint32_t y = @NAME_decode(@NAME_encode(x));\n    uint32_t which;\n"
                                   "    for (which = 0; which < @ASKS; ++which) {\n"
                                   "        const int k = @NAME_number(@NAME_key(x, y, which));\n"
                                   "        if (k >= 0) ++@NAME_hits[k];\n    }\n";
    const std::string too_wide = c.shape.in[0].width < 64 ? " || word >> @WIDTH != 0" : "";
    auto words = words_of(c);
    words.insert(words.begin(), {{"@SAMPLE", one},
                                 {"@TOO_WIDE", too_wide},
                                 {"@ROWS", rows_in(c, "    {0x", "u, \"", "\"}")},
                                 {"@KIND_ROWS", kind_rows(c, "{", "}")}});
    return head_c + functions_in(c.keys.all, in_c, "\n") + replaced(std::string(c.every_code ? codes_c : bins_c) + counters_c, words);
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
hits = [0] * @BINS


def sample(x):
    """Counts what a word hits. What a device gives for it changes nothing."""
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
    """Counts lines of qk gen, with results behind the word or without; ends with 1 where a bin is empty."""
    number = 0
    while True:
        try:
            words = input().split()
        except EOFError:
            break
        number += 1
        if not words:
            continue
        try:
            word = int(words[0], 16)
        except ValueError:
            word = -1
        if word < 0 or word >> @WIDTH:
            print("line %d: a line begins with a word of @WIDTH bits" % number)
            return 2
        sample(word)
    return 1 if report() else 0


if __name__ == "__main__":
    raise SystemExit(main())
)";

}  // namespace

std::string coverage_in_python(const file_request& r) {
    const coverage c = coverage_of(r);
    const std::string one = c.shape.is_decoder
                                ? "    k = number_of(@NAME_key(x))\n    if k >= 0:\n        hits[k] += 1\n"
                                : "    y = @NAME_decode(@NAME_encode(x))\n    for which in range(@ASKS):\n"
                                  "        k = number_of(@NAME_key(x, y, which))\n        if k >= 0:\n            hits[k] += 1\n";
    auto words = words_of(c);
    words.insert(words.begin(),
                 {{"@SAMPLE", one}, {"@ROWS", rows_in(c, "    (0x", ", \"", "\")")}, {"@KIND_ROWS", kind_rows(c, "(", ")")}});
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

  // Counts what a word hits. What a device gives for it changes nothing.
  function automatic void sample(input logic [@TOP:0] x);
    logic [31:0] key;
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

// Counts CASES, COUNT lines of a word as qk gen writes them; it ends with $finish where every bin is hit, else with $fatal.
module @NAME_cover;
// verilator lint_on DECLFILENAME
  parameter string CASES = "";
  parameter int COUNT = 0;
  logic [@TOP:0] words [0:(COUNT > 0 ? COUNT - 1 : 0)];
  initial begin
    if (COUNT > 0) $readmemh(CASES, words);
    for (int k = 0; k < COUNT; k = k + 1) @NAME_coverage::sample(words[k]);
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
    const std::string one = c.shape.is_decoder ? "    key = @NAME_key(x);\n    count_key(key);\n"
                                               : "    logic [31:0] y;\n    y = @NAME_decode(@NAME_encode(x));\n"
                                                 "    for (int which = 0; which < @ASKS; which = which + 1) begin\n"
                                                 "      key = @NAME_key(x, y, which[3:0]);\n      count_key(key);\n    end\n";
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
    words.insert(words.begin(),
                 {{"@SAMPLE", one}, {"@NUMBERS", numbers}, {"@NAMES", names}, {"@KIND_ROWS", kinds}, {"@COVERPOINTS", coverpoints(c)}});
    return replaced("\n// verilator lint_off DECLFILENAME\npackage @NAME_coverage;\n\n", words) +
           functions_in(c.keys.all, in_system_verilog, "\n") +
           replaced(std::string(c.every_code ? codes_sv : bins_sv) + counters_sv, words);
}

}  // namespace qk::emit
