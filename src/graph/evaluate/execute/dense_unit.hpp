// SPDX-License-Identifier: Apache-2.0
// Runs a product with constant weights, and the bias Add behind it, as one step. Before: MatMul [-> Add] or Gemm. After: one call of oneDNN
// with packed weights: a product of floats (dnn_product) or, for narrow operands and where oneDNN has no such product, a 1 x 1 convolution
// with one place for each row; where weights are to stay packed (evaluate_options::packed_weights), qk's own product of their codes in
// place of oneDNN's. Conditions: float32, constant matrix and bias.
#pragma once

#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/prepared_convolution.hpp"
#ifdef QK_HAVE_ONEDNN

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "graph/base/inner_loop.hpp"
#include "graph/evaluate/execute/onednn.hpp"
#include "graph/evaluate/execute/packed_product.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/tensor.hpp"
#endif

namespace qk::graph::execute {

#ifdef QK_HAVE_ONEDNN

// oneDNN's matrix product with constant weights. They are packed once, in an order that works for every number of rows, so the weights are
// in memory once however long sequences are and whether samples run alone or together. The product is cut into parts that may run side by
// side.

/// y[rows,n] = x[rows,k] * w[k,n] + bias, all float32.
class dnn_product {
  public:
    dnn_product(std::int64_t k, std::int64_t n, bool biased) : k_(k), n_(n), biased_(biased) {
        // A matrix larger than a processor's cache is cut into pieces of columns, each read once for all rows: a multiple of 4 pieces of
        // one width, which two or four threads share evenly.
        const std::int64_t most = std::max<std::int64_t>(1, (1 << 20) / k / 64) * 64, pieces = ((n + most - 1) / most + 3) / 4 * 4;
        const std::int64_t width = k * n < 3 << 18 ? n : (n + 16 * pieces - 1) / (16 * pieces) * 16;
        for (std::int64_t first = 0; first < n; first += width) pieces_.push_back({first, std::min(width, n - first), {}});
    }

    /// Prepares run() for this number of rows, and packs the weights on first use. Returns false if oneDNN has no code for so many rows
    /// that takes the packed order. `weights()` returns [k,n], or [n,k] if `transposed`.
    template <class Weights>
    bool prepare(std::int64_t rows, bool transposed, const Weights& weights) {
        const std::scoped_lock lock(mutex_);
        if (const auto known = able_.find(rows); known != able_.end()) return known->second;
        const one_thread alone;
        bool able = true;
        const std::int64_t step = rows_together(rows);
        for (const piece& p : pieces_)
            for (std::int64_t first = 0; first < rows; first += step)
                able = able && prepared(std::min(step, rows - first), p.columns) != nullptr;
        if (able && !packed_) pack(weights(), transposed);
        return able_[rows] = able;
    }

    /// Returns whether each part computes whole rows.
    bool is_by_rows() const { return pieces_.size() == 1; }

    /// Receives `count` rows of a result, beginning with row `first`. Called from several threads.
    using take_rows = std::function<void(const float* from, std::size_t first, std::size_t count)>;

    /// Computes y; prepare(rows) must have returned true. `bias` has n values or is null. `take`, which requires is_by_rows(), receives the
    /// rows in place of y.
    void run(const float* x, float* y, std::int64_t rows, const float* bias, allocator& memory, const take_rows* take = nullptr) const {
        struct part {
            const piece* columns;
            std::int64_t first, count;
            const dnn_matmul* with;
        };
        std::vector<part> parts;
        {
            const std::scoped_lock lock(mutex_);
            const std::int64_t step = rows_together(rows);
            for (const piece& p : pieces_)
                for (std::int64_t first = 0; first < rows; first += step) {
                    const std::int64_t count = std::min(step, rows - first);
                    parts.push_back({&p, first, count, made_.at({count, p.columns}).get()});
                }
        }
        for_each_part(parts.size(), [&](std::size_t i) {
            const one_thread alone;
            const auto& [p, first, count, with] = parts[i];
            const float* from = x + first * k_;
            const float* added = bias == nullptr ? nullptr : bias + p->first;
            if (p->columns == n_ && take == nullptr) return with->run(from, p->weights.get_data_handle(), added, y + first * n_, memory);
            // oneDNN has no fast product that leaves gaps between the rows of its result.
            const auto own = static_cast<std::size_t>(p->columns);
            const auto space = memory.allocate(static_cast<std::size_t>(count) * own * sizeof(float));
            auto* to = reinterpret_cast<float*>(space.get());
            with->run(from, p->weights.get_data_handle(), added, to, memory);
            if (take != nullptr) return (*take)(to, static_cast<std::size_t>(first), static_cast<std::size_t>(count));
            for (std::int64_t r = 0; r < count; ++r)
                std::memcpy(y + (first + r) * n_ + p->first, to + static_cast<std::size_t>(r) * own, own * sizeof(float));
        });
    }

    /// Returns the number of rows of a part. It depends on the shape alone, so that results do not depend on threads.
    std::int64_t rows_together(std::int64_t rows) const {
        if (!is_by_rows()) return 256;
        if (rows * k_ * n_ < 1 << 21) return rows;
        return rows <= 128 ? 32 : 64;
    }

  private:
    using desc = dnnl::memory::desc;
    struct piece {
        std::int64_t first, columns;
        dnnl::memory weights;
    };

    /// Returns null if oneDNN has no fast code that takes the packed order of this many columns.
    const dnn_matmul* prepared(std::int64_t rows, std::int64_t columns) {
        const auto [at, is_new] = made_.try_emplace({rows, columns});
        if (!is_new) return at->second.get();
        const auto known = order_.find(columns);
        const desc any({k_, columns}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
        at->second = dnn_matmul::make(rows, k_, columns, known != order_.end() ? known->second : any, biased_);
        if (at->second) order_.try_emplace(columns, at->second->weights());
        return at->second.get();
    }

    void pack(const tensor& values, bool transposed) {
        auto* from = const_cast<float*>(values.as<float>().data());
        for (piece& p : pieces_) {
            const desc given({k_, p.columns}, dnnl::memory::data_type::f32,
                             transposed ? dnnl::memory::dims{1, k_} : dnnl::memory::dims{n_, 1});
            dnnl::memory raw(given, cpu_engine(), from + (transposed ? p.first * k_ : p.first));
            p.weights = dnnl::memory(order_.at(p.columns), cpu_engine());
            dnnl::stream order(cpu_engine());
            dnnl::reorder(raw, p.weights).execute(order, raw, p.weights);
            order.wait();
        }
        packed_ = true;
    }

    std::int64_t k_, n_;
    bool biased_, packed_ = false;
    std::vector<piece> pieces_;
    mutable std::mutex mutex_;  ///< guards what follows, and packing
    std::map<std::int64_t, bool> able_;
    std::map<std::int64_t, desc> order_;  ///< of packed weights, by number of columns
    std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<dnn_matmul>> made_;
};

class dense_unit {
  public:
    /// `weights` is [k,n], or [n,k] if transposed; `bias` has n elements or is empty. `x` and `w` are the quantizers of the two operands,
    /// null if there is none; `weights` are already quantized by `w`. `packed`: they stay packed if they can be.
    dense_unit(const late_weights& weights, bool transposed, tensor bias, const quantizer* x, const quantizer* w, bool packed)
        : k_(weights.shape[transposed ? 1 : 0]),
          n_(weights.shape[transposed ? 0 : 1]),
          transposed_(transposed),
          weights_(weights),
          packed_by_(packed && w != nullptr ? std::optional(*w) : std::nullopt),
          product_(std::make_unique<dnn_product>(k_, n_, !bias.empty())),
          convolution_(weights, !transposed, std::move(bias), x, w, transposed ? 0 : 1, 2) {}

    /// Returns the narrow form that run() needs of this x; null means floats.
    const narrow_form* form_for(const tensor& x) const { return fits(x) ? convolution_.form_of(prepared(x)) : nullptr; }

    /// Returns the product; `narrow` is x in form_for(x). Returns an empty tensor if x is not supported: then run the nodes one by one.
    tensor run(const tensor& x, const tensor& narrow, allocator& memory) const {
        if (!fits(x)) return {};
        const dims shape = shape_for(x.shape());
        tensor y(data_type::float32, shape, memory.allocate(element_count(shape) * sizeof(float)));
        const auto& how = prepared(x);
        if (!how.possible()) return run_floats(x, y.as<float>().data(), nullptr, memory) ? y : tensor();
        if (!run_in_parts(how, narrow, rows_of(x), y, memory)) prepared_convolution::run(how, x, narrow, {}, y, memory);
        return y;
    }

    /// Returns the shape of the result.
    dims shape_for(dims x) const {
        if (!x.empty()) x.back() = n_;
        return x;
    }

    /// Multiplies an x of floats and passes rows of the product to take() as soon as they are computed. Returns false, before any call of
    /// take(), if that is not supported for this x.
    bool run_by_rows(const tensor& x, allocator& memory, const dnn_product::take_rows& take) const {
        return fits(x) && !prepared(x).possible() && (packed() != nullptr || product_->is_by_rows()) &&
               run_floats(x, nullptr, &take, memory);
    }

    /// Returns whether a run has multiplied by packed weights.
    bool is_packed() const { return packed_product_.has_value(); }

  private:
    /// Multiplies parts of the rows side by side if threads are idle. Sums of whole numbers are exact, so a part has the same bits as the
    /// whole. Returns false if it does not apply.
    bool run_in_parts(const prepared_convolution::at_shape& whole, const tensor& narrow, std::int64_t rows, tensor& y,
                      allocator& memory) const {
        const std::int64_t parts = rows / 32;
        if (runs_parts() == nullptr || !whole.form || !whole.form->whole || parts < 2 || rows * k_ * n_ < 1 << 22) return false;
        const auto begin = [=](std::int64_t i) { return rows * i / parts; };
        const auto of_rows = [this](std::int64_t count) -> const prepared_convolution::at_shape& {
            return convolution_.at({count}, [&] { return request(count, false); });
        };
        for (const std::int64_t count : {rows / parts, rows / parts + (rows % parts != 0)})
            if (const auto& part = of_rows(count); !part.possible() || part.form != whole.form) return false;
        for_each_part(static_cast<std::size_t>(parts), [&](std::size_t i) {
            const one_thread alone;
            const std::int64_t first = begin(static_cast<std::int64_t>(i)), end = begin(static_cast<std::int64_t>(i) + 1);
            prepared_convolution::run_part(of_rows(end - first), narrow, static_cast<std::size_t>(first * k_),
                                           static_cast<std::size_t>(rows * k_), y.as<float>().data() + first * n_, memory);
        });
        return true;
    }
    /// Writes the product of floats to y, or passes it to take() if that is not null. Returns false if oneDNN has no fast code.
    bool run_floats(const tensor& x, float* y, const dnn_product::take_rows* take, allocator& memory) const {
        const std::int64_t rows = rows_of(x);
        if (const packed_product* own = packed()) return run_packed(*own, x, y, take, memory), true;
        if (product_->prepare(rows, transposed_, weights_.read)) {
            const tensor& bias = convolution_.bias();
            product_->run(x.as<float>().data(), y, rows, bias.empty() ? nullptr : bias.as<float>().data(), memory, take);
            return true;
        }
        const auto of_rows = [this](std::int64_t count) -> const prepared_convolution::at_shape& {
            return convolution_.at({count, 1}, [&] { return request(count, true); });
        };
        std::int64_t step = product_->rows_together(rows);
        for (const std::int64_t count : {std::min(step, rows), rows % step == 0 ? std::min(step, rows) : rows % step})
            if (const auto& part = of_rows(count); !part.possible() || part.form) step = rows;
        if (const auto& whole = of_rows(std::min(step, rows)); !whole.possible() || whole.form) return false;
        for_each_part(static_cast<std::size_t>((rows + step - 1) / step), [&](std::size_t i) {
            const one_thread alone;
            const std::int64_t first = static_cast<std::int64_t>(i) * step, count = std::min(step, rows - first);
            const auto space = take == nullptr ? nullptr : memory.allocate(static_cast<std::size_t>(count * n_) * sizeof(float));
            float* to = take == nullptr ? y + first * n_ : reinterpret_cast<float*>(space.get());
            prepared_convolution::run_part(of_rows(count), x, static_cast<std::size_t>(first * k_), 0, to, memory);
            if (take != nullptr) (*take)(to, static_cast<std::size_t>(first), static_cast<std::size_t>(count));
        });
        return true;
    }
    /// Multiplies 256 rows at a time, so that take() has rows that are still in cache.
    void run_packed(const packed_product& own, const tensor& x, float* y, const dnn_product::take_rows* take, allocator& memory) const {
        const float *from = x.as<float>().data(), *bias = convolution_.bias().empty() ? nullptr : convolution_.bias().as<float>().data();
        const auto rows = static_cast<std::size_t>(rows_of(x)), k = static_cast<std::size_t>(k_), n = static_cast<std::size_t>(n_);
        if (take == nullptr) return own.multiply(from, rows, bias, y);
        const std::size_t step = std::min<std::size_t>(rows, 256);
        const auto space = memory.allocate(step * n * sizeof(float));
        auto* to = reinterpret_cast<float*>(space.get());
        for (std::size_t first = 0; first < rows; first += step) {
            const std::size_t count = std::min(step, rows - first);
            own.multiply(from + first * k, count, bias, to);
            (*take)(to, first, count);
        }
    }
    /// Returns the weights as codes, made on first use; null where they are used as floats.
    const packed_product* packed() const {
        if (!packed_by_) return nullptr;
        std::call_once(tried_, [this] { packed_product_ = packed_product::make(weights_.read(), transposed_, *packed_by_); });
        return packed_product_ ? &*packed_product_ : nullptr;
    }
    bool fits(const tensor& x) const {
        return x.type() == data_type::float32 && x.rank() >= 2 && x.size() != 0 && x.shape().back() == k_ && n_ != 0 &&
               convolution_.bias().rank() <= x.rank();
    }
    std::int64_t rows_of(const tensor& x) const { return static_cast<std::int64_t>(x.size()) / k_; }
    prepared_convolution::request request(std::int64_t rows, bool in_floats) const {
        prepared_convolution::request r;
        r.in_floats = in_floats;
        dnn_convolution::shape& s = r.shape;
        s.x = {1, k_, 1, rows}, s.weights = {n_, k_, 1, 1}, s.y = {1, n_, 1, rows};
        s.stride = {1, 1}, s.dilation = {0, 0}, s.pad_begin = {0, 0}, s.pad_end = {0, 0};
        s.bias = !convolution_.bias().empty();
        return r;
    }
    /// Returns the convolution for narrow operands; possible() is false if there is none.
    const prepared_convolution::at_shape& prepared(const tensor& x) const {
        static const prepared_convolution::at_shape none;
        if (!convolution_.may_be_narrow()) return none;
        return convolution_.at({rows_of(x)}, [&] { return request(rows_of(x), false); });
    }

    std::int64_t k_, n_;
    bool transposed_;
    late_weights weights_;
    std::optional<quantizer> packed_by_;
    mutable std::once_flag tried_;
    mutable std::optional<packed_product> packed_product_;
    std::unique_ptr<dnn_product> product_;
    prepared_convolution convolution_;
};

#else

class dense_unit {
  public:
    dense_unit(const late_weights&, bool, const tensor&, const quantizer*, const quantizer*, bool) {}
    bool is_packed() const { return false; }
    const narrow_form* form_for(const tensor&) const { return nullptr; }
    tensor run(const tensor&, const tensor&, allocator&) const { return {}; }
    dims shape_for(dims x) const { return x; }
    template <class Take>
    bool run_by_rows(const tensor&, allocator&, const Take&) const {
        return false;
    }
};

#endif

}  // namespace qk::graph::execute
