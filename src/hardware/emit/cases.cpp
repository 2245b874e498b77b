// SPDX-License-Identifier: Apache-2.0
#include "cases.hpp"

#include <algorithm>

#include "dot.hpp"
#include "elements.hpp"
#include "qk/codec/layout/layout.hpp"

namespace qk::emit {
namespace {

std::string text(int n) { return std::to_string(n); }
/// Returns "[7:0] " of a word's bits, nothing of one bit.
std::string range(int bits) { return bits == 1 ? "" : "[" + text(bits - 1) + ":0] "; }

void add_operand(std::vector<word_group>& to, const format& f, const std::string& name, int k) {
    const packed_layout l = layout_of(f, along_axis{1, static_cast<std::size_t>(k), 1});
    to.push_back({name, l.elements.bits, k});
    if (is_block_format(f)) to.push_back({"scale_" + name, l.scales.bits, static_cast<int>(l.scales.count)});
}
/// Adds the codes of a value, or of a block.
void add_codes(std::vector<word_group>& to, const format& f, const std::string& name) {
    const int size = std::max(1, block_size(f));
    const packed_layout l = layout_of(f, along_axis{1, static_cast<std::size_t>(size), 1});
    to.push_back({is_block_format(f) ? "elements" : name, l.elements.bits, size});
    if (!is_block_format(f)) return;
    to.push_back({"scale", l.scales.bits, 1});
    if (l.shifts.count != 0) to.push_back({"shifts", l.shifts.bits, static_cast<int>(l.shifts.count)});
}

case_shape shape_of(const converter& c) {
    case_shape s;
    s.name = c.name;
    s.is_decoder = c.decode, s.is_block = is_block_format(c.format);
    s.golden = c.name + (c.decode ? "_decode" : s.is_block ? "_element" : "_encode");
    const int size = std::max(1, block_size(c.format));
    if (const microexponent* m = std::get_if<microexponent>(&c.format)) s.sub_block = m->sub_block_size;
    if (c.decode) {
        add_codes(s.in, c.format, "x");
        s.out.push_back({"y", 32, size});
    } else {
        s.in.push_back({"x", bits(c.input), size});
        add_codes(s.out, c.format, "y");
    }
    s.judged = s.is_block && !c.decode ? -1 : size;
    s.seed = c.how.seed;
    if (!c.decode) {
        const function f = functions_of(c).back();
        if (f.inputs.back().get()->name == "random") s.random_bits = f.inputs.back().width();
    }
    return s;
}
case_shape shape_of(const multiplier& m) {
    case_shape s;
    s.name = m.name, s.golden = m.name + "_dot", s.is_sum = true, s.judged = 1;
    add_operand(s.in, m.a, "a", m.k);
    add_operand(s.in, m.b, "b", m.k);
    if (m.has_c) s.in.push_back({"c", addend_width(m.how), 1});
    s.out.push_back({"d", result_width(m.how), 1});
    return s;
}

const char* c_type(int width) { return width > 32 ? "uint64_t" : "uint32_t"; }

}  // namespace

std::string replaced(std::string s, const std::vector<std::pair<std::string, std::string>>& words) {
    for (const auto& [from, to] : words) {
        for (std::size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
    }
    return s;
}

std::string functions_in(const std::vector<function>& all, std::string (*print)(const function&), const char* between) {
    std::string s;
    for (const function& f : all) s += (s.empty() ? "" : between) + print(f);
    return s;
}

int case_shape::words(const std::vector<word_group>& g) {
    int n = 0;
    for (const word_group& w : g) n += w.count;
    return n;
}
int case_shape::total_bits(const std::vector<word_group>& g) {
    int n = 0;
    for (const word_group& w : g) n += w.count * w.width;
    return n;
}
int case_shape::widest() const {
    int n = 0;
    for (const auto* part : {&in, &out})
        for (const word_group& w : *part) n = std::max(n, w.width);
    return n;
}

case_shape shape_of(const unit& u) {
    return std::visit([](const auto& v) { return shape_of(v); }, u);
}
std::vector<function> functions_of(const unit& u) {
    return std::visit([](const auto& v) { return functions_of(v); }, u);
}
function is_nan_of(const unit& u) {
    return std::visit([](const auto& v) { return is_nan_of(v); }, u);
}
const std::string& name_of(const unit& u) {
    return std::visit([](const auto& v) -> const std::string& { return v.name; }, u);
}

line_arguments arguments_in_c(const case_shape& s) {
    line_arguments made;
    std::string declared, alone;
    int at = 0;
    for (const word_group& g : s.in) {
        const std::string type = c_type(g.width);
        if (case_shape::is_alone(g)) {
            alone += (alone.empty() ? "(" : ", (") + type + ")in[" + text(at) + "]";
        } else {
            declared += "    " + type + " " + g.name + "[" + text(g.count) + "];\n";
            made.filled += "    for (i = 0; i < " + text(g.count) + "; ++i) " + g.name + "[i] = (" + type + ")in[" +
                           (at == 0 ? "i" : text(at) + " + i") + "];\n";
            made.arguments += (made.arguments.empty() ? "" : ", ") + g.name;
        }
        at += g.count;
    }
    made.filled = "    uint32_t i;\n" + declared + made.filled;
    if (!alone.empty()) made.arguments += ", " + alone;
    return made;
}
std::string arguments_in_python(const case_shape& s) {
    std::string arrays, alone;
    int at = 0;
    for (const word_group& g : s.in) {
        if (case_shape::is_alone(g)) alone += ", words[" + text(at) + "]";
        else arrays += (arrays.empty() ? "words[" : ", words[") + text(at) + ":" + text(at + g.count) + "]";
        at += g.count;
    }
    return arrays + alone;
}
std::string arguments_in_system_verilog(const case_shape& s) {
    std::string arrays, alone;
    int at = 0;
    for (const word_group& g : s.in) {
        (case_shape::is_alone(g) ? alone : arrays) += ", in[" + text(at) + " +: " + text(g.count * g.width) + "]";
        at += g.count * g.width;
    }
    return (arrays + alone).substr(2);
}

std::string case_in_c(const case_shape& s) {
    const std::string random =
        s.random_bits == 0 ? "" : ", random_word(index * " + text(s.in_words()) + "u + i) >> " + text(32 - s.random_bits);
    std::string t =
        "\n/* Gives the results of a line of operands; lines are counted from 0. */\nstatic void golden(const uint64_t *in, uint64_t "
        "index, uint64_t *out)\n{\n";
    if (s.is_sum) {
        const line_arguments in = arguments_in_c(s);
        return t + in.filled + "    (void)index;\n    out[0] = " + s.golden + "(" + in.arguments + ");\n}\n";
    }
    if (random.empty()) t += "    (void)index;\n";
    if (!s.is_block) {
        if (!random.empty()) t += "    const uint64_t i = 0;\n";
        return t + "    out[0] = " + s.golden + "((uint32_t)in[0]" + random + ");\n}\n";
    }
    const int size = s.is_decoder ? s.out_words() : s.in_words();
    const std::string n = text(size),
                      shift_at = s.sub_block == 0 ? "" : ", (uint32_t)in[" + text(size + 1) + " + i / " + text(s.sub_block) + "]";
    t += "    uint32_t i;\n";
    if (s.is_decoder)
        return t + "    for (i = 0; i < " + n + "; ++i) out[i] = " + s.golden + "((uint32_t)in[i], (uint32_t)in[" + n + "]" + shift_at +
               ");\n}\n";
    const std::string sign = text(s.in[0].width - 1), magnitude = "(uint32_t)in[i] & ((1u << " + sign + ") - 1u)";
    t += "    uint32_t most = 0, scale;\n    for (i = 0; i < " + n + "; ++i) {\n        const uint32_t v = " + magnitude +
         ";\n        if (v > most) most = v;\n    }\n    scale = " + s.name + "_scale(most);\n    out[" + n + "] = scale;\n";
    if (s.sub_block != 0)
        t += "    for (i = 0; i < " + n + "; ++i) {\n        const uint32_t v = " + magnitude + ";\n        if (i % " + text(s.sub_block) +
             " == 0 || v > most) most = v;\n        out[" + text(size + 1) + " + i / " + text(s.sub_block) + "] = " + s.name +
             "_shift(most, scale);\n    }\n";
    const std::string shift = s.sub_block == 0 ? "" : ", (uint32_t)out[" + text(size + 1) + " + i / " + text(s.sub_block) + "]";
    return t + "    for (i = 0; i < " + n + "; ++i) out[i] = " + s.golden + "((uint32_t)in[i], scale" + shift + random + ");\n}\n";
}

std::string case_in_python(const case_shape& s) {
    const std::string random =
        s.random_bits == 0 ? "" : ", random_word(index * " + text(s.in_words()) + " + i) >> " + text(32 - s.random_bits);
    std::string t = "\ndef golden(words, index):\n    \"\"\"The results of a line of operands; lines are counted from 0.\"\"\"\n";
    if (s.is_sum) return t + "    return [" + s.golden + "(" + arguments_in_python(s) + ")]\n";
    if (!s.is_block) return t + (random.empty() ? "" : "    i = 0\n") + "    return [" + s.golden + "(words[0]" + random + ")]\n";
    const int size = s.is_decoder ? s.out_words() : s.in_words();
    const std::string n = text(size), sub = text(s.sub_block);
    if (s.is_decoder)
        return t + "    return [" + s.golden + "(words[i], words[" + n + "]" +
               (s.sub_block == 0 ? "" : ", words[" + text(size + 1) + " + i // " + sub + "]") + ") for i in range(" + n + ")]\n";
    t += "    sizes = [w & 0x" + std::string(s.in[0].width == 32 ? "7fffffff" : "7fff") + " for w in words]\n    scale = " + s.name +
         "_scale(max(sizes))\n";
    if (s.sub_block != 0)
        t += "    shifts = [" + s.name + "_shift(max(sizes[i:i + " + sub + "]), scale) for i in range(0, " + n + ", " + sub + ")]\n";
    return t + "    elements = [" + s.golden + "(words[i], scale" + (s.sub_block == 0 ? "" : ", shifts[i // " + sub + "]") + random +
           ") for i in range(" + n + ")]\n    return elements + [scale]" + (s.sub_block == 0 ? "" : " + shifts") + "\n";
}

std::string case_in_system_verilog(const case_shape& s) {
    const std::string head =
        "\n// Gives the results of a line of operands; its first word stands in the low bits.\nfunction automatic logic " +
        range(s.out_bits()) + s.name + "_case(input logic " + range(s.in_bits()) + "in" +
        (s.random_bits == 0 ? "" : ", input logic " + range(s.random_bits * s.in_words()) + "random") + ");\n";
    const std::string random = s.random_bits == 0 ? "" : ", random[i * " + text(s.random_bits) + " +: " + text(s.random_bits) + "]";
    if (s.is_sum) return head + "  " + s.name + "_case = " + s.golden + "(" + arguments_in_system_verilog(s) + ");\nendfunction\n";
    if (!s.is_block)
        return head + "  " + s.name + "_case = " + s.golden + "(in" + (s.random_bits == 0 ? "" : ", random") + ");\nendfunction\n";
    const int size = s.is_decoder ? s.out_words() : s.in_words(), code = s.is_decoder ? s.in[0].width : s.out[0].width;
    const auto slice = [&](const std::string& of, const std::string& base, int width, const std::string& i) {
        return of + "[" + (base == "0" ? "" : base + " + ") + i + (width == 1 ? "]" : " * " + text(width) + " +: " + text(width) + "]");
    };
    std::string t = head;
    const std::vector<word_group>& codes = s.is_decoder ? s.in : s.out;
    const std::string scale_at = text(size * code) + " +: " + text(codes[1].width), shifts_at = text(size * code + codes[1].width);
    const int shift_width = codes.size() > 2 ? codes[2].width : 0;
    const std::string pair = "(i / " + text(s.sub_block) + ")", n = text(size);
    if (s.is_decoder) {
        return t + "  integer i;\n  for (i = 0; i < " + n + "; i = i + 1)\n    " + slice(s.name + "_case", "0", 32, "i") + " = " +
               s.golden + "(" + slice("in", "0", code, "i") + ", in[" + scale_at + "]" +
               (shift_width == 0 ? "" : ", " + slice("in", shifts_at, shift_width, pair)) + ");\nendfunction\n";
    }
    const int width = s.in[0].width;
    const std::string magnitude = "in[i * " + text(width) + " +: " + text(width - 1) + "]";
    t += "  integer i;\n  logic " + range(width - 1) + "most;\n  logic " + range(codes[1].width) + "scale;\n  logic " +
         range(s.out_bits()) + "y;\n  y = " + text(s.out_bits()) + "'d0;\n  most = " + text(width - 1) + "'d0;\n  for (i = 0; i < " + n +
         "; i = i + 1)\n    if (" + magnitude + " > most) most = " + magnitude + ";\n  scale = " + s.name + "_scale(most);\n  y[" +
         scale_at + "] = scale;\n";
    if (s.sub_block != 0)
        t += "  for (i = 0; i < " + n + "; i = i + 1) begin\n    if (i % " + text(s.sub_block) + " == 0 || " + magnitude +
             " > most) most = " + magnitude + ";\n    " + slice("y", shifts_at, shift_width, pair) + " = " + s.name +
             "_shift(most, scale);\n  end\n";
    return t + "  for (i = 0; i < " + n + "; i = i + 1)\n    " + slice("y", "0", code, "i") + " = " + s.golden + "(in[i * " + text(width) +
           " +: " + text(width) + "], scale" + (shift_width == 0 ? "" : ", " + slice("y", shifts_at, shift_width, pair)) + random +
           ");\n  " + s.name + "_case = y;\nendfunction\n";
}

}  // namespace qk::emit
