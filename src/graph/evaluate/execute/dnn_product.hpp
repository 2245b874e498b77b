// SPDX-License-Identifier: Apache-2.0
// oneDNN's matrix product with constant weights. They are packed once, in an order that works for every number of rows, so the weights are
// in memory once however long sequences are and whether samples run alone or together. The product is cut into parts that may run side by
// side.
#pragma once

#ifdef QK_HAVE_ONEDNN

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "graph/base/inner_loop.hpp"
#include "graph/evaluate/execute/onednn.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::execute {

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

}  // namespace qk::graph::execute

#endif
