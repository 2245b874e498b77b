// SPDX-License-Identifier: Apache-2.0
#include "graph/recover/qmoe.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "graph/export/description.hpp"
#include "graph/model/edit.hpp"
#include "graph/ops/expert_codes.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {
namespace {

/// Reads the constants of one node.
class experts_reader {
  public:
    experts_reader(const model& m, const onnx::NodeProto& n) : m_(m), n_(n) {
        const std::string& text = n.doc_string();
        const std::size_t line = text.find('\n');
        told_[0] = described(text.substr(0, line));
        if (line != std::string::npos) told_[1] = described(text.substr(line + 1));
    }

    /// Returns layer `i`, whose codes, scales and bias are inputs `at`, `at + 1` and `at + 2`.
    std::optional<unpacked_experts::layer> layer(int i, int at) const {
        const auto codes = constant(at), scales = constant(at + 1);
        if (!codes || !scales) return std::nullopt;
        unpacked_experts::layer l{.input = 2 + 2 * i, .codes = n_.input(at), .value = {}, .how = {}};
        if (const auto& told = told_[static_cast<std::size_t>(i)]) l.how = *told;
        l.how.axis = -1, l.how.flatten = false, l.how.dynamic = false, l.how.block_size = 0;
        l.how.scale.clear(), l.how.zero_point.clear();
        const std::string type = text_attribute(n_, "quant_type", "int");
        bool read = false;
        if (type == "int") read = integers(l, i, *codes, ops::widened(*scales), constant(11 + i), given(11 + i));
        else if (const auto whole = constant(15 + i); whole && i < 2 && (type == "fp4" || type == "nvfp4"))
            read = small_floats(l, i, *codes, *scales, *whole, type == "nvfp4");
        return read ? std::optional(std::move(l)) : std::nullopt;
    }

    bool given(int input) const { return input < n_.input_size() && !n_.input(input).empty(); }

  private:
    std::optional<tensor> constant(int input) const {
        if (!given(input) || !m_.is_constant(n_.input(input))) return std::nullopt;
        return m_.constant(n_.input(input));
    }

    bool integers(unpacked_experts::layer& l, int i, const tensor& codes, const tensor& scales, const std::optional<tensor>& zeros,
                  bool zeros_given) const {
        const std::string own = "fc" + std::to_string(i + 1) + "_expert_weight_bits";
        const std::int64_t bits = int_attribute(n_, own.c_str(), int_attribute(n_, "expert_weight_bits", 4)),
                           size = int_attribute(n_, "block_size", -1);
        if (codes.type() != data_type::uint8 || codes.rank() != 3 || scales.type() != data_type::float32 || (zeros_given && !zeros) ||
            (zeros && zeros->type() != data_type::uint8) || (bits != 2 && bits != 3 && bits != 4 && bits != 8) ||
            (bits == 3 && (size < 1 || scales.rank() != 3)))
            return false;
        const std::int64_t experts = codes.dim(0), out = codes.dim(1), in = bits == 3 ? scales.dim(2) * size : codes.dim(2) * (8 / bits);
        if (in < 1 || size > std::int64_t{1} << 24 || in > std::int64_t{1} << 24) return false;
        const std::int64_t block = size > 0 ? size : in, blocks = (in + block - 1) / block;
        const std::int64_t zero_bytes = ops::detail::bytes_of_codes(size > 0 ? blocks : out, bits);
        if (codes.dim(2) != ops::detail::bytes_of_codes(in, bits) || scales.size() != static_cast<std::size_t>(experts * out * blocks) ||
            (zeros && zeros->size() != static_cast<std::size_t>(experts * (size > 0 ? out : 1) * zero_bytes)))
            return false;
        const auto& told = told_[static_cast<std::size_t>(std::min(i, 1))];
        const integer* said = told && i < 2 ? std::get_if<integer>(&told->format) : nullptr;
        const bool known = said != nullptr && said->bits == bits;
        const integer f = known ? *said : integer{.bits = static_cast<int>(bits), .is_signed = !zeros};
        const std::int64_t middle = std::int64_t{1} << (bits - 1);
        l.how.format = f, l.how.block_size = static_cast<int>(block);
        l.value = tensor(data_type::float32, {experts, out, in});
        const auto values = l.value.as<float>();
        for (std::int64_t row = 0; row < experts * out; ++row)
            for (std::int64_t b = 0; b < blocks; ++b) {
                std::int64_t zero = middle;
                if (zeros)
                    zero = size > 0 ? ops::detail::code_in_row(*zeros, row, zero_bytes, bits, b)
                                    : ops::detail::code_in_row(*zeros, row / out, zero_bytes, bits, row % out);
                const float scale = scales.as<float>()[static_cast<std::size_t>(row * blocks + b)];
                l.how.scale.push_back(scale), l.how.zero_point.push_back(zero - (f.is_signed ? middle : 0));
                for (std::int64_t k = b * block; k < std::min((b + 1) * block, in); ++k)
                    values[static_cast<std::size_t>(row * in + k)] =
                        static_cast<float>(ops::detail::code_in_row(codes, row, codes.dim(2), bits, k) - zero) * scale;
            }
        if (!is_shifted(l.how)) l.how.zero_point.clear();
        return true;
    }

    bool small_floats(unpacked_experts::layer& l, int i, const tensor& codes, const tensor& scales, const tensor& whole, bool nv) const {
        const std::int64_t block = nv ? 16 : 32;
        if (scales.rank() != 3 || scales.type() != (nv ? data_type::float8e4m3fn : data_type::float8e8m0) ||
            codes.type() != data_type::uint8 || whole.type() != data_type::float32 ||
            (nv && int_attribute(n_, "weights_prepacked", -1) != 1))
            return false;
        const std::int64_t experts = scales.dim(0), out = scales.dim(1), in = scales.dim(2) * block, all = experts * out * in;
        if (codes.size() != static_cast<std::size_t>(all / 2) || whole.size() != static_cast<std::size_t>(experts) || all == 0)
            return false;
        l.value = tensor(data_type::float32, {experts, out, in});
        const floating of_scales = nv ? fp8_e4m3fn : e8m0;
        for (std::int64_t k = 0; k < all; ++k) {
            const auto code = static_cast<std::uint32_t>(ops::detail::code_in_row(codes, 0, 0, 4, k));
            const float scale = reference::value_of(of_scales, scales.as<std::uint8_t>()[static_cast<std::size_t>(k / block)]);
            l.value.as<float>()[static_cast<std::size_t>(k)] =
                reference::value_of(fp4_e2m1, code) * (scale * whole.as<float>()[static_cast<std::size_t>(k / (out * in))]);
        }
        const auto w = whole.as<float>();
        const qk::format f = nv ? qk::format(nvfp4) : qk::format(mxfp4);
        const auto& told = told_[static_cast<std::size_t>(i)];
        if (!told || told->format != f) l.how = quantizer{}, l.how.axis = -1;
        l.how.format = f;
        if (nv) l.how.scale = {w[0]};
        // Blocks of MX find powers of two by themselves; a plan has one scale for all of NVFP4's experts.
        int exponent = 0;
        l.exact = nv ? std::ranges::all_of(w, [&](float s) { return s == w[0]; })
                     : std::ranges::all_of(w, [&](float s) { return std::frexp(s, &exponent) == 0.5f; });
        return true;
    }

    const model& m_;
    const onnx::NodeProto& n_;
    std::array<std::optional<quantizer>, 2> told_;
};

}  // namespace

std::optional<unpacked_experts> unpack_experts(const model& m, const onnx::NodeProto& n) {
    if (n.domain() != "com.microsoft" || n.op_type() != "QMoE" || n.input_size() < 7 || n.output_size() != 1) return std::nullopt;
    const experts_reader reader(m, n);
    if (reader.given(14)) return std::nullopt;
    for (int k = 17; k < n.input_size(); ++k)
        if (reader.given(k)) return std::nullopt;
    unpacked_experts e;
    for (const int i : {0, 1, 2}) {
        if (i == 2 && !reader.given(8)) continue;
        auto l = reader.layer(i, 2 + 3 * i);
        if (!l) return std::nullopt;
        e.layers.push_back(std::move(*l));
    }
    e.integers = int_attribute(n, "accuracy_level", 0) == 4;
    return e;
}

void make_plain(onnx::NodeProto& n, const unpacked_experts& e, const std::vector<std::string>& weights) {
    const auto input = [&](int k) { return k < n.input_size() ? n.input(k) : std::string(); };
    std::vector<std::string> inputs{input(0), input(1)};
    for (std::size_t i = 0; i < e.layers.size(); ++i) inputs.push_back(weights[i]), inputs.push_back(input(4 + 3 * static_cast<int>(i)));
    while (inputs.back().empty()) inputs.pop_back();
    n.set_op_type("MoE");
    n.clear_doc_string(), n.clear_input();
    for (const std::string& i : inputs) n.add_input(i);
    for (const char* a : {"quant_type", "block_size", "weights_prepacked", "accuracy_level", "expert_weight_bits", "fc1_expert_weight_bits",
                          "fc2_expert_weight_bits", "fc3_expert_weight_bits"})
        remove_attribute(n, a);
}

}  // namespace qk::graph::detail
