// SPDX-License-Identifier: Apache-2.0
// A convolution with constant weights, prepared once for each shape of its input. Its operands are floats or, if both quantizers allow it
// and the processor is fast at it, in a narrow form. An input of two planes takes two convolutions, the second of which adds to the first's
// result.
#pragma once

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/narrow_values.hpp"
#include "graph/evaluate/execute/onednn.hpp"
#include "graph/evaluate/words/word_convolution.hpp"

namespace qk::graph::execute {

/// Weights that are read only when they are packed; `read` returns the same values each time.
struct late_weights {
    dims shape;
    std::function<tensor()> read;
};

}  // namespace qk::graph::execute

#ifdef QK_HAVE_ONEDNN

namespace qk::graph::execute {

/// The result of a 1 x 1 kernel with padding: only the middle is computed, because each place of the frame around it has the same values.
struct zero_frame {
    std::int64_t top, left, height, width;  ///< of the middle
    std::vector<float> edge;                ///< values of a place of the frame, by channel

    void put(const float* middle, const dims& whole, float* y) const;
};

class prepared_convolution {
  public:
    struct at_shape {
        dims key, y;
        std::optional<zero_frame> frame;                            ///< around the part of y that is computed
        std::vector<dnn_convolution> passes;                        ///< by oneDNN
        std::optional<word_convolution> words;                      ///< used in place of `passes`
        std::optional<narrow_form> form;                            ///< of the input; nullopt: floats
        bool add_behind = false, relu = false;                      ///< the addend and a Relu are applied after the passes
        bool possible() const { return words || !passes.empty(); }  ///< false: no fast code for this shape
    };
    /// What oneDNN is asked to compute for a shape, without the operands.
    struct request {
        dnn_convolution::shape shape;
        dims y;  ///< shape.y, with the frame if there is one
        std::optional<zero_frame> frame;
        bool possible = true;
        bool in_floats = true;  ///< use floats if no narrow form is fast; false: nothing then
    };

    /// `weights` are [channels, ...], as in the shapes to come; with `columns` they are a matrix [..., channels]. `x` and `w` are the
    /// quantizers of the operands, null if there is none; `w` was applied with the channels on `channel_axis` of `rank` axes.
    prepared_convolution(late_weights weights, bool columns, tensor bias, const quantizer* x, const quantizer* w, int channel_axis,
                         int rank)
        : weights_(std::move(weights)), columns_(columns), bias_(std::move(bias)), channel_axis_(channel_axis), rank_(rank) {
        if (x != nullptr) form_ = narrow_form_of(*x), codes_ = form_of_codes(*x), word_zero_ = zero_of_words(*x);
        if (w != nullptr) by_ = *w;
    }

    const dims& weights() const { return weights_.shape; }  ///< shape of the weights
    const tensor& bias() const { return bias_; }

    /// Returns whether some shapes may need their input in a narrow form.
    bool may_be_narrow() const { return form_.has_value(); }

    /// Returns the convolution for `key`. The first call for a key makes it from ask().
    template <class Ask>
    const at_shape& at(const dims& key, const Ask& ask) const {
        if (const at_shape* last = last_.load(std::memory_order_acquire); last != nullptr && last->key == key) return *last;
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
        m->key = key, m->y = r.y, m->frame = r.frame;
        if (r.possible) make(r.shape, r.in_floats, *m);
        if (m->frame) m->frame->edge = of_zeros(r.shape, *m);
        made_.push_back(std::move(m));
        last_.store(made_.back().get(), std::memory_order_release);
        return *made_.back();
    }

    /// Returns the narrow form that run() needs of its input; null means floats.
    static const narrow_form* form_of(const at_shape& a) { return a.form ? &*a.form : nullptr; }

    /// Computes y. `narrow` is x in form_of(a) if that is not null. `added` is added to the result unless it is empty.
    static void run(const at_shape& a, const tensor& x, const tensor& narrow, const tensor& added, tensor& y, allocator& memory) {
        if (!a.frame) return run_middle(a, x, narrow, added, y, memory);
        const dims shape{y.dim(0), y.dim(1), a.frame->height, a.frame->width};
        tensor middle(data_type::float32, shape, memory.allocate(element_count(shape) * sizeof(float)));
        run_middle(a, x, narrow, added, middle, memory);
        a.frame->put(middle.as<float>().data(), y.shape(), y.as<float>().data());
    }
    /// Runs, without a frame and an addend, for some places of a larger x: those from element `first` of `narrow` on. Planes of bytes are
    /// `plane` elements apart; words have no planes.
    static void run_part(const at_shape& a, const tensor& narrow, std::size_t first, std::size_t plane, float* y, allocator& memory) {
        const std::byte* operand = narrow.bytes() + first * size_of(narrow.type());
        if (a.words) return a.words->run(operand, nullptr, y, memory);
        for (const dnn_convolution& pass : a.passes) {
            pass.run(operand, y, memory);
            operand += plane;  // planes are of bytes
        }
    }

  private:
    static void run_middle(const at_shape& a, const tensor& x, const tensor& narrow, const tensor& added, tensor& y, allocator& memory) {
        if (a.words) return a.words->run(narrow.bytes(), added.empty() ? nullptr : added.as<float>().data(), y.as<float>().data(), memory);
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

    /// Returns the convolution of zeros, by channel.
    std::vector<float> of_zeros(const dnn_convolution::shape& s, const at_shape& made) const {
        std::vector<float> edge(static_cast<std::size_t>(s.y[1]), 0.0f);
        for (std::size_t i = 0; s.bias && i < edge.size(); ++i) {
            const float bias = bias_.as<float>()[i];
            edge[i] = made.form && made.form->whole ? bias / scale_[i] * scale_[i] : bias;
            if (s.relu && edge[i] < 0) edge[i] = 0;
        }
        return edge;
    }

    void make(const dnn_convolution::shape& s, bool in_floats, at_shape& to) const {
        const one_thread alone;
        const auto add = [&](const dnn_convolution::shape& of, const std::function<tensor()>& weights,
                             dnn_convolution::packed_weights& packed) {
            try {
                if (auto made = dnn_convolution::make(of, weights, of.bias ? bias_.as<float>().data() : nullptr, packed))
                    to.passes.push_back(std::move(*made));
            } catch (const dnnl::error&) {  // oneDNN does not support this shape
            } catch (const cannot_narrow&) {
            }
        };
        using operand = dnn_convolution::operand;
        const std::size_t products = element_count(s.y) / static_cast<std::size_t>(s.y[1]) * element_count(weights_.shape);
        // Only the scales of the narrow weights are kept. Their numbers are made again when oneDNN packs them.
        if (form_ && form_->whole && scale_.empty() && !never_narrow_) narrow_now();
        const bool narrow = form_ && !never_narrow_ && products >= fewest_products;
        bool wanted = narrow;
        // Where a stride skips inputs, oneDNN 2.6 with AMX gives wrong results for some numbers of channels (66, 77).
        for (std::size_t i = 0; i < 2; ++i) wanted = wanted && s.stride[i] <= s.weights[s.weights.size() - 2 + i];
        if (wanted && codes_) {
            dnn_convolution::shape part = s;
            part.type = codes_->is_signed ? operand::s8 : operand::u8;
            part.scale = scale_, part.zero = codes_->zero;
            add(
                part, [this] { return numbers(); }, packed_numbers_);
            if (!to.passes.empty()) {
                to.form = codes_;
                return;
            }
        }
        for (int plane = 0; wanted && plane < form_->planes; ++plane) {
            const bool first = plane == 0, last = plane + 1 == form_->planes;
            dnn_convolution::shape part = s;
            part.type = !form_->whole ? operand::bf16 : first && form_->is_signed ? operand::s8 : operand::u8;
            part.scale = scale_;
            for (float& v : part.scale) v *= last ? 1.0f : 256.0f;
            part.bias = s.bias && first, part.add = s.add || !first, part.relu = s.relu && last;
            add(
                part, [this] { return numbers(); }, packed_numbers_);
        }
        if (wanted && to.passes.size() == static_cast<std::size_t>(form_->planes)) {
            to.form = form_;
            return;
        }
        to.passes.clear();
        if (narrow && make_words(s, to)) return;
        if (narrow && exact_in_floats_) {
            dnn_convolution::shape exact = s;
            exact.scale = scale_;
            exact.add = false, exact.relu = s.relu && !s.add;  // in floats oneDNN adds before it scales, or not at all
            add(
                exact, [this] { return as_floats(numbers()); }, packed_numbers_);
            if (to.passes.size() == 1) to.form = form_, to.form->floats = true, to.add_behind = s.add, to.relu = s.relu;
        }
        if (!to.passes.empty() || !in_floats) return;
        dnn_convolution::shape floats = s;
        floats.columns = columns_;
        add(floats, weights_.read, packed_);
    }

    /// Makes a convolution of words, for processors without sums of bytes. Returns false if that is not fast or not possible.
    bool make_words(const dnn_convolution::shape& s, at_shape& to) const {
        if (!form_->whole || s.grouped || !word_convolution::is_quick()) return false;
        const auto axis = [&](std::size_t i) {
            return word_shape::axis{s.x[2 + i], s.y[2 + i], s.weights[2 + i], s.stride[i], s.dilation[i] + 1, s.pad_begin[i]};
        };
        const word_shape shape{s.x[0], s.x[1], s.y[1], axis(0), axis(1)};
        const bool joined = shape.across.dilation == 1, filtered = word_convolution::is_filtered(shape, *form_);
        if (!words_ || words_->joined != joined || words_->rows != shape.down.kernel || words_->is_filtered != filtered) {
            const tensor w = numbers();
            words_ = std::make_shared<packed_word_weights>(w.reshaped({s.weights[0], s.weights[1], s.weights[2], s.weights[3]}), joined,
                                                           filtered, form_->planes);
        }
        narrow_form form = *form_;
        form.words = form.planes == 2, form.zero = form.words ? word_zero_ : 0;
        to.words = word_convolution::make(shape, form, words_, scale_, s.bias ? bias_.as<float>() : std::span<const float>(), s.relu);
        if (to.words) to.form = form;
        return to.words.has_value();
    }

    struct cannot_narrow {};
    /// Returns the weights in the narrow form; nullopt, on every call, if they do not fit.
    std::optional<narrow_weights> narrow_now() const {
        auto made =
            narrow_weights_of(*form_, columns_ ? by_rows(weights_.read()) : weights_.read(), by_ ? &*by_ : nullptr, channel_axis_, rank_);
        // The bias is added in units of the products.
        for (std::size_t i = 0; made && form_->whole && i < bias_.size(); ++i)
            if (!std::isfinite(bias_.as<float>()[i] / made->scale[i])) made.reset();
        never_narrow_ = !made;
        if (made && form_->whole && scale_.empty()) scale_ = made->scale, exact_in_floats_ = sums_fit_floats(*form_, *made);
        return made;
    }
    tensor numbers() const {
        auto made = narrow_now();
        if (!made) throw cannot_narrow{};
        return std::move(made->values);
    }

    static tensor by_rows(const tensor& columns) {
        const auto k = static_cast<std::size_t>(columns.dim(0)), n = static_cast<std::size_t>(columns.dim(1));
        tensor rows(data_type::float32, {columns.dim(1), columns.dim(0)});
        transpose(columns.as<float>().data(), k, n, rows.as<float>().data());
        return rows;
    }

    static constexpr std::size_t fewest_products = 1 << 16;  ///< with fewer a call takes longer than its arithmetic

    late_weights weights_;
    bool columns_;
    tensor bias_;
    std::optional<narrow_form> form_;
    std::optional<narrow_form> codes_;  ///< one plane in place of form_'s two
    int word_zero_ = 0;                 ///< added to numbers in words
    std::optional<quantizer> by_;       ///< quantizer of the weights
    int channel_axis_, rank_;
    mutable std::atomic<const at_shape*> last_ = nullptr;  ///< the last one made; often the only one
    mutable std::shared_mutex mutex_;                      ///< guards what follows
    mutable bool never_narrow_ = false, exact_in_floats_ = false;
    mutable std::vector<float> scale_;  ///< of products of whole numbers, by channel
    mutable dnn_convolution::packed_weights packed_, packed_numbers_;
    mutable std::shared_ptr<const packed_word_weights> words_;
    mutable std::vector<std::unique_ptr<at_shape>> made_;
};

}  // namespace qk::graph::execute

#endif
