// SPDX-License-Identifier: Apache-2.0
// A convolution with constant weights, made once for each shape of its input. Its operands are floats or, where the quantizers of both
// allow it and the processor is quick at it, in a narrow form; an input of two planes is two convolutions, the second on top of the first.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "qk/graph/evaluate/execute/narrow_values.hpp"
#include "qk/graph/evaluate/execute/onednn.hpp"

#ifdef QK_HAVE_ONEDNN

namespace qk::graph::execute {

class prepared_convolution {
  public:
    struct at_shape {
        dims key, y;
        std::vector<dnn_convolution> passes;    ///< none: oneDNN has nothing quick for this shape
        std::optional<narrow_form> form;        ///< of the input that they take; none: floats as they are
        bool add_behind = false, relu = false;  ///< what is added, and a Relu, come after the passes
    };
    /// What is asked of oneDNN at a shape, but for the operands.
    struct request {
        dnn_convolution::shape shape;
        dims y;
        bool possible = true;
    };

    /// `weights`: [channels, ...], as the shapes will have them. `x` and `w` are the quantizers of the operands, null where they have none;
    /// `channel_axis` is w's place of the channels among `rank` axes.
    prepared_convolution(tensor weights, tensor bias, const quantizer* x, const quantizer* w, int channel_axis, int rank)
        : weights_(std::move(weights)), bias_(std::move(bias)) {
        if (x != nullptr) form_ = narrow_form_of(*x);
        if (form_) narrow_ = narrow_weights_of(*form_, weights_, w, channel_axis, rank);
        // A bias is added in units of the products.
        for (std::size_t i = 0; narrow_ && form_->whole && i < bias_.size(); ++i)
            if (!std::isfinite(bias_.as<float>()[i] / narrow_->scale[i])) narrow_.reset();
    }

    const tensor& weights() const { return weights_; }
    const tensor& bias() const { return bias_; }

    /// The one that was made for `key`; on first use by what `ask()` says.
    template <class Ask>
    const at_shape& at(const dims& key, const Ask& ask) const {
        {
            const std::shared_lock lock(mutex_);
            for (const auto& m : made_)
                if (m->key == key) return *m;
        }
        const std::unique_lock lock(mutex_);
        for (const auto& m : made_)
            if (m->key == key) return *m;
        const request r = ask();
        auto m = std::make_unique<at_shape>();
        m->key = key, m->y = r.y;
        if (r.possible) make(r.shape, *m);
        made_.push_back(std::move(m));
        return *made_.back();
    }

    /// The form in which an input is wanted, or null: as floats.
    static const narrow_form* form_of(const at_shape& a) { return a.form ? &*a.form : nullptr; }

    /// `narrow`: x in form_of(a), if that is not null. `added`: what is added to y, if something is.
    static void run(const at_shape& a, const tensor& x, const tensor& narrow, const tensor& added, tensor& y, allocator& memory) {
        if (!added.empty() && !a.add_behind) std::memcpy(y.bytes(), added.bytes(), y.size_bytes());
        const std::byte* operand = a.form ? narrow.bytes() : x.bytes();
        for (const dnn_convolution& pass : a.passes) {
            pass.run(operand, y.as<float>().data(), memory);
            operand += x.size();  // planes are of bytes
        }
        if (!a.add_behind) return;
        float* to = y.as<float>().data();
        const float* from = added.as<float>().data();
        for (std::size_t i = 0; i < y.size(); ++i) {
            const float v = to[i] + from[i];
            to[i] = a.relu && v < 0 ? 0.0f : v;
        }
    }

  private:
    void make(const dnn_convolution::shape& s, at_shape& to) const {
        const one_thread alone;
        const auto add = [&](const dnn_convolution::shape& of, const tensor& weights) {
            try {
                if (auto made = dnn_convolution::make(of, weights.bytes(), of.bias ? bias_.as<float>().data() : nullptr))
                    to.passes.push_back(std::move(*made));
            } catch (const dnnl::error&) {  // a shape that it does not take
            }
        };
        using operand = dnn_convolution::operand;
        const std::size_t products = element_count(s.y) / static_cast<std::size_t>(s.y[1]) * weights_.size();
        bool wanted = narrow_ && products >= fewest_products;
        // Where a stride skips inputs oneDNN 2.6 is wrong with AMX for some numbers of channels (66, 77).
        for (std::size_t i = 0; i < 2; ++i) wanted = wanted && s.stride[i] <= s.weights[s.weights.size() - 2 + i];
        for (int plane = 0; wanted && plane < form_->planes; ++plane) {
            const bool first = plane == 0, last = plane + 1 == form_->planes;
            dnn_convolution::shape part = s;
            part.type = !form_->whole ? operand::bf16 : first && form_->is_signed ? operand::s8 : operand::u8;
            part.scale = narrow_->scale;
            for (float& v : part.scale) v *= last ? 1.0f : 256.0f;
            part.bias = s.bias && first, part.add = s.add || !first, part.relu = s.relu && last;
            add(part, narrow_->values);
        }
        if (wanted && to.passes.size() == static_cast<std::size_t>(form_->planes)) {
            to.form = form_;
            return;
        }
        to.passes.clear();
        if (narrow_ && sums_fit_floats(*form_, *narrow_)) {
            dnn_convolution::shape exact = s;
            exact.scale = narrow_->scale;
            exact.add = false, exact.relu = s.relu && !s.add;  // oneDNN's floats add before they scale, or not at all
            add(exact, as_floats(narrow_->values));
            if (to.passes.size() == 1) to.form = form_, to.form->floats = true, to.add_behind = s.add, to.relu = s.relu;
        }
        if (to.passes.empty()) add(s, weights_);
    }

    static constexpr std::size_t fewest_products = 1 << 16;  ///< below them a call takes longer than its arithmetic

    tensor weights_, bias_;
    std::optional<narrow_form> form_;
    std::optional<narrow_weights> narrow_;
    mutable std::shared_mutex mutex_;
    mutable std::vector<std::unique_ptr<at_shape>> made_;
};

}  // namespace qk::graph::execute

#endif
