// SPDX-License-Identifier: Apache-2.0
// Style portable: qdq where that can write the quantizer, otherwise a model-local function of standard operators.
// docs/reference/export_styles.md.
// This file is long because each family of formats has a function body of its own, and the writer names them all.
#include "graph/export/portable.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/packed.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/style.hpp"
#include "graph/export/writer.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/portable_functions.hpp"
#include "qk/formats/floating.hpp"
#include "qk/formats/format.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/portable/function.hpp"
#include "qk/reference/block_float.hpp"
#include "qk/reference/floating.hpp"
#include "qk/reference/microscaling.hpp"
#include "qk/reference/table.hpp"
#include "qk/semantics.hpp"

namespace qk::graph::detail {

// Builds a model-local function: standard operators in order, with one constant for equal values.

/// The name of a value inside a function. Operators return the value that they make.
using operand = std::string;

class function_builder {
  public:
    /// `opset` is the version of the standard operators, which must be the model's: runtimes refuse a function with another one.
    function_builder(const std::string& name, int opset, const std::string& what) : opset_(opset) {
        proto_.set_name(name);
        proto_.set_domain(marks::function_domain);
        proto_.set_doc_string(what + std::string(portable::body_mark));  // the fingerprint follows when the body has its last form
        namespace own = portable::attribute;
        for (const char* a :
             {own::version, own::format, own::semantics, own::scale_rule, own::scales, own::axis, own::block, own::flatten, own::result})
            unread(a);
        proto_.add_opset_import()->set_version(opset);
    }

    operand input(const std::string& name) {
        proto_.add_input(name);
        return name;
    }
    /// Declares an attribute of calls that no node of the body reads.
    void unread(const std::string& name) { proto_.add_attribute(name); }
    /// Returns a constant with the list of integers that every call passes as attribute `name`.
    operand integers_of_call(const std::string& name) { return of_call(name, "value_ints", onnx::AttributeProto::INTS); }
    operand integer_of_call(const std::string& name) { return of_call(name, "value_int", onnx::AttributeProto::INT); }

    operand op(const std::string& type, const std::vector<operand>& inputs, const std::string& stem = "") {
        return add(type, inputs, stem.empty() ? type : stem).output(0);
    }
    operand cast(const operand& x, data_type to) {
        onnx::NodeProto& n = add("Cast", {x}, "Cast");
        set_attribute(n, "to", static_cast<std::int64_t>(to));
        return n.output(0);
    }
    /// Reduces axes, which stay with length 1. Axes became an input in opset 18, for ReduceSum in 13.
    operand reduce(const std::string& type, const operand& x, const std::vector<std::int64_t>& axes) {
        const bool as_input = opset_ >= (type == "ReduceSum" ? 13 : 18);
        onnx::NodeProto& n = add(type, as_input ? std::vector<operand>{x, integers(axes)} : std::vector<operand>{x}, type);
        if (!as_input) set_attribute(n, "axes", axes);
        set_attribute(n, "keepdims", std::int64_t{1});
        return n.output(0);
    }
    /// Reshapes x to a shape that Shape returned: a length of 0 stays 0 (before opset 14 it means the length that x has there).
    operand reshape(const operand& x, const operand& shape) {
        onnx::NodeProto& n = add("Reshape", {x, shape}, "Reshape");
        if (opset_ >= 14) set_attribute(n, "allowzero", std::int64_t{1});
        return n.output(0);
    }
    operand gather(const operand& x, const operand& index, std::int64_t axis) {
        onnx::NodeProto& n = add("Gather", {x, index}, "Gather");
        set_attribute(n, "axis", axis);
        return n.output(0);
    }
    operand concat(const std::vector<operand>& parts, std::int64_t axis = 0) {
        onnx::NodeProto& n = add("Concat", parts, "Concat");
        set_attribute(n, "axis", axis);
        return n.output(0);
    }

    operand constant(const tensor& t, const std::string& stem) {
        std::string key = std::to_string(static_cast<int>(t.type())) + to_string(t.shape());
        key.append(reinterpret_cast<const char*>(t.bytes()), t.size_bytes());
        const auto [known, fresh] = constants_.try_emplace(key);
        if (!fresh) return known->second;
        onnx::NodeProto& n = add("Constant", {}, stem);
        to_proto(t, "", *add_attribute(n, "value", onnx::AttributeProto::TENSOR).mutable_t());
        return known->second = n.output(0);
    }
    operand number(double v, data_type type) {
        switch (type) {
            case data_type::float64: return constant(make_tensor<double>({}, std::vector<double>{v}), "c");
            case data_type::int64:
                return constant(make_tensor<std::int64_t>({}, std::vector<std::int64_t>{static_cast<std::int64_t>(v)}), "c");
            default: return constant(make_tensor<float>({}, std::vector<float>{static_cast<float>(v)}), "c");
        }
    }
    operand integers(const std::vector<std::int64_t>& v) {
        return constant(make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v), "i");
    }

    /// Names the result "y" in the node that makes it, without an Identity: each node costs one in every call that a runtime inlines.
    onnx::FunctionProto finish(const operand& result) {
        proto_.add_output("y");
        bool made = false;
        for (auto& n : *proto_.mutable_node()) {
            for (std::string& i : *n.mutable_input())
                if (i == result) i = "y";
            for (std::string& o : *n.mutable_output())
                if (o == result) o = "y", made = true;
        }
        if (!made) throw error("function '" + proto_.name() + "' gives back what no node of its makes");
        return std::move(proto_);
    }

  private:
    operand of_call(const std::string& name, const char* kind, onnx::AttributeProto::AttributeType type) {
        proto_.add_attribute(name);
        onnx::NodeProto& n = add("Constant", {}, name);
        add_attribute(n, kind, type).set_ref_attr_name(name);
        return n.output(0);
    }
    onnx::NodeProto& add(const std::string& type, const std::vector<operand>& inputs, const std::string& stem) {
        onnx::NodeProto& n = *proto_.add_node();
        n.set_op_type(type);
        for (const operand& i : inputs) n.add_input(i);
        const std::string name = stem + "_" + std::to_string(++count_);
        n.set_name(proto_.name() + "/" + name);
        n.add_output(name);
        return n;
    }
    onnx::FunctionProto proto_;
    int opset_, count_ = 0;
    std::map<std::string, operand> constants_;
};

// How a function reshapes its input into blocks: [..., block, inner], so that a block is a run along the last axis but one.

/// How blocks are made. `whole`: the call's attribute `blocks` is the shape, known beforehand: whole blocks, or one short block. `padded`:
/// `blocks` is the shape after zeros have filled the last block along the axis `at`; attribute `ends` has a 1 for the pad at its end,
/// among the pads of all axes. `any_length`: the shape is computed in each run from attributes `at` and `after` (the axis behind it; both
/// count an additional first axis of length 1); short blocks are padded with zeros, which raise no exponent and are cut off again.
enum class block_layout : std::uint8_t { whole, padded, any_length };

/// Returns core(blocks of x) in x's own shape. If `part` is not 0, `block` is first cut into parts: [..., block / part, part, inner].
template <class Core>
operand in_blocks(function_builder& f, const operand& x, block_layout layout, std::int64_t block, std::int64_t part, const Core& core) {
    const operand shape = f.op("Shape", {x}, "shape");
    if (layout == block_layout::whole) return f.reshape(core(f.op("Reshape", {x, f.integers_of_call("blocks")}, "blocks_of_x")), shape);
    if (layout == block_layout::padded) {
        const operand axis = f.integers_of_call("at"), length = f.op("Gather", {shape, axis}, "length");
        const operand missing = f.op("Mod", {f.op("Neg", {length}), f.integers({block})});
        const operand padded = f.op("Pad", {x, f.op("Mul", {f.integers_of_call("ends"), missing})}, "padded");
        const operand y = core(f.op("Reshape", {padded, f.integers_of_call("blocks")}, "blocks_of_x"));
        return f.op("Slice", {f.reshape(y, f.op("Shape", {padded})), f.integers({0}), length, axis});
    }
    const auto slice = [&](const operand& v, const operand& from, const operand& to, std::int64_t axis) {
        return f.op("Slice", {v, from, to, f.integers({axis})});
    };
    const std::int64_t end = std::numeric_limits<std::int64_t>::max();
    const operand axes = f.concat({f.integers({1}), shape});  // so that a scalar has an axis, too
    const operand length = f.op("Gather", {axes, f.integers_of_call("at")}, "length");
    const operand behind = slice(axes, f.integers_of_call("after"), f.integers({end}), 0);
    const operand inner = f.reduce("ReduceProd", f.concat({f.integers({1}), behind}), {0});
    const operand count = f.op("Div", {f.op("Add", {length, f.integers({block - 1})}), f.integers({block})}, "blocks");
    const operand padded = f.op("Mul", {count, f.integers({block})}, "padded");
    const auto pad = [&](const operand& v, const operand& by) {
        return f.op("Pad", {v, f.concat({f.integers({0, 0, 0, 0}), by, f.integers({0})})});
    };
    const operand rows = f.op("Reshape", {x, f.concat({f.integers({-1}), length, inner})}, "rows");
    operand blocks = f.op("Reshape", {pad(rows, f.op("Sub", {padded, length})), f.concat({f.integers({-1, block}), inner})}, "blocks_of_x");
    const std::int64_t parts = part == 0 ? 0 : (block + part - 1) / part;
    if (part != 0) {
        if (parts * part != block) blocks = pad(blocks, f.integers({parts * part - block}));
        blocks = f.op("Reshape", {blocks, f.concat({f.integers({-1, parts, part}), inner})}, "parts_of_x");
    }
    operand y = core(blocks);
    if (part != 0) {
        y = f.op("Reshape", {y, f.concat({f.integers({-1, parts * part}), inner})});
        if (parts * part != block) y = slice(y, f.integers({0}), f.integers({block}), 1);
    }
    y = slice(f.op("Reshape", {y, f.concat({f.integers({-1}), padded, inner})}), f.integers({0}), length, 1);
    return f.reshape(y, shape);
}

// What distinguishes the functions of one export, and the bodies of those that quantize.

// Builds exact arithmetic from standard operators: the power of two below a value, and rounding in every mode. docs/reference/
// export_styles.md has it under "How the functions compute".

/// Operators on values of one floating type, float32 or float64.
class arithmetic {
  public:
    arithmetic(function_builder& f, data_type type) : f_(f), type_(type) {}

    operand c(double v) const { return f_.number(v, type_); }
    operand add(const operand& a, const operand& b) const { return f_.op("Add", {a, b}); }
    operand sub(const operand& a, const operand& b) const { return f_.op("Sub", {a, b}); }
    operand mul(const operand& a, const operand& b) const { return f_.op("Mul", {a, b}); }
    operand mul(const operand& a, double b) const { return b == 1 ? a : mul(a, c(b)); }  // a product with 1 needs no node
    operand div(const operand& a, const operand& b) const { return f_.op("Div", {a, b}); }
    operand abs(const operand& a) const { return f_.op("Abs", {a}); }
    operand root(const operand& a) const { return f_.op("Sqrt", {a}); }
    /// These use Clip, which onnxruntime computes faster than Max and Min. They need not keep a NaN.
    operand max(const operand& a, double b) const { return f_.op("Clip", {a, c(b)}); }
    operand min(const operand& a, double b) const { return f_.op("Clip", {a, "", c(b)}); }
    operand clip(const operand& a, double lowest, double highest) const { return f_.op("Clip", {a, c(lowest), c(highest)}); }
    /// `yes` must not be -0, of which onnxruntime's Where makes +0; `no` may. The condition must be no Not: the optimizer swaps the two
    /// values.
    operand where(const operand& condition, const operand& yes, const operand& no) const { return f_.op("Where", {condition, yes, no}); }
    operand less(const operand& a, const operand& b) const { return f_.op("Less", {a, b}); }
    operand equal(const operand& a, const operand& b) const { return f_.op("Equal", {a, b}); }
    operand is_nan(const operand& a) const { return f_.op("IsNaN", {a}); }
    operand either(const operand& a, const operand& b) const { return f_.op("Or", {a, b}); }
    operand both(const operand& a, const operand& b) const { return f_.op("And", {a, b}); }
    operand negate(const operand& a) const { return f_.op("Not", {a}); }

    /// Returns `factor` times the largest power of two that is at most a, which is not below 0; 0 for 0. With u = 2^-p, p bits of
    /// precision, and q = (1 / 2u + 1) a, q - (1 - u) q leaves a's highest bit alone: S. M. Rump, T. Ogita, S. Oishi, Accurate
    /// floating-point summation, part I, SIAM J. Sci. Comput. 31 (2008), algorithm 3.5. The factor, a power of two, is part of q. Requires
    /// (1 / 2u + 1) a factor to be finite. The product must be rounded before it is subtracted: where shapes are static, OpenVINO makes one
    /// fused operation of both unless an Abs stands between them.
    operand power_below(const operand& a, double factor) const {
        if (type_ == data_type::float32) {
            const operand q = mul(a, c((0x1p23 + 1) * factor));
            return sub(q, abs(mul(q, c(1 - 0x1p-24))));
        }
        // Written as q - u q: onnxruntime takes a float64 factor that rounds to 1.0f for 1, and drops the multiplication.
        const operand q = mul(a, c((0x1p52 + 1) * factor));
        return sub(q, abs(sub(q, mul(q, c(0x1p-53)))));
    }

    /// Rounds `t` to a whole number. Zeros keep the sign of `t`.
    operand round(const operand& t, rounding how) const {
        switch (how) {
            case rounding::half_even: return f_.op("Round", {t});
            case rounding::up: return f_.op("Ceil", {t});
            case rounding::down: return f_.op("Floor", {t});
            case rounding::toward_zero: return where(less(c(0), t), f_.op("Floor", {t}), f_.op("Ceil", {t}));
            case rounding::half_up:
            case rounding::half_away: {
                // Ties are where t lies half a unit from its nearest; t - r is exact.
                const operand r = f_.op("Round", {t}), rest = sub(t, r), tie = equal(rest, c(0.5));
                if (how == rounding::half_up) return where(tie, add(r, c(1)), r);
                const operand up = where(both(tie, less(c(0), t)), add(r, c(1)), r);
                return where(both(equal(rest, c(-0.5)), less(t, c(0))), sub(r, c(1)), up);
            }
            case rounding::to_odd: throw error("is rounded to odd, which no standard operator does");
            case rounding::stochastic:
            case rounding::stochastic_b:
            case rounding::stochastic_c: break;
        }
        throw error("is rounded stochastically, which no standard operator does");
    }

    /// Turns -0 into +0.
    operand without_negative_zero(const operand& y) const { return where(equal(y, c(0)), c(0), y); }

    /// Applies the sign rule to a result y that is zero; `quotient` is x over its scale.
    operand with_zero_sign(const operand& y, const operand& quotient, zero_sign rule, rounding how) const {
        switch (rule) {
            case zero_sign::kept: return y;
            case zero_sign::positive: return without_negative_zero(y);
            case zero_sign::underflow_positive:
                if (how != rounding::half_even) return y;
                return where(both(equal(y, c(0)), negate(lost(quotient))), c(0), y);
            case zero_sign::zero_quotient_positive: return where(lost(quotient), c(0), y);
        }
        return y;
    }

    /// These turn a float32 into this type, and this type into a float32.
    operand of_single(const operand& x) const { return is_wide() ? f_.cast(x, data_type::float64) : x; }
    operand to_single(const operand& y) const { return is_wide() ? f_.cast(y, data_type::float32) : y; }

    data_type type() const { return type_; }
    bool is_wide() const { return type_ == data_type::float64; }

  private:
    /// Returns whether the quotient, as a float32, is zero or underflowed.
    operand lost(const operand& quotient) const {
        if (type_ == data_type::float32) return equal(quotient, c(0));
        return f_.op("Equal", {f_.cast(quotient, data_type::float32), f_.number(0, data_type::float32)});
    }
    function_builder& f_;
    data_type type_;
};

/// Is true for roundings that make the smallest value count: they tell apart quotients that float32 flushes to zero.
constexpr bool is_directed(rounding how) { return how == rounding::up || how == rounding::down; }

/// Returns whether float32 arithmetic suffices for on_grid and this format: the factor of power_below must not overflow, and the smallest
/// step must lie well above the subnormals.
constexpr bool fits_float32(floating f) { return max_exponent(f) <= 96 && min_exponent(f) - f.mantissa_bits >= -100; }

/// Rounds v to the numbers of f, ties by `how`. What is beyond the largest saturates (`saturate`), or stays beyond it; without a sign, what
/// is below 0 becomes 0. NaN is not handled.
inline operand on_grid(const arithmetic& a, floating f, const operand& v, rounding how, bool saturate = true) {
    const double beyond = saturate ? max_value(f) : 4 * max_value(f);
    const operand inside = a.clip(v, is_signed(f) ? -beyond : 0, beyond);
    const operand step =
        a.max(a.power_below(a.abs(inside), power_of_two(-f.mantissa_bits)), power_of_two(min_exponent(f) - f.mantissa_bits));
    const operand count = a.div(inside, step);
    if (f.mantissa_bits > 0 || how != rounding::half_even) return a.mul(a.round(count, how), step);
    // Powers of two: a tie goes to the even code. Codes count exponents, and the root of a power with an even one is a power itself.
    const operand root = a.root(a.mul(step, power_of_two(f.bias % 2 == 0 ? 0 : 1)));
    const operand even = a.equal(a.power_below(root, 1), root), tie = a.equal(a.abs(count), a.c(1.5));
    return a.mul(a.where(a.both(tie, even), a.div(count, a.c(1.5)), a.round(count, how)), step);
}

// Builds elementwise formats from standard operators, with given or computed scales: what qk/reference/ computes for one value.

/// A scale and, for integers, a zero point of type `zero_point_type`. Empty operands mean scale 1 and zero point 0.
struct element_scale {
    operand scale, zero_point;
};

/// Returns float64 where float32 cannot hold every difference of two codes.
constexpr data_type zero_point_type(integer f) { return f.bits > 16 ? data_type::float64 : data_type::float32; }

/// y = scale * cast(x / scale)
inline operand fake_quantize(function_builder& f, floating format, const operand& x, const element_scale& s, const semantics& how) {
    const arithmetic single(f, data_type::float32);
    const arithmetic a(f, fits_float32(format) && !is_directed(how.rounding) ? data_type::float32 : data_type::float64);
    const bool saturate = reference::saturates(format, how.overflow);
    const double largest = max_value(format), infinity = std::numeric_limits<double>::infinity();
    const operand quotient = s.scale.empty() ? x : single.div(x, s.scale);
    const operand v = a.of_single(quotient);
    operand y = on_grid(a, format, v, how.rounding, saturate);
    if (!saturate) {
        // Roundings toward zero stop at the largest finite value, unless they start from Inf.
        operand stopped = y;
        if (how.rounding == rounding::toward_zero || how.rounding == rounding::down) stopped = a.min(stopped, largest);
        if (how.rounding == rounding::toward_zero || how.rounding == rounding::up) stopped = a.max(stopped, -largest);
        if (stopped != y) y = a.where(a.equal(a.abs(v), a.c(infinity)), y, stopped);
        y = a.where(a.less(a.c(largest), a.abs(y)),
                    has_infinity(format) ? a.mul(y, infinity) : a.c(std::numeric_limits<double>::quiet_NaN()), y);
    }
    y = a.to_single(has_negative_zero(format) ? y : a.without_negative_zero(y));
    const bool keeps_nan = has_nan(format) || how.nan_without_code == nan_rule::nan;
    const operand nan = single.is_nan(x);
    y = single.where(nan, single.c(keeps_nan ? std::numeric_limits<double>::quiet_NaN() : 0), y);
    if (!keeps_nan && how.nan_without_code == nan_rule::negative_zero) y = single.mul(y, single.where(nan, single.c(-1), single.c(1)));
    return s.scale.empty() ? y : single.mul(y, s.scale);
}

/// y = (clamp(round(x / scale) + zero point) - zero point) * scale. `one_scale`: one for the whole tensor, which decides what +Inf becomes.
inline operand fake_quantize(function_builder& f, integer format, const operand& x, const element_scale& s, bool one_scale,
                             const semantics& how) {
    const arithmetic single(f, data_type::float32), a(f, zero_point_type(format));
    // 1 / scale is computed as twice 0.5 / scale: onnxruntime turns x * (1 / scale) into x / scale.
    const operand quotient = how.integer_mode == integer_mode::division ? single.div(x, s.scale)
                                                                        : single.mul(x, single.mul(single.div(single.c(0.5), s.scale), 2));
    const auto bound = [&](std::int64_t code) {
        return s.zero_point.empty() ? a.c(static_cast<double>(code)) : a.sub(a.c(static_cast<double>(code)), s.zero_point);
    };
    const operand lowest = bound(qmin(format)), highest = bound(qmax(format));
    const auto held = [&](const operand& v) { return f.op("Min", {f.op("Max", {v, lowest}), highest}); };
    operand offset;  // the code minus the zero point
    if (how.zero_point_before && !s.zero_point.empty()) {
        const operand sum = single.add(quotient, a.to_single(s.zero_point));
        offset = held(a.sub(a.round(a.of_single(sum), how.rounding), s.zero_point));
    } else {
        offset = held(a.round(a.of_single(quotient), how.rounding));
    }
    const auto special = [&](integer_special rule) {
        return rule == integer_special::zero_point ? a.c(0) : rule == integer_special::lowest ? lowest : highest;
    };
    const integer_special infinity = one_scale ? how.integer_infinity : how.integer_infinity_per_channel;
    if (infinity != integer_special::highest)
        offset = a.where(single.equal(x, single.c(std::numeric_limits<double>::infinity())), special(infinity), offset);
    offset = a.without_negative_zero(offset);  // adding and subtracting 1.5 * 2^23 rounds faster, but OpenVINO drops both
    offset = a.where(single.is_nan(quotient), special(how.integer_nan), offset);
    return single.mul(a.to_single(offset), s.scale);
}

/// Returns the numbers of a table in ascending order, and for each but the first the least float32 that becomes it or a larger one.
inline std::pair<std::vector<float>, std::vector<float>> thresholds_of(const table& t, const semantics& how) {
    std::vector<float> numbers, from;
    for (int i = 0; i < t.size(); ++i)
        if (const float v = value_of(t, static_cast<std::uint32_t>(i)); v == v) numbers.push_back(v);
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    // Floats in order as integers, so that a threshold is found by halving.
    const auto ordered = [](float v) {
        const auto u = std::bit_cast<std::int32_t>(v);
        return u < 0 ? std::int64_t{INT32_MIN} - u : std::int64_t{u};
    };
    const auto number = [](std::int64_t n) { return std::bit_cast<float>(static_cast<std::int32_t>(n < 0 ? INT32_MIN - n : n)); };
    for (std::size_t k = 1; k < numbers.size(); ++k) {
        std::int64_t low = ordered(numbers[k - 1]), high = ordered(numbers[k]);
        while (high - low > 1) {
            const std::int64_t middle = low + (high - low) / 2;
            const int code = reference::code_of(t, number(middle), how, 0);
            (value_of(t, static_cast<std::uint32_t>(code)) >= numbers[k] ? high : low) = middle;
        }
        from.push_back(number(high));
    }
    return {numbers, from};
}

/// y = scale * (the number that x / scale becomes): halves the list of numbers until one is left.
inline operand fake_quantize(function_builder& f, const table& format, const operand& x, const element_scale& s, const semantics& how) {
    const arithmetic a(f, data_type::float32);
    auto [numbers, from] = thresholds_of(format, how);
    std::size_t width = 1;
    while (width < numbers.size()) width *= 2;
    from.insert(from.begin(), 0.0f);
    from.resize(width, std::numeric_limits<float>::quiet_NaN());  // which no value reaches
    numbers.resize(width, 0.0f);
    const auto list = [&](const std::vector<float>& v, const char* stem) {
        return f.constant(make_tensor<float>({static_cast<std::int64_t>(v.size())}, v), stem);
    };
    const operand quotient = s.scale.empty() ? x : a.div(x, s.scale), starts = list(from, "starts");
    operand at = f.op("Mul", {f.cast(a.is_nan(quotient), data_type::int64), f.number(0, data_type::int64)});
    for (std::size_t step = width / 2; step != 0; step /= 2) {
        const operand next = f.op("Add", {at, f.number(static_cast<double>(step), data_type::int64)}),
                      start = f.op("Gather", {starts, next});
        at = f.op("Where", {a.either(a.less(start, quotient), a.equal(start, quotient)), next, at});
    }
    const float for_nan = reference::quantize(format, std::numeric_limits<float>::quiet_NaN(), 1, how, 0);
    const operand y = a.where(a.is_nan(quotient), a.c(static_cast<double>(for_nan)), f.op("Gather", {list(numbers, "numbers"), at}));
    return s.scale.empty() ? y : a.mul(y, s.scale);
}

/// Returns the largest magnitude that a format without a zero point reaches at scale 1.
inline double reach_of(const format& f) {
    if (const table* t = std::get_if<table>(&f)) return reach(*t);
    return max_value(std::get<floating>(f));
}

/// Computes scale and zero point from the values themselves, in the float64 steps of execute::range_scale.
inline element_scale range_scale(function_builder& f, const format& of, const operand& x) {
    const arithmetic single(f, data_type::float32), d(f, data_type::float64);
    const operand all = f.op("Reshape", {x, f.integers({-1})});
    const operand finite = single.where(single.less(single.abs(all), single.c(std::numeric_limits<double>::infinity())), all,
                                        single.c(0));  // -0 or +0: no matter
    const auto scalar = [&](const char* type) {
        return f.cast(f.op("Reshape", {f.reduce(type, finite, {0}), f.integers({})}), data_type::float64);
    };
    const operand high = d.max(scalar("ReduceMax"), 0), low = d.min(scalar("ReduceMin"), 0);
    const auto largest = [&] { return f.op("Max", {f.op("Neg", {low}), high}); };
    operand scale, zero;
    if (const integer* g = std::get_if<integer>(&of)) {
        const auto qlow = static_cast<double>(qmin(*g)), qhigh = static_cast<double>(qmax(*g));
        if (g->symmetric || g->pow2) {
            scale = g->is_signed ? d.div(largest(), d.c(qhigh)) : d.div(d.mul(largest(), 2), d.c(qhigh - qlow));
            if (!g->is_signed) zero = d.c(power_of_two(used_bits(*g) - 1));
            if (g->pow2) {
                const operand below = d.power_below(scale, 1);
                scale = d.where(d.less(below, scale), d.mul(below, 2), below);
            }
        } else {
            scale = d.div(d.sub(high, low), d.c(qhigh - qlow));
            zero = d.clip(f.op("Round", {d.sub(d.c(qlow), d.div(low, scale))}), qlow, qhigh);
        }
    } else {
        scale = d.div(largest(), d.c(reach_of(of)));
    }
    const operand rounded = f.cast(scale, data_type::float32),
                  tiny = single.less(rounded, single.c(static_cast<double>(std::numeric_limits<float>::min())));
    element_scale s{.scale = single.where(tiny, single.c(1), rounded), .zero_point = {}};
    if (!zero.empty()) {
        zero = d.where(tiny, d.c(0), zero);
        s.zero_point = zero_point_type(std::get<integer>(of)) == data_type::float64 ? zero : f.cast(zero, data_type::float32);
    }
    return s;
}

// Builds block formats from standard operators: what qk/reference/ computes for one block, computed for all blocks at once.
//
// Scales are computed in float64, where every float32 is normal; elements in float32, or in float64 where float32 is not exact.
// Blocks have the shape [..., block, inner], microexponents [..., sub-blocks, sub-block, inner].

/// What is known of each block before any rounding.
class surveyed_blocks {
  public:
    /// `element`: that of the format, if it is a float.
    surveyed_blocks(function_builder& f, const operand& x, block_specials rule, floating element = fp32)
        : f_(f), a_(f, data_type::float32), x_(x), keeps_zero_sign_(has_negative_zero(element)) {
        const operand every = a_.abs(x);
        // A sum of magnitudes is NaN if one of them is; for a maximum that is not certain.
        const operand sum = rule == block_specials::pass_through ? "" : f.reduce("ReduceSum", every, {-2});
        const operand most = rule == block_specials::pass_through ? "" : f.reduce("ReduceMax", every, {-2});
        if (rule == block_specials::block_nan) {
            amax_ = most;
            const operand worst = a_.where(a_.is_nan(sum), sum, most);
            poison_ = a_.sub(worst, worst);
            return;
        }
        const operand infinity = a_.c(std::numeric_limits<double>::infinity());
        passes_ = a_.is_nan(a_.sub(x, x));
        x_ = a_.where(passes_, a_.c(0), x);
        amax_ = f.reduce("ReduceMax", a_.abs(x_), {-2});
        passed_ = x;
        if (rule == block_specials::nan_only) {
            poison_ = a_.where(a_.is_nan(sum), sum, a_.c(0));
            dead_ = a_.equal(most, infinity);
            passed_ = a_.add(x, poison_);
        }
        if (!is_signed(element)) passed_ = a_.where(a_.less(x, a_.c(0)), poison_.empty() ? a_.c(0) : poison_, passed_);
    }

    const operand& x() const { return x_; }        ///< 0 in place of what passes through
    const operand& amax() const { return amax_; }  ///< of the finite values
    /// Returns a block's scale for the multiplication that makes the results: NaN where the block becomes NaN.
    operand scale_of_results(const arithmetic& a, const operand& scale) const {
        if (poison_.empty()) return scale;
        return a.add(scale, a.of_single(poison_));
    }
    /// Returns the results y (float32) joined with what passes through.
    operand results(operand y) const {
        if (!dead_.empty()) {  // zeros take x's sign from 1 / x, which is never a zero whose sign `where` would lose
            const operand sign = keeps_zero_sign_ ? a_.clip(a_.div(a_.c(1), x_), -1, 1) : a_.c(1);
            y = a_.mul(a_.where(dead_, a_.add(sign, poison_), y), a_.where(dead_, a_.c(0), a_.c(1)));
        }
        return passes_.empty() ? y : a_.where(passes_, passed_, y);
    }

  private:
    function_builder& f_;
    arithmetic a_;
    operand x_, amax_;
    operand poison_;  ///< 0, or NaN for blocks that become NaN
    operand dead_;    ///< blocks in which an Inf leaves nothing but zeros
    operand passes_;  ///< which elements pass through; passed_: as what
    operand passed_;
    bool keeps_zero_sign_;
};

/// Returns the largest power of two in amax (float32). In float32 that is done near 1: what is small is lifted, what is large brought down,
/// by powers of two, and the result goes back the way that amax came.
inline operand top_power(const arithmetic& s, const operand& amax) {
    if (s.is_wide()) return s.power_below(s.of_single(amax), 1);
    const operand small = s.less(amax, s.c(0x1p-62)), large = s.less(s.c(0x1p63), amax);
    const auto by_size = [&](double of_small, double of_large) {
        return s.where(small, s.c(of_small), s.where(large, s.c(of_large), s.c(1)));
    };
    return s.mul(s.power_below(s.mul(amax, by_size(0x1p87, 0x1p-64)), 1), by_size(0x1p-87, 0x1p64));
}

/// Returns 1 for blocks of zeros, which need no scale: the smallest scale is subnormal, and slow to multiply with.
inline operand unless_zero(function_builder& f, const arithmetic& s, const operand& amax, const operand& scale) {
    return s.where(f.op("Equal", {amax, f.number(0, data_type::float32)}), s.c(1), scale);
}

inline constexpr const char* searched_scales =
    "has block scales that are searched, which no standard operator does: say scale rule even, rceil or ceil_7_25";
[[noreturn]] inline void refuse_search() { throw error(searched_scales); }

/// Returns the power-of-two scale of MX blocks: qk::reference::scale_exponent. In float32 nothing overflows on the way, because the factor
/// `below` comes first, and what underflows would be clamped.
inline operand block_scale(function_builder& f, const arithmetic& s, const microscaling& format, const operand& amax,
                           const semantics& how) {
    const operand exact = s.of_single(amax), top = top_power(s, amax);
    const double below = power_of_two(-element_max_exponent(format));
    const auto scaled = [&](double by) { return s.mul(top, by); };
    operand scale;
    switch (how.scale_rule) {
        case scale_rule::floor: scale = scaled(below); break;
        case scale_rule::ceil: scale = s.where(s.less(top, exact), s.mul(scaled(below), 2), scaled(below)); break;
        case scale_rule::rceil:
        case scale_rule::ceil_7_25: {
            const double largest = how.scale_rule == scale_rule::rceil ? reference::element_max(format) : stretched_maximum(format);
            const double unit = power_of_two(-reference::exponent_of(largest));
            const operand least = scaled(unit);
            scale = s.where(s.less(scaled(largest * unit), exact), s.mul(least, 2), least);
            break;
        }
        case scale_rule::four_over_six:
        case scale_rule::search: refuse_search(); break;
        case scale_rule::even: {  // amax at or beyond the tie below the next power of two counts as that power
            const operand tie = scaled(2 - power_of_two(-reference::element_mantissa_bits(format) - 1));
            scale = s.where(s.less(exact, tie), scaled(below), s.mul(scaled(below), 2));
            break;
        }
    }
    return unless_zero(f, s, amax, how.clamp_mx_scale ? s.clip(scale, 0x1p-127, 0x1p127) : scale);
}

inline operand fake_quantize(function_builder& f, const microscaling& format, const operand& x, const semantics& how) {
    const bool integers = has_integer_elements(format);
    // Scales that are not clamped need not fit float32.
    const arithmetic a(f, is_directed(how.rounding) || !how.clamp_mx_scale || !(integers || fits_float32(format.element))
                              ? data_type::float64
                              : data_type::float32);
    const surveyed_blocks b(f, x, how.mx_specials, integers ? fp32 : format.element);
    const double unit = integers ? power_of_two(-(format.integer_bits - 2)) : 1;
    const operand scale = a.mul(block_scale(f, a, format, b.amax(), how), unit);
    const operand quotient = a.div(a.of_single(b.x()), scale);
    operand element;
    zero_sign rule = zero_sign::positive;
    if (integers) {
        const double highest = power_of_two(format.integer_bits - 1) - 1;
        element = a.clip(a.round(quotient, how.rounding), how.mxint_uses_lowest ? -highest - 1 : -highest, highest);
        rule = how.mxint_zero;
    } else {
        element = on_grid(a, format.element, quotient, how.rounding);
        if (has_negative_zero(format.element)) rule = how.mx_zero;
    }
    // Whether a quotient is zero does not depend on the unit, but where it underflows does.
    const operand tested = integers && rule != zero_sign::positive && rule != zero_sign::kept ? a.mul(quotient, unit) : quotient;
    return b.results(a.to_single(a.mul(a.with_zero_sign(element, tested, rule, how.rounding), b.scale_of_results(a, scale))));
}

inline operand fake_quantize(function_builder& f, const block_float& format, const operand& x, const semantics& how) {
    const arithmetic a(f, is_directed(how.rounding) ? data_type::float64 : data_type::float32);
    const surveyed_blocks b(f, x, how.bfp_specials);
    const double lowest_power = power_of_two(-reference::exponent_bias(format));
    const double highest_power = power_of_two(reference::largest_exponent_code(format) - reference::exponent_bias(format));
    // An exponent field of 0 stands for 2^-127, whatever the subnormal.
    operand top = unless_zero(f, a, b.amax(), a.min(a.max(top_power(a, b.amax()), std::max(0x1p-127, lowest_power)), highest_power));
    const auto step_of = [&](const operand& power) { return a.mul(power, power_of_two(1 - format.mantissa_bits)); };
    const operand in = a.of_single(b.x());
    const double highest = reference::highest_element(format);
    operand step = step_of(top), quotient = a.div(in, step), element = a.round(quotient, how.rounding);
    if (format.bump) {
        const auto lowest_of = [&](const operand& power) {  // -2^128 is not a float32
            return a.where(a.less(power, a.c(0x1p127)), a.c(-highest - 1), a.c(-highest));
        };
        const operand above = a.less(a.c(highest), f.reduce("ReduceMax", element, {-2}));
        const operand below = a.less(f.reduce("ReduceMin", element, {-2}), lowest_of(top));
        const operand can = a.less(top, a.c(highest_power));
        top = a.where(a.both(can, a.either(above, below)), a.mul(top, 2), top);
        step = step_of(top);
        quotient = a.div(in, step);
        element = a.min(f.op("Max", {a.round(quotient, how.rounding), lowest_of(top)}), highest);
    } else {
        element = a.clip(element, -highest, highest);
    }
    const zero_sign rule = has_negative_zero(format) ? how.bfp_zero : zero_sign::positive;
    return b.results(a.to_single(a.mul(a.with_zero_sign(element, quotient, rule, how.rounding), b.scale_of_results(a, step))));
}

inline operand fake_quantize(function_builder& f, const microexponent& format, const operand& x, const semantics& how) {
    const int shifts = (1 << format.shift_bits) - 1;
    const bool wide = is_directed(how.rounding) || 127 + shifts + format.mantissa_bits - 1 > 149;  // the smallest step
    const arithmetic s(f, wide ? data_type::float64 : data_type::float32), a(f, data_type::float32);
    // Runtimes are slow where an axis of the length of a sub-block is reduced, or where values of one shape meet those of another along it:
    // sub-blocks are taken apart once, and their steps repeated once.
    const operand magnitude = a.abs(x);
    std::vector<operand> each;
    for (std::int64_t i = 0; i < format.sub_block_size; ++i)
        each.push_back(f.op("Slice", {magnitude, f.integers({i}), f.integers({i + 1}), f.integers({-2})}));
    operand sub_amax = each[0], sub_sum = each[0];
    for (std::size_t i = 1; i < each.size(); ++i) sub_amax = f.op("Max", {sub_amax, each[i]}), sub_sum = a.add(sub_sum, each[i]);
    const operand sum = f.reduce("ReduceSum", sub_sum, {-3}), amax = f.reduce("ReduceMax", sub_amax, {-3});
    const operand worst = a.where(a.is_nan(sum), sum, amax), poison = s.of_single(a.sub(worst, worst));
    // A block's exponent field as a power of two; field 0 stands for 2^-127. A sub-block's is its share of the block's. That of a sub-block
    // in which everything is subnormal, and becomes 0, does not matter.
    const operand top = unless_zero(f, s, amax, s.max(top_power(s, amax), 0x1p-127));
    const operand share = s.clip(s.power_below(s.div(s.of_single(sub_amax), top), 1), power_of_two(-shifts), 1);
    const operand of_sub_block = s.mul(share, s.add(s.mul(top, power_of_two(1 - format.mantissa_bits)), poison));
    const operand exact_step = f.concat(std::vector<operand>(each.size(), of_sub_block), -2), step = s.to_single(exact_step);
    const double largest = power_of_two(format.mantissa_bits) - 1;
    operand element = is_directed(how.rounding) ? s.to_single(s.round(s.div(s.of_single(x), exact_step), how.rounding))
                                                : a.round(a.div(x, step), how.rounding);
    element = a.clip(element, -largest, largest);
    const operand normal = f.op("Floor", {a.clip(a.mul(magnitude, 0x1p126), 0, 1)});  // 0 for subnormals, which become zeros
    return a.mul(a.mul(element, normal), step);
}

/// `tensor_scale` is the scale of the whole tensor, a scalar; if empty, it is computed from the tensor itself, or 1 if the format has none.
template <qk::detail::under_floating_scales Format>
operand fake_quantize(function_builder& f, const Format& format, const operand& x, const semantics& how, operand tensor_scale) {
    const arithmetic a(f, data_type::float32), d(f, data_type::float64);
    if (is_searched(how.scale_rule)) refuse_search();
    const surveyed_blocks b(f, x, how.mx_specials, format.element);
    if (tensor_scale.empty() && !format.tensor_scale) tensor_scale = a.c(1);
    if (tensor_scale.empty()) {
        const operand all = f.op("Reshape", {x, f.integers({-1})}),
                      finite = a.where(a.less(a.abs(all), a.c(std::numeric_limits<double>::infinity())), all, a.c(0));
        const operand amax = f.op("Reshape", {f.reduce("ReduceMax", a.abs(finite), {0}), f.integers({1})});
        tensor_scale = a.div(amax, a.c(max_value(format.element) * max_value(format.scale)));
    }
    const operand none = a.equal(tensor_scale, a.c(0));
    const operand of_max = a.div(a.div(b.amax(), a.c(max_value(format.element))), a.where(none, a.c(1), tensor_scale));
    const arithmetic s(f, fits_float32(format.scale) ? data_type::float32 : data_type::float64);
    const operand block = s.to_single(on_grid(s, format.scale, s.of_single(of_max), rounding::half_even));
    const operand scale = a.mul(a.where(none, a.c(0), block), tensor_scale), empty = a.equal(scale, a.c(0)),
                  divisor = a.where(empty, a.c(1), scale);
    const operand quotient = a.div(b.x(), divisor);
    operand element = fits_float32(format.element) && !is_directed(how.rounding)
                          ? on_grid(a, format.element, quotient, how.rounding)
                          : f.cast(on_grid(d, format.element, f.cast(quotient, data_type::float64), how.rounding), data_type::float32);
    element = a.with_zero_sign(element, quotient, has_negative_zero(format.element) ? how.mx_zero : zero_sign::positive, how.rounding);
    return b.results(a.mul(a.where(empty, a.c(0), element), b.scale_of_results(a, divisor)));
}

/// Equal keys mean the same function.
struct function_key {
    qk::format format = fp32;
    qk::semantics semantics;
    block_layout layout = block_layout::whole;
    int scales = 0;             ///< inputs after x: 1 for a scale, 2 with a zero point
    bool one_scale = true;      ///< one for the whole tensor
    bool block_scales = false;  ///< integers and floats: a scale for each run of `block`
    int block = 0;
    bool dynamic = false;  ///< scale and zero point are computed from the values
    bool decodes = false;  ///< decodes stored codes to float32
    // Members for functions that decode:
    bool each_run = false;      ///< decodes in each run, with nothing that a runtime folds when it loads the model
    bool whole_bytes = false;   ///< no code straddles two bytes, and every byte is full
    bool whole_blocks = false;  ///< no block is shorter than the others
    bool zero_codes = false;    ///< zero points of blocks are packed like the elements, not floats
    bool by_kernel = false;     ///< decodes in each run what qk's library for onnxruntime can decode, and is named so
    // Members for products, which decode a matrix and multiply with it:
    data_type product = data_type::undefined;  ///< type of the input and the result; undefined: no product
    bool bias = false;
    bool integer_sums = false;  ///< the input is rounded to int8 by block of 32
    bool looks_up = false;      ///< a table, of which the input names rows, in place of a matrix; `product` is the table's type
    bool is_product() const { return product != data_type::undefined; }
    friend bool operator==(const function_key&, const function_key&) = default;
};

/// Returns the body that quantizes and dequantizes.
inline onnx::FunctionProto fake_quantize_function(const function_key& k, const std::string& name, int opset) {
    function_builder f(name, opset, text_of(k.format) + ": float32 to the nearest value of the format");
    const operand x = f.input("x");
    element_scale s;
    if (k.scales > 0) s.scale = f.input("scale");
    if (k.scales > 1) s.zero_point = f.input("zero_point");
    if (is_block_format(k.format)) {
        const microexponent* parts = std::get_if<microexponent>(&k.format);
        return f.finish(in_blocks(f, x, k.layout, block_size(k.format), parts ? parts->sub_block_size : 0, [&](const operand& blocks) {
            return std::visit(
                [&](const auto& g) -> operand {
                    using family = std::remove_cvref_t<decltype(g)>;
                    if constexpr (qk::detail::under_floating_scales<family>) return fake_quantize(f, g, blocks, k.semantics, s.scale);
                    else if constexpr (qk::detail::has_blocks<family>) return fake_quantize(f, g, blocks, k.semantics);
                    else return blocks;  // no format of blocks
                },
                k.format);
        }));
    }
    if (k.dynamic) s = range_scale(f, k.format, x);
    const auto elements = [&](const operand& v) {
        if (const floating* g = std::get_if<floating>(&k.format))
            return detail::fake_quantize(f, *g, v, s, k.semantics);  // qualified: qk::fake_quantize has the same parameters
        if (const table* g = std::get_if<table>(&k.format)) return detail::fake_quantize(f, *g, v, s, k.semantics);
        return detail::fake_quantize(f, std::get<integer>(k.format), v, s, k.one_scale, k.semantics);
    };
    if (!k.block_scales) return f.finish(elements(x));
    return f.finish(in_blocks(f, x, block_layout::any_length, k.block, 0, [&](const operand& blocks) {
        const operand inner = f.op("Slice", {f.op("Shape", {blocks}), f.integers({2}), f.integers({3}), f.integers({0})});
        const operand grid = f.concat({f.integers({-1, 1}), inner});
        s.scale = f.op("Reshape", {s.scale, grid});
        if (!s.zero_point.empty()) s.zero_point = f.op("Reshape", {s.zero_point, grid});
        return elements(blocks);
    }));
}

// The model-local functions of one export: one for each format, semantics and layout of blocks, whatever the number of tensors.

// Builds functions that decode packed codes to float32: from bits to whole numbers, through a table or arithmetic to elements, times their
// scales. They read constants alone, so runtimes that fold constants run them once, when they load the model; what each step leaves in such
// a runtime's memory is several times the floats, so large constants are decoded in each run instead (function_key::each_run).

/// Returns a constant with one axis.
template <class T>
operand row_of(function_builder& f, const std::vector<T>& values, const char* stem) {
    return f.constant(make_tensor<T>({static_cast<std::int64_t>(values.size())}, values), stem);
}

/// Returns bytes as int32. `each_run` takes them through DequantizeLinear, which onnxruntime does not fold.
inline operand whole_numbers(function_builder& f, operand bytes, bool each_run) {
    if (each_run) bytes = f.op("DequantizeLinear", {bytes, f.number(1, data_type::float32)});
    return f.cast(bytes, data_type::int32);
}

/// Unpacks codes of `width` bits to int32, [count], from the planes of pack_planes. A code lies in one byte of its group or in two.
inline operand unpack(function_builder& f, const std::vector<operand>& planes, int width, const operand& count, bool each_run) {
    const auto row = [&](const std::vector<std::int32_t>& v) { return row_of(f, v, "i"); };
    operand code;
    for (int p = 0; p < plane_count(width); ++p) {
        const int w = plane_bits(width, p);
        const packing_group g = group_of(w);
        operand part = whole_numbers(f, planes[static_cast<std::size_t>(p)], each_run);
        if (w < 8) {
            std::vector<std::int64_t> low, high;
            std::vector<std::int32_t> places;
            for (int i = 0; i < g.codes; ++i) {
                low.push_back(i * w / 8);
                high.push_back(std::min(low.back() + 1, std::int64_t{g.bytes} - 1));
                places.push_back(1 << (i * w % 8));
            }
            part = f.op("Reshape", {part, f.integers({-1, g.bytes})});
            if (g.bytes > 1)
                part = f.op("Add", {f.gather(part, f.integers(low), 1), f.op("Mul", {f.gather(part, f.integers(high), 1), row({256})})});
            part = f.op("Mod", {f.op("Div", {part, row(places)}), row({1 << w})});
            part = f.op("Slice", {f.op("Reshape", {part, f.integers({-1})}), f.integers({0}), count, f.integers({0})});
        }
        if (p > 0) part = f.op("Mul", {part, row({1 << (8 * p)})});
        code = p == 0 ? part : f.op("Add", {code, part});
    }
    return code;
}

/// Unpacks codes of more than 8 bits that follow each other without gaps, as in layout 1.
inline operand unpack_wide(function_builder& f, const operand& bytes, int width, const operand& count, bool each_run) {
    const packing_group g = group_of(width);
    const bool narrow = width <= 17;  // a code and the bits before it lie in 24 bits
    const auto row = [&](const std::vector<std::int64_t>& v) {
        return narrow ? row_of(f, std::vector<std::int32_t>(v.begin(), v.end()), "i") : row_of(f, v, "i");
    };
    operand all = whole_numbers(f, bytes, each_run);
    if (!narrow) all = f.cast(all, data_type::int64);
    all = f.op("Reshape", {all, f.integers({-1, g.bytes})});
    operand code;
    for (int k = 0; 8 * k < width + 7; ++k) {  // byte k of each code
        std::vector<std::int64_t> from, weight;
        for (int i = 0; i < g.codes; ++i) {
            from.push_back(std::min(i * width / 8 + k, g.bytes - 1));
            weight.push_back(8 * k < i * width % 8 + width ? std::int64_t{1} << (8 * k) : 0);
        }
        const operand part = f.op("Mul", {f.gather(all, f.integers(from), 1), row(weight)});
        code = k == 0 ? part : f.op("Add", {code, part});
    }
    std::vector<std::int64_t> places;
    for (int i = 0; i < g.codes; ++i) places.push_back(std::int64_t{1} << (i * width % 8));
    code = f.op("Mod", {f.op("Div", {code, row(places)}), row({std::int64_t{1} << width})});
    code = f.op("Slice", {f.op("Reshape", {code, f.integers({-1})}), f.integers({0}), count, f.integers({0})});
    return narrow ? code : f.cast(code, data_type::int32);
}

/// Looks up the elements of all codes of a byte at once: [bytes, codes a byte].
inline operand elements_of_bytes(function_builder& f, const format& of, int width, const operand& bytes) {
    const std::vector<float> one = element_table(of, width);
    const std::int64_t codes = 8 / width;
    std::vector<float> table;
    for (std::size_t byte = 0; byte < 256; ++byte)
        for (std::int64_t i = 0; i < codes; ++i) table.push_back(one[byte >> (i * width) & (one.size() - 1)]);
    return f.op("Gather", {f.constant(make_tensor<float>({256, codes}, table), "elements"), bytes});
}

inline operand elements_of(function_builder& f, const format& of, int width, const operand& code) {
    const arithmetic a(f, data_type::float32);
    if (width <= 8) return f.op("Gather", {row_of(f, element_table(of, width), "elements"), code});
    const auto whole = [&](std::int64_t v) {
        return f.constant(make_tensor<std::int32_t>({}, std::vector<std::int32_t>{static_cast<std::int32_t>(v)}), "i");
    };
    const auto split = [&](const operand& v, int bits) {  // returns what lies above the lowest `bits` bits, and those bits
        const operand one = whole(std::int64_t{1} << bits), high = f.op("Div", {v, one});
        return std::pair{high, f.op("Sub", {v, f.op("Mul", {high, one})})};
    };
    const block_float* b = std::get_if<block_float>(&of);
    const integer* i = std::get_if<integer>(&of);
    if (i != nullptr && !i->is_signed) return f.cast(code, data_type::float32);
    if (i != nullptr || (b != nullptr && b->bump) || std::holds_alternative<microscaling>(of)) {
        const operand turned = f.op("Mod", {f.op("Add", {code, whole(std::int64_t{1} << (width - 1))}), whole(std::int64_t{1} << width)});
        const operand n = f.cast(f.op("Sub", {turned, whole(std::int64_t{1} << (width - 1))}), data_type::float32);
        return std::holds_alternative<microscaling>(of) ? a.mul(n, power_of_two(2 - width)) : n;
    }
    const auto [sign, magnitude] = split(code, width - 1);
    operand n = f.cast(magnitude, data_type::float32);
    if (const floating* g = std::get_if<floating>(&of)) {
        const auto [field, mantissa] = split(magnitude, g->mantissa_bits);
        std::vector<float> steps, hidden;
        for (int e = 0; e < 1 << g->exponent_bits; ++e) {
            const bool infinite = g->specials == specials::ieee && e == (1 << g->exponent_bits) - 1;
            steps.push_back(infinite ? std::numeric_limits<float>::infinity()
                                     : static_cast<float>(power_of_two(std::max(e, 1) - g->bias - g->mantissa_bits)));
            hidden.push_back(e == 0 ? 0.0f : static_cast<float>(power_of_two(g->mantissa_bits)));
        }
        const auto table = [&, field = field](const std::vector<float>& t) { return f.op("Gather", {row_of(f, t, "table"), field}); };
        n = a.mul(a.add(f.cast(mantissa, data_type::float32), table(hidden)), table(steps));
    }
    return a.mul(n, a.sub(a.c(1), a.mul(f.cast(sign, data_type::float32), 2)));
}

/// Returns the scales of blocks, one after the other, as floats.
inline operand scales_of_blocks(function_builder& f, const function_key& k, const std::vector<operand>& codes, int width,
                                const operand& scale) {
    const operand values = f.op("Gather", {row_of(f, scale_table(k.format, width), "scale_values"),
                                           unpack(f, codes, width, f.integers_of_call("grid_count"), k.each_run)});
    return scale.empty() ? values : arithmetic(f, data_type::float32).mul(values, scale);
}

/// Spreads scale and zero point over positions along the axis of blocks, some of which may be short. `scale` is [outer, blocks, inner].
inline void spread_over_blocks(function_builder& f, const function_key& k, const std::vector<operand>& shifts, operand& scale,
                               operand& zero_point) {
    const arithmetic a(f, data_type::float32);
    const auto number = [&](std::int64_t v) { return f.number(static_cast<double>(v), data_type::int64); };
    const std::int64_t block = is_block_format(k.format) ? block_size(k.format) : k.block;
    const operand position = f.op("Range", {number(0), f.integer_of_call("length"), number(1)}),
                  block_of = f.op("Div", {position, number(block)});
    scale = f.gather(scale, block_of, 1);
    if (!zero_point.empty()) zero_point = f.gather(zero_point, block_of, 1);
    const microexponent* m = std::get_if<microexponent>(&k.format);
    if (m == nullptr) return;
    const std::int64_t parts = static_cast<std::int64_t>(reference::sub_blocks(*m));
    const operand inside = f.op("Div", {f.op("Mod", {position, number(block)}), number(m->sub_block_size)});
    const operand part_of = f.op("Add", {f.op("Mul", {block_of, number(parts)}), inside});
    std::vector<float> halves;
    for (int s = 0; s < 1 << m->shift_bits; ++s) halves.push_back(static_cast<float>(power_of_two(-s)));
    const operand shift =
        f.op("Gather", {row_of(f, halves, "halves"), unpack(f, shifts, m->shift_bits, f.integers_of_call("part_count"), k.each_run)});
    scale = a.mul(scale, f.gather(f.op("Reshape", {shift, f.integers_of_call("parts")}), part_of, 1));
}

/// Adds what decodes, and returns the values in the shape of the call's attribute. Its inputs are the planes of the codes, of the scales
/// and of the shifts, then `scale` and `zero_point` (or `zero_codes`, packed, `zero_count` of them) where the key has them. Its attributes
/// are: `shape` of the result; `rows`, the shape as [outer, length, inner], or with whole blocks as [outer * blocks, block, inner]; `count`
/// of elements unless they fill bytes; for blocks `grid` ([outer, blocks, inner], or [outer * blocks, 1, inner]) and `grid_count`; where
/// some blocks are short `length`, and `parts` and `part_count` of sub-blocks.
inline operand decoded_values(function_builder& f, const function_key& k) {
    const arithmetic a(f, data_type::float32);
    const auto [element_bits, scale_bits] = code_bits(k.format);
    const auto planes = [&](const std::string& stem, int width) {
        std::vector<operand> inputs;
        if (k.is_product() && width > 8) return std::vector{f.input(stem)};
        for (int p = 0; p < plane_count(width); ++p) inputs.push_back(f.input(p == 0 ? stem : stem + "_" + std::to_string(p + 1)));
        return inputs;
    };
    const microexponent* m = std::get_if<microexponent>(&k.format);
    const std::vector<operand> codes = planes("codes", element_bits), scales = planes("scales", scale_bits),
                               shifts = planes("shifts", m ? m->shift_bits : 0);
    operand scale = k.scales > 0 ? f.input("scale") : "",
            zero_point = k.scales > 1 ? f.input(k.zero_codes ? marks::zero_codes : "zero_point") : "";
    if (k.zero_codes)
        zero_point =
            elements_of(f, k.format, element_bits, unpack(f, {zero_point}, element_bits, f.integers_of_call("zero_count"), k.each_run));
    const bool wide = k.is_product() && element_bits > 8;
    operand y = k.whole_bytes ? elements_of_bytes(f, k.format, element_bits, whole_numbers(f, codes[0], k.each_run))
                              : elements_of(f, k.format, element_bits,
                                            wide ? unpack_wide(f, codes[0], element_bits, f.integers_of_call("count"), k.each_run)
                                                 : unpack(f, codes, element_bits, f.integers_of_call("count"), k.each_run));
    y = f.op("Reshape", {y, f.integers_of_call("rows")});
    const bool blocked = is_block_format(k.format);
    if (blocked || k.block_scales) {
        const operand grid = f.integers_of_call("grid");
        scale = f.op("Reshape", {blocked ? scales_of_blocks(f, k, scales, scale_bits, scale) : scale, grid});
        if (!zero_point.empty()) zero_point = f.op("Reshape", {zero_point, grid});
        if (!k.whole_blocks) spread_over_blocks(f, k, shifts, scale, zero_point);
    }
    if (!zero_point.empty()) y = a.sub(y, zero_point);
    if (!scale.empty()) y = a.mul(y, scale);
    return f.op("Reshape", {y, f.integers_of_call("shape")});
}

inline onnx::FunctionProto decode_function(const function_key& k, const std::string& name, int opset) {
    function_builder f(name, opset, text_of(k.format) + ": packed codes to float32");
    return f.finish(decoded_values(f, k));
}

/// Rounds x to whole numbers of a scale by block of 32 along its last axis, the last one short where `inputs` is no multiple: the largest
/// magnitude / 127, to nearest even. 0 stays 0; NaN and Inf make their block NaN. product_sums::integers, qk/product.hpp.
inline operand rounded_to_bytes(function_builder& f, const operand& x) {
    return in_blocks(f, x, block_layout::any_length, 32, 0, [&](const operand& blocks) {
        const arithmetic a(f, data_type::float32);
        const operand every = a.abs(blocks), sum = f.reduce("ReduceSum", every, {-2}), amax = f.reduce("ReduceMax", every, {-2});
        const operand worst = a.where(a.is_nan(sum), sum, amax), poison = a.sub(worst, worst);
        const operand scale = a.div(amax, a.c(127)), none = a.equal(scale, a.c(0));
        const operand whole = a.clip(f.op("Round", {a.div(blocks, a.where(none, a.c(1), scale))}), -127, 127);
        return a.mul(a.where(none, a.c(0), whole), a.add(scale, poison));
    });
}

/// Returns the body of a product: x, then a bias where the key has one, then what decodes to the matrix [outputs, inputs].
inline onnx::FunctionProto product_function(const function_key& k, const std::string& name, int opset) {
    function_builder f(name, opset,
                       text_of(k.format) + (k.looks_up ? ": rows of a table of packed codes" : ": product with a matrix of packed codes"));
    for (const char* a : {portable::attribute::turned, portable::attribute::bias, portable::attribute::sums}) f.unread(a);
    if (k.looks_up) {
        const operand rows = f.input("indices");
        return f.finish(f.gather(decoded_values(f, k), rows, 0));
    }
    const auto single = [&](const operand& v) { return k.product == data_type::float32 ? v : f.cast(v, data_type::float32); };
    operand x = single(f.input("x"));
    const operand bias = k.bias ? single(f.input("bias")) : "";
    if (k.integer_sums) x = rounded_to_bytes(f, x);
    operand y = f.op("MatMul", {x, f.op("Transpose", {decoded_values(f, k)})});
    if (k.bias) y = f.op("Add", {y, bias});
    return f.finish(k.product == data_type::float32 ? y : f.cast(y, k.product));
}

/// Returns a name that ONNX allows: letters, digits and underscores.
inline std::string identifier(std::string text) {
    for (char& c : text)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return text;
}

class function_set {
  public:
    explicit function_set(graph_writer& g) : g_(g) {
        for (const auto& f : g.target().proto().functions())
            if (f.domain() == marks::function_domain) taken_.push_back(f.name());
    }

    /// Returns the name of the function for a key; equal keys get the same function.
    const std::string& name(const function_key& key) {
        for (const auto& [k, name] : functions_)
            if (k == key) return name;
        g_.require_opset(12, "functions of standard operators");
        g_.import(marks::function_domain, 1);
        std::string stem = identifier(text_of(key.format));
        if (is_table_format(key.format)) stem = stem.substr(0, 60);  // not all of its values
        if (key.decodes)
            stem.insert(0, key.looks_up ? portable::rows_of_tables : key.is_product() ? portable::products : portable::decodes);
        if (key.by_kernel) stem += portable::in_each_run;
        if (key.product == data_type::float16) stem += portable::of_float16;
        if (key.product == data_type::bfloat16) stem += portable::of_bfloat16;
        std::string unique = stem;
        for (int i = 2; std::find(taken_.begin(), taken_.end(), unique) != taken_.end(); ++i) unique = stem + "_" + std::to_string(i);
        taken_.push_back(unique);
        return functions_.emplace_back(key, unique).second;
    }

    /// Adds the bodies to the model, for the opset that it will have.
    void finish() {
        const int opset = std::max(g_.target().opset(""), g_.required_opset());
        for (const auto& [key, name] : functions_) {
            *g_.target().proto().add_functions() = key.is_product() ? product_function(key, name, opset)
                                                   : key.decodes    ? decode_function(key, name, opset)
                                                                    : fake_quantize_function(key, name, opset);
        }
    }

  private:
    graph_writer& g_;
    std::vector<std::string> taken_;
    std::vector<std::pair<function_key, std::string>> functions_;
};

// A matrix that a product reads stands as [outputs, inputs], and in a model most often as [inputs, outputs].

template <class T>
void transpose(std::span<const T> from, std::size_t rows, std::size_t columns, std::span<T> to) {
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}
inline tensor transposed(const tensor& matrix) {
    tensor t(data_type::float32, {matrix.dim(1), matrix.dim(0)});
    transpose<float>(matrix.as<float>(), static_cast<std::size_t>(matrix.dim(0)), static_cast<std::size_t>(matrix.dim(1)), t.as<float>());
    return t;
}
/// Returns the quantizer of the transpose of a matrix of this shape. Scales of blocks turn with it.
inline quantizer transposed(quantizer q, const dims& shape) {
    const auto axis = static_cast<std::size_t>(q.flatten ? 1 : positive_axis(q.axis, 2));
    q.axis = static_cast<int>(1 - axis), q.flatten = false;
    const auto lines = static_cast<std::size_t>(shape[1 - axis]);
    if (q.block_size == 0 || lines == 0) return q;
    const auto transpose_list = [&]<class T>(std::vector<T>& list) {  // [blocks][lines] along axis 0, [lines][blocks] along axis 1
        const std::vector<T> from = list;
        const std::size_t blocks = list.size() / lines;
        if (blocks * lines != list.size()) return;  // one for all
        transpose<T>(from, axis == 0 ? blocks : lines, axis == 0 ? lines : blocks, list);
    };
    transpose_list(q.scale), transpose_list(q.zero_point);
    return q;
}

class portable_writer : public functions_writer {
  public:
    portable_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes)
        : functions_writer(g, options, notes), standard_(g, options, notes), functions_(g) {}

    std::string activation(const quantized_value& v) override {
        if (is_standard(v.how, false) && !is_called(v.how)) {
            count_pair(v.how);
            return standard_.activation(v);
        }
        if (const char* why = obstacle_to(v.how)) cannot_hold(v, why);
        if (!is_block_format(v.how.format)) ++wide_;
        return is_block_format(v.how.format) ? blocks(v) : elements(v);
    }

    std::string weight(const quantized_value& v, const tensor& value) override {
        const bool decodes = options_.inlined && has_short_block(v.how, value.shape());
        if (is_standard(v.how, true) && !v.nbits && !decodes) return standard_.weight(v, value);
        if (!decodes && is_unpacked_in_each_run(v, value)) {
            unpacks_in_each_run_ = true;
            // Must be neither folded at load, as a function of standard operators is, nor fused: Flatten is the identity here.
            quantized_value codes = v;
            codes.fine_codes = false;  // which that does already
            return flattened(standard_.weight(codes, value));
        }
        if (options_.weights != weight_storage::floats) {
            const std::optional<packed_constant> p = packed(v.how, value);
            if (p && p->bytes() + size_of_call < value.size_bytes()) {
                const std::string y = decoded(v, value, *p);
                if (!is_decoded_in_each_run(value)) return y;
                return value.rank() == 2 ? flattened(y) : g_.kept_apart(y);
            }
        }
        return g_.rounded_constant(v.name, rounded(v.how, value), describe(v.how, true));
    }

    void begin(const model& source, const precision_plan&) override { source_ = &source; }

    /// Takes the weights of a MatMul or Gemm that becomes a product, and a large table of which a Gather reads rows: decoded as a whole in
    /// each run it would take longer than all products of a token. A note says why another one does not.
    bool takes(const quantized_value& v, const tensor& value, data_type own, model::use reader) override {
        if (options_.weights != weight_storage::product || reader.node < 0) return false;
        const onnx::NodeProto& n = source_->graph().node(reader.node);
        const bool table = operator_of(n) == "Gather" && reader.input == 0 && int_attribute(n, "axis", 0) == 0 &&
                           own == data_type::float32 && is_decoded_in_each_run(value);
        if (!n.domain().empty() || (!table && ((operator_of(n) != "MatMul" && operator_of(n) != "Gemm") || reader.input != 1)))
            return false;
        const char* why = obstacle_to_product(n, v.how, value);
        const auto weights = why == nullptr ? held_for_product(v, value, is_turned(n), own) : std::nullopt;
        if (why == nullptr && !weights) why = "some values have no code, or the codes have more than 16 bits";
        if (why != nullptr) {
            notes_.push_back("weights '" + v.name + "' of '" + n.name() + "' are " + (table ? "read" : "multiplied") + " by a " +
                             n.op_type() + " of floats: " + why);
            return false;
        }
        products_.push_back({reader.node, *weights, describe(v.how)});
        return true;
    }

    bool dequantizes(const quantizer& weight) const override { return is_standard(weight, true) && standard_.dequantizes(weight); }

    bool dequantizes_activation(const quantizer& q) const override { return is_standard(q, false) && !is_called(q); }
    bool wants_constants_first() const override { return unpacks_in_each_run_; }

    void finish() override {
        standard_.finish();
        for (const planned_product& p : products_) write_product(p);
        functions_.finish();
        if (!options_.pairs_of_bytes_alone) return;
        if (wide_ > 0)
            notes_.push_back(std::to_string(wide_) +
                             " activations in formats of 16 bits, FP8 and formats that no pair holds are arithmetic of standard operators: "
                             "OpenVINO drops pairs of 16 bits, and rounds those of FP8 otherwise");
        if (halves_ > 0)
            notes_.push_back(std::to_string(halves_) +
                             " activations in bf16 are pairs of Cast, which OpenVINO drops: they stay float32 there");
        note_doubles();
    }

    void count_pair(const quantizer& q) override { halves_ += q.format == qk::format(bf16); }

    bool is_called(const quantizer& q) const override {
        const integer* i = std::get_if<integer>(&q.format);
        const floating* f = std::get_if<floating>(&q.format);
        return options_.pairs_of_bytes_alone && !q.dynamic &&
               ((i != nullptr && i->bits > 8) || (f != nullptr && (onnx_float8(*f) || *f == fp16)));
    }

  private:
    /// Says which functions compute in float64, which OpenVINO makes float32.
    void note_doubles() {
        std::string names;
        for (const auto& f : g_.target().proto().functions()) {
            const bool wide = std::ranges::any_of(f.node(), [](const onnx::NodeProto& n) {
                return operator_of(n) == "Cast" && int_attribute(n, "to", 0) == static_cast<std::int64_t>(data_type::float64);
            });
            if (wide && f.domain() == marks::function_domain) names += (names.empty() ? "" : ", ") + f.name();
        }
        if (!names.empty())
            notes_.push_back("OpenVINO gives other values to these formats, which are computed in float64, of which it makes float32: " +
                             names);
    }

    /// About how many bytes a call of a decoding function takes in a file: a smaller saving is not worth it.
    static constexpr std::size_t size_of_call = 400;

    /// Puts a matrix behind a Flatten, the identity here. A product's inputs run in the order in which their own nodes stand in the file,
    /// and the nodes of an inlined function stand behind all others: all weights would be decoded before the first product, and held.
    std::string flattened(const std::string& matrix) {
        const std::string y = g_.fresh(matrix + marks::guarded);
        set_attribute(g_.node("Flatten", {matrix}, {y}), "axis", std::int64_t{1});
        return y;
    }

    /// Returns whether the last of a constant's blocks is shorter than the others: OpenVINO loads no DequantizeLinear of such blocks.
    static bool has_short_block(const quantizer& q, const dims& shape) {
        return q.block_size > 0 && q.scale.size() > 1 && !shape.empty() &&
               view_along(shape, q.axis, q.flatten).length % static_cast<std::size_t>(q.block_size) != 0;
    }

    /// Returns whether this is a large matrix of integer codes that onnxruntime would multiply with 8-bit activations. Decoded by a
    /// function, its floats and every step on the way to them would be in onnxruntime's memory from the moment that it loads the model.
    bool is_unpacked_in_each_run(const quantized_value& v, const tensor& value) {
        if (!v.nbits || !is_standard(v.how, true) || value.rank() != 2 || value.size_bytes() < std::size_t{1} << 20 ||
            options_.weights == weight_storage::floats)
            return false;
        if (!blocks_possible_) {
            blocks_possible_ = true;
            try {
                model tried = g_.target();
                tried.reindex();
                raise_opset(tried, 21);
            } catch (const error&) {
                blocks_possible_ = false;
            }
        }
        return *blocks_possible_;
    }

    /// Returns why an activation that style qdq does not write cannot be written at all; null if it can.
    static const char* obstacle_to(const quantizer& q) {
        if (is_stochastic(q.semantics.rounding)) return "is rounded stochastically, which no standard operator does";
        if (is_searched(q.semantics.scale_rule) && is_block_format(q.format)) return searched_scales;
        if (q.semantics.rounding == rounding::to_odd) return "is rounded to odd, which no standard operator does";
        if (q.semantics.overflow == overflow_rule::propagate) return "saturates but for Inf, which has no standard operators";
        if (q.semantics.flush_inputs || q.semantics.flush_outputs) return "with subnormals flushed has no standard operators";
        if (q.format == qk::format(e8m0)) return "is a format for scales";
        if (const floating* e = number_float(q.format); e != nullptr && (!e->subnormals || exceeds_float32(*e)))
            return "has elements without subnormals or beyond float32, which have no standard operators";
        if (is_integer_format(q.format) && !q.dynamic && q.scale.empty()) return "has no scale in the plan";
        return nullptr;
    }
    /// Returns whether style qdq writes the quantizer. It writes all that it can, except integers of 2 bits, whose types would raise the
    /// opset to one that few runtimes know; activations of 4 bits with many scales, which wrap around far out of range in onnxruntime; and
    /// FP8 activations: a function needs no guards against the optimizer, is right beyond the largest value, and faster.
    static bool is_standard(const quantizer& q, bool is_weight) {
        if (qdq_writer::obstacle_to(q, is_weight) != nullptr) return false;
        if (const integer* f = std::get_if<integer>(&q.format)) return f->bits > (is_weight || q.scale.size() <= 1 ? 2 : 4);
        return is_weight || !onnx_float8(std::get<floating>(q.format));
    }
    /// Returns whether a constant is decoded in each run. onnxruntime folds what depends on constants alone when it loads a model, and
    /// holds every step of it, some ten times the floats. So matrices from 1 MiB and other constants from 32 MiB are decoded in each run:
    /// most of a language model, and little of a network of convolutions, which is decoded once.
    static bool is_decoded_in_each_run(const tensor& value) {
        return value.size_bytes() >= std::size_t{value.rank() == 2 ? 1u : 32u} << 20;
    }

    /// What a call that decodes has: the function, the names of its constants, and attributes that its body needs.
    struct decoding {
        function_key key;
        std::vector<std::string> inputs;
        std::vector<std::pair<std::string, std::variant<std::int64_t, std::vector<std::int64_t>>>> numbers;
        bool is_flat = false;

        void write_numbers(onnx::NodeProto& n) const {
            for (const auto& [name, value] : numbers) std::visit([&](const auto& v) { set_attribute(n, name, v); }, value);
        }
    };

    std::string decoded(const quantized_value& v, const tensor& value, const packed_constant& p) {
        decoding d = decoding_of(v.name, "_codes", v.how, value.shape(), p, is_decoded_in_each_run(value), {});
        const bool whole = p.shift_bits == 0 || p.view.length % static_cast<std::size_t>(block_size(v.how.format)) == 0;
        d.key.by_kernel = d.key.each_run && p.element_bits <= 8 && p.scale_bits <= 8 && whole;
        onnx::NodeProto& n = call(v, v.how, d.key, d.inputs, d.is_flat);
        d.write_numbers(n);
        return n.output(0);
    }

    /// Holds the constants. `of` is the key of a product, whose codes follow each other without gaps, or has nothing of its own.
    decoding decoding_of(const std::string& name, const char* codes_mark, const quantizer& q, const dims& value_shape,
                         const packed_constant& p, bool each_run, const function_key& of) {
        const std::size_t size = p.view.outer * p.view.length * p.view.inner;
        const bool blocked = is_block_format(q.format);
        const auto block = static_cast<std::size_t>(blocked ? block_size(q.format) : q.block_size);
        decoding d{.key = of, .inputs = {}, .numbers = {}, .is_flat = q.flatten && (blocked || q.block_size > 0)};
        function_key& key = d.key;
        key.format = q.format;
        key.one_scale = q.scale.size() <= 1;
        key.block_scales = !blocked && q.block_size > 0;
        key.block = blocked ? 0 : q.block_size;
        key.decodes = true;
        key.each_run = each_run;
        key.whole_bytes = 8 % p.element_bits == 0 && size * static_cast<std::size_t>(p.element_bits) % 8 == 0;
        key.whole_blocks = block > 0 && p.shift_bits == 0 && p.view.length % block == 0;
        unpacks_in_each_run_ = unpacks_in_each_run_ || key.each_run;
        std::vector<std::string>& inputs = d.inputs;
        const auto planes = [&](const std::vector<tensor>& all, const char* stem) {
            for (const tensor& plane : all) inputs.push_back(g_.constant(name + stem, plane));
        };
        planes(p.elements, codes_mark);
        planes(p.scales, "_scales");
        planes(p.shifts, "_shifts");
        const auto number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
        const std::int64_t outer = number(p.view.outer), inner = number(p.view.inner), blocks = number(p.blocks);
        using list = std::vector<std::int64_t>;
        if (p.tensor_scale != 0 || (!blocked && (is_integer_format(q.format) || has_scale(q)))) {
            dims shape;
            if (key.block_scales) shape = {outer, blocks, inner};
            else if (!key.one_scale) shape = {number(p.view.length), 1};
            key.scales = 1;
            inputs.push_back(
                g_.constant(name + "_scale", make_tensor<float>(shape, blocked ? std::vector<float>{p.tensor_scale} : q.scale)));
            if (is_shifted(q)) {
                key.scales = 2;
                const std::optional<tensor> codes = packed_zero_points(q);
                key.zero_codes = codes.has_value();
                inputs.push_back(key.zero_codes
                                     ? g_.constant(name + "_zero_codes", *codes)
                                     : g_.constant(name + "_zero_point",
                                                   zero_points(q, q.zero_point.size() == 1 && !key.block_scales ? dims{} : shape)));
                if (key.zero_codes) d.numbers.emplace_back("zero_count", list{number(q.zero_point.size())});
            }
        }
        d.numbers.emplace_back(portable::attribute::shape, list(value_shape.begin(), value_shape.end()));
        d.numbers.emplace_back("rows",
                               key.whole_blocks ? list{outer * blocks, number(block), inner} : list{outer, number(p.view.length), inner});
        if (!key.whole_bytes) d.numbers.emplace_back("count", list{number(size)});
        if (block > 0) {
            d.numbers.emplace_back("grid", key.whole_blocks ? list{outer * blocks, 1, inner} : list{outer, blocks, inner});
            if (!key.whole_blocks) d.numbers.emplace_back("length", number(p.view.length));  // of the axis: some blocks are short
        }
        if (blocked) d.numbers.emplace_back("grid_count", list{number(p.scale_count)});
        if (p.shift_bits > 0) {
            d.numbers.emplace_back("parts", list{outer, number(p.shift_count) / (outer * inner), inner});
            d.numbers.emplace_back("part_count", list{number(p.shift_count)});
        }
        return d;
    }

    onnx::NodeProto& call(const quantized_value& v, const quantizer& asked, const function_key& key, const std::vector<std::string>& inputs,
                          bool is_flat = false) {
        onnx::NodeProto& n = g_.node(functions_.name(key), inputs, {g_.fresh(v.name + marks::rounded)}, marks::function_domain);
        n.set_doc_string(describe(asked));
        state_meaning(n, v.how, key, is_flat);
        return n;
    }

    static portable::scale_source scales_in(const function_key& key) {
        using enum portable::scale_source;
        if (is_block_format(key.format)) return own;
        if (key.dynamic) return run;
        return key.scales == 0 ? none : key.block_scales ? blocks : key.one_scale ? one : channels;
    }
    /// Says in a call's attributes what it means.
    static void state_meaning(onnx::NodeProto& n, const quantizer& q, const function_key& key, bool is_flat) {
        namespace own = portable::attribute;
        const bool blocked = is_block_format(q.format);
        const auto result = key.looks_up       ? portable::result_shape::rows
                            : key.is_product() ? portable::result_shape::product
                            : key.decodes      ? portable::result_shape::shape
                                               : portable::result_shape::input;
        const auto word = [](auto value, const auto& names) { return std::string(option_name(value, names)); };
        set_attribute(n, own::version, portable::version);
        set_attribute(n, own::format, text_of(q.format));
        set_attribute(n, own::semantics, std::string(portable::text_of(q.semantics).view()));
        set_attribute(n, own::scale_rule, word(q.semantics.scale_rule, scale_rule_names));
        set_attribute(n, own::scales, word(scales_in(key), portable::scale_source_names));
        set_attribute(n, own::axis, std::int64_t{q.axis});
        set_attribute(n, own::block, std::int64_t{blocked ? block_size(q.format) : key.block_scales ? q.block_size : 0});
        set_attribute(n, own::flatten, std::int64_t{is_flat});
        set_attribute(n, own::result, word(result, portable::result_shape_names));
        if (!key.is_product()) return;
        set_attribute(n, own::bias, std::int64_t{key.bias});
        set_attribute(n, own::sums, word(key.integer_sums ? portable::sums::integers : portable::sums::floats, portable::sums_names));
    }

    /// Sets the attributes of a function with blocks of any number (block_layout::any_length counts axes behind one of length 1).
    void set_axis(onnx::NodeProto& n, const quantized_value& v) const {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), counted = axis < 0 ? axis : axis + 1;
        const bool last = axis == -1 || axis + 1 == static_cast<std::int64_t>(v.rank);
        set_attribute(n, "at", std::vector<std::int64_t>{counted});
        set_attribute(n, "after", std::vector<std::int64_t>{last ? std::numeric_limits<std::int64_t>::max() : counted + 1});
    }

    /// Returns the shape that gives whole blocks (or the one short block) if it is known without running the model; otherwise empty.
    static std::vector<std::int64_t> blocks_of(const quantized_value& v) {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), length = v.length;
        const bool last = axis == -1 || axis + 1 == static_cast<std::int64_t>(v.rank);
        const microexponent* parts = std::get_if<microexponent>(&v.how.format);
        const std::int64_t part = parts ? parts->sub_block_size : 1;
        if (length <= 0 || (axis < 0 && !last)) return {};
        std::int64_t block = qk::block_size(v.how.format);
        if (length < block) block = length;
        if (length % block != 0 || block % part != 0) return {};
        std::vector<std::int64_t> shape(last ? 0 : static_cast<std::size_t>(axis), 0);
        shape.push_back(last ? -1 : length / block);
        if (parts) shape.push_back(block / part);
        shape.push_back(parts ? part : block);
        shape.push_back(last ? 1 : -1);
        return shape;
    }

    /// Returns the shape of blocks once zeros have filled the last one, if the rank and what lies behind the axis are known; otherwise
    /// empty.
    static std::vector<std::int64_t> padded_blocks_of(const quantized_value& v) {
        const std::int64_t axis = positive_axis(v.how.axis, v.rank), block = qk::block_size(v.how.format);
        const microexponent* parts = std::get_if<microexponent>(&v.how.format);
        const std::int64_t part = parts ? parts->sub_block_size : block;
        if (v.rank == 0 || axis < 0 || v.inner <= 0 || block % part != 0) return {};
        std::vector<std::int64_t> shape{-1};
        if (parts) shape.push_back(block / part);
        shape.insert(shape.end(), {part, v.inner});
        return shape;
    }

    std::string blocks(quantized_value v) {
        const quantizer asked = v.how;
        std::string x = v.name, shape;
        if (v.how.flatten) {  // rows span all axes but the first
            shape = g_.fresh(v.name + "_shape");
            g_.node("Shape", {x}, {shape});
            x = g_.fresh(v.name + "_rows");
            set_attribute(g_.node("Flatten", {v.name}, {x}), "axis", std::int64_t{1});
            v.rank = 2, v.how.axis = 1, v.length = -1, v.inner = 1;
        }
        const std::vector<std::int64_t> whole = blocks_of(v), filled = whole.empty() ? padded_blocks_of(v) : whole;
        function_key key{.format = v.how.format,
                         .semantics = v.how.semantics,
                         .layout = !whole.empty()    ? block_layout::whole
                                   : !filled.empty() ? block_layout::padded
                                                     : block_layout::any_length};
        std::vector<std::string> inputs{x};
        if (has_floating_scales(v.how.format) && !v.how.dynamic && !v.how.scale.empty()) {
            key.scales = 1;
            inputs.push_back(g_.constant(v.name + "_scale", make_tensor<float>({}, std::vector<float>{v.how.scale[0]})));
        }
        onnx::NodeProto& n = call(v, asked, key, inputs, asked.flatten);
        if (filled.empty()) set_axis(n, v);
        else set_attribute(n, "blocks", filled);
        if (key.layout == block_layout::padded) {
            const std::int64_t axis = positive_axis(v.how.axis, v.rank);
            std::vector<std::int64_t> ends(2 * v.rank, 0);
            ends[v.rank + static_cast<std::size_t>(axis)] = 1;
            set_attribute(n, "at", std::vector<std::int64_t>{axis});
            set_attribute(n, "ends", ends);
        }
        const std::string y = n.output(0);
        if (shape.empty()) return y;
        const std::string reshaped = g_.fresh(v.name + marks::rounded);
        g_.node("Reshape", {y, shape}, {reshaped});
        return reshaped;
    }

    std::string elements(const quantized_value& v) {
        const quantizer& q = v.how;
        const floating* f = std::get_if<floating>(&q.format);
        function_key key{.format = q.format, .semantics = q.semantics, .dynamic = q.dynamic && (f == nullptr || is_scaled(*f))};
        std::vector<std::string> inputs{v.name};
        if (key.dynamic) return call(v, q, key, inputs).output(0);
        if (!q.scale.empty() && (is_integer_format(q.format) || has_scale(q))) {
            key.scales = 1;
            key.one_scale = q.scale.size() == 1 && q.block_size == 0;
            key.block_scales = q.block_size > 0;
            key.block = q.block_size;
            dims shape;
            if (key.block_scales) {
                shape = {static_cast<std::int64_t>(q.scale.size())};
            } else if (!key.one_scale) {
                const std::int64_t axis = positive_axis(q.axis, v.rank);
                if (axis >= 0 && v.rank == 0)
                    cannot_hold(v, "has a scale for each index of axis " + std::to_string(axis) +
                                       ", and the tensor's rank is not known; run the model through shape inference first");
                shape.assign(axis < 0 ? static_cast<std::size_t>(-axis) : v.rank - static_cast<std::size_t>(axis), 1);
                shape[0] = static_cast<std::int64_t>(q.scale.size());
            }
            inputs.push_back(g_.constant(v.name + "_scale", make_tensor<float>(shape, q.scale)));
            if (is_shifted(q)) {
                key.scales = 2;
                inputs.push_back(g_.constant(v.name + "_zero_point", zero_points(q, q.zero_point.size() == 1 ? dims{} : shape)));
            }
        }
        onnx::NodeProto& n = call(v, q, key, inputs);
        if (key.block_scales) set_axis(n, v);
        return n.output(0);
    }

    /// A matrix [outputs, inputs] that products read.
    struct held_matrix {
        std::string name;  ///< of the weights
        quantizer how;     ///< as planned
        bool turned = false;
        quantizer as_held;  ///< of the matrix
        decoding codes;     ///< without what a single product has
    };
    struct planned_product {
        int node = 0;
        std::size_t matrix = 0;  ///< of matrices_
        std::string description;
    };

    /// Returns whether the weights stand as [outputs, inputs] already; a row of a table is an output.
    static bool is_turned(const onnx::NodeProto& n) {
        return operator_of(n) == "Gather" || (operator_of(n) == "Gemm" && int_attribute(n, "transB", 0) != 0);
    }

    /// Returns why a MatMul or Gemm cannot be a product; null if it can.
    const char* obstacle_to_product(const onnx::NodeProto& n, const quantizer& q, const tensor& value) const {
        if (value.rank() != 2 || value.size() == 0) return "they are no matrix";
        if (is_stochastic(q.semantics.rounding)) return "they are rounded stochastically";
        const std::int64_t inputs = is_turned(n) ? 1 : 0, axis = q.flatten ? 1 : positive_axis(q.axis, 2);
        if ((is_block_format(q.format) || q.block_size > 0) && axis != inputs) return "their blocks run along the outputs";
        if (operator_of(n) != "Gemm") return nullptr;
        if (int_attribute(n, "transA", 0) != 0 || float_attribute(n, "alpha", 1) != 1.0f || float_attribute(n, "beta", 1) != 1.0f)
            return "the Gemm transposes its input or multiplies";
        if (n.input_size() < 3 || n.input(2).empty()) return nullptr;
        const std::int64_t outputs = value.dim(static_cast<std::size_t>(1 - inputs));
        const dims bias = source_->is_constant(n.input(2)) ? source_->constant_shape(n.input(2)) : dims{};
        return bias == dims{outputs} || bias == dims{1, outputs} ? nullptr : "the Gemm's bias is no constant of a value for each output";
    }

    /// Gives codes the form of layout 1 (docs/reference/layouts.md): wide ones follow each other without gaps, and a short block has no
    /// more shifts than sub-blocks.
    static void put_in_layout(const qk::format& f, packed_constant& p) {
        const packed_layout l = layout_of(f, p.view);
        if (p.element_bits > 8) {
            const auto width = static_cast<std::size_t>(p.element_bits);
            const std::vector<std::uint32_t> codes = codes_of_planes(p.elements, p.element_bits, l.elements.count);
            std::vector<std::byte> bytes(l.elements.bytes());
            for (std::size_t i = 0; i < codes.size(); ++i)
                for (std::size_t b = 0; b < width; ++b)
                    if (codes[i] >> b & 1) bytes[(i * width + b) / 8] |= std::byte{1} << (i * width + b) % 8;
            p.elements = {plane_of(bytes, p.element_bits)};
        }
        if (p.shift_bits > 0 && l.shifts.count != p.shift_count) {
            const std::vector<std::uint32_t> all = codes_of_planes(p.shifts, p.shift_bits, p.shift_count);
            const std::size_t rows = p.view.outer, before = p.shift_count / rows, now = l.shifts.count / rows;
            std::vector<std::uint32_t> kept;
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t i = 0; i < now; ++i) kept.push_back(all[r * before + i]);
            p.shifts = pack_planes(kept, p.shift_bits), p.shift_count = kept.size();
        }
    }

    /// Returns the number of the matrix among matrices_, which readers with one quantizer share; nullopt where some value has no code.
    std::optional<std::size_t> held_for_product(const quantized_value& v, const tensor& value, bool is_turned, data_type own) {
        for (std::size_t i = 0; i < matrices_.size(); ++i)
            if (matrices_[i].name == v.name && matrices_[i].turned == is_turned && matrices_[i].how == v.how) return i;
        held_matrix m{.name = v.name, .how = v.how, .turned = is_turned, .as_held = v.how, .codes = {}};
        if (is_turned && v.how.flatten) m.as_held.axis = 1, m.as_held.flatten = false;
        const tensor matrix = is_turned ? value : transposed(value), wanted = rounded(v.how, value);
        if (!is_turned) m.as_held = transposed(v.how, value.shape());
        const tensor again = rounded(m.as_held, matrix), same = is_turned ? wanted : transposed(wanted);
        if (std::memcmp(again.bytes(), same.bytes(), same.size_bytes()) != 0) return std::nullopt;
        std::optional<packed_constant> p = packed(m.as_held, matrix);
        if (!p || p->scale_bits > 8) return std::nullopt;
        put_in_layout(v.how.format, *p);
        function_key product;
        product.product = own;
        m.codes = decoding_of(v.name, marks::quantized, m.as_held, matrix.shape(), *p, is_decoded_in_each_run(value), product);
        const std::int64_t block = is_block_format(v.how.format) ? block_size(v.how.format) : v.how.block_size;
        m.codes.key.integer_sums =
            options_.integer_sums && portable::takes_integer_sums(v.how.format, scales_in(m.codes.key), m.as_held.axis, block);
        matrices_.push_back(std::move(m));
        return matrices_.size() - 1;
    }

    /// Rewrites the node, whose other inputs have what the plan makes of them.
    void write_product(const planned_product& p) {
        const held_matrix& m = matrices_[p.matrix];
        onnx::NodeProto& n = *g_.graph().mutable_node(p.node);
        function_key key = m.codes.key;
        key.looks_up = operator_of(n) == "Gather";
        key.integer_sums = key.integer_sums && !key.looks_up;
        key.bias = operator_of(n) == "Gemm" && n.input_size() > 2 && !n.input(2).empty();
        std::vector<std::string> inputs{n.input(key.looks_up ? 1 : 0)};
        if (key.bias) inputs.push_back(n.input(2));
        inputs.insert(inputs.end(), m.codes.inputs.begin(), m.codes.inputs.end());
        n.clear_attribute(), n.clear_input();
        n.set_domain(marks::function_domain);
        n.set_op_type(functions_.name(key));
        for (const std::string& i : inputs) n.add_input(i);
        n.set_doc_string(p.description);
        state_meaning(n, m.as_held, key, false);
        set_attribute(n, portable::attribute::turned, std::int64_t{m.turned});
        m.codes.write_numbers(n);
        if (key.integer_sums) {  // blocks along the last axis
            set_attribute(n, "at", std::vector<std::int64_t>{-1});
            set_attribute(n, "after", std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max()});
        }
    }

    static tensor zero_points(const quantizer& q, const dims& shape) {
        if (zero_point_type(std::get<integer>(q.format)) == data_type::float64)
            return make_tensor<double>(shape, std::vector<double>(q.zero_point.begin(), q.zero_point.end()));
        return make_tensor<float>(shape, std::vector<float>(q.zero_point.begin(), q.zero_point.end()));
    }

    const model* source_ = nullptr;
    qdq_writer standard_;
    function_set functions_;
    std::vector<held_matrix> matrices_;
    std::vector<planned_product> products_;
    bool unpacks_in_each_run_ = false;
    int wide_ = 0;                         ///< activations outside of blocks that are no pairs
    int halves_ = 0;                       ///< activations in bf16 that are pairs
    std::optional<bool> blocks_possible_;  ///< whether the model can have the opset of DequantizeLinear by blocks; empty until needed
};

std::unique_ptr<functions_writer> make_functions_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes) {
    return std::make_unique<portable_writer>(g, options, notes);
}

namespace {

/// Returns a call's quantizer, without scales and zero points, which the call's inputs hold.
quantizer quantizer_of(const ops::portable_call& call) {
    quantizer q;
    q.format = call.format, q.semantics = call.semantics, q.axis = call.axis, q.flatten = call.flatten;
    q.block_size = call.scales == portable::scale_source::blocks ? call.block : 0;
    q.dynamic = call.scales == portable::scale_source::run;
    return q;
}

/// Returns what a call quantizes with, from its attributes, and from its description, which knows the plan's own words for the same; from
/// the description alone in files of before the attributes.
std::optional<quantizer> told_by(const onnx::NodeProto& n, const std::vector<float>& scale, const std::vector<std::int64_t>& zero_point) {
    std::optional<quantizer> told = described(n.doc_string(), scale, zero_point);
    const std::optional<ops::portable_call> call = ops::portable_call_of(n);
    if (!call) return told;
    quantizer q = quantizer_of(*call);
    const auto says_the_same = [&](const quantizer& t) {
        return t.format == q.format && t.semantics == q.semantics && t.flatten == q.flatten && t.block_size == q.block_size;
    };
    if (told && says_the_same(*told)) return told;
    q.scale = scale, q.zero_point = zero_point;
    if (zero_point.size() == 1) q.zero_point.assign(scale.size(), zero_point[0]);
    return q;
}

/// Reads a product back as the MatMul or Gemm in whose place it stands, and rows of a table as the Gather.
read_back read_product(const model& m, const onnx::NodeProto& n, const ops::portable_call& call) {
    const int codes = call.bias ? 2 : 1;
    std::vector<tensor> held;
    for (int k = codes; k < n.input_size(); ++k) {
        if (!m.is_constant(n.input(k))) return {};
        held.push_back(m.constant(n.input(k)));
    }
    const auto matrix = ops::decoded_matrix_of(call, held);
    if (!matrix) return {};
    quantizer how = quantizer_of(call);
    how.scale = matrix->scale, how.zero_point = matrix->zero_point;
    const bool looks_up = call.result == portable::result_shape::rows, as_held = call.turned || looks_up;
    if (!as_held) how = transposed(how, matrix->value.shape());
    if (const auto told = described(n.doc_string(), how.scale, how.zero_point);
        told && told->format == how.format && told->semantics == how.semantics && told->block_size == how.block_size)
        how = *told;
    node_on_floats plain{.node = n, .rounds_activations = call.sums == portable::sums::integers};
    onnx::NodeProto& p = plain.node;
    p.set_op_type(looks_up ? "Gather" : call.bias || call.turned ? "Gemm" : "MatMul");
    p.clear_domain(), p.clear_attribute(), p.clear_doc_string(), p.clear_input();
    p.add_input(n.input(looks_up ? codes : 0)), p.add_input(n.input(looks_up ? 0 : codes));
    if (call.bias) p.add_input(n.input(1));
    if (call.turned) set_attribute(p, "transB", std::int64_t{1});
    plain.operands.push_back({.input = looks_up ? 0 : 1,
                              .name = n.input(codes),
                              .how = std::move(how),
                              .value = as_held ? matrix->value : transposed(matrix->value)});
    return plain;
}

/// Reads the quantizer of a call from what it says and its inputs `scale` and `zero_point` (or `zero_codes`), where they determine one.
read_back read_call(const model& m, int node) {
    const onnx::NodeProto& n = m.graph().node(node);
    const onnx::FunctionProto* f = called_quantizer(m, n);
    if (f == nullptr) return {};
    if (const auto call = ops::portable_call_of(n);
        call && (call->result == portable::result_shape::product || call->result == portable::result_shape::rows))
        return read_product(m, n, *call);
    const auto argument = [&](const std::string& name) -> std::optional<tensor> {
        for (int k = 0; k < std::min(f->input_size(), n.input_size()); ++k)
            if (f->input(k) == name) return m.is_constant(n.input(k)) ? std::optional(m.constant(n.input(k))) : std::nullopt;
        return tensor();
    };
    const std::optional<tensor> scale = argument("scale"), zero_point = argument("zero_point");
    if (!scale || !zero_point) return {};
    std::vector<float> scales;
    std::vector<std::int64_t> zeros;
    if (scale->type() == data_type::float32) scales.assign(scale->as<float>().begin(), scale->as<float>().end());
    if (const std::optional<tensor> codes = argument(marks::zero_codes); !codes) return {};
    else if (!codes->empty()) {
        const auto how = told_by(n, scales, {});
        const integer* g = how ? std::get_if<integer>(&how->format) : nullptr;
        if (g == nullptr || codes->type() != data_type::uint8) return {};
        zeros = unpacked_zero_points(*g, *codes, scales.size());
    }
    for (std::size_t i = 0; i < zero_point->size(); ++i)
        zeros.push_back(static_cast<std::int64_t>(
            zero_point->type() == data_type::float64 ? zero_point->as<double>()[i] : static_cast<double>(zero_point->as<float>()[i])));
    const auto told = told_by(n, scales, zeros);
    return told ? read_back(*told) : read_back();
}

}  // namespace

constinit const style_row portable_style{.name = "portable",
                                         .help = "every format, in standard operators or functions of them",
                                         .writer = make_writer<portable_writer>,
                                         .writes = {target_profile::file_form::functions},
                                         .read = read_call};

}  // namespace qk::graph::detail
