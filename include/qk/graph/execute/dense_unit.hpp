// SPDX-License-Identifier: Apache-2.0
// A product with constant weights, and the bias Add behind it, as one step. Before: MatMul [-> Add] or Gemm. After: one call of oneDNN,
// with the weights packed: a 1 x 1 convolution over as many places as there are rows. Conditions: float32, constant matrix and bias.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "qk/graph/execute/network.hpp"
#include "qk/graph/execute/onednn.hpp"

namespace qk::graph::execute {

class dense_unit {
  public:
    /// `weights` is [k,n], or [n,k] if transposed; `bias` has n elements or is empty.
    dense_unit(const tensor& weights, bool transposed, tensor bias) : bias_(std::move(bias)) {
        k_ = weights.dim(transposed ? 1 : 0), n_ = weights.dim(transposed ? 0 : 1);
        packed_.resize(weights.size());
        const auto w = weights.as<float>();
        const auto k = static_cast<std::size_t>(k_), n = static_cast<std::size_t>(n_);
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < k; ++j) packed_[i * k + j] = transposed ? w[i * k + j] : w[j * n + i];
    }

    /// An empty tensor: not possible for this x, do the nodes one by one.
    tensor run(const tensor& x, allocator& memory) const {
#ifdef QK_HAVE_ONEDNN
        if (x.type() != data_type::float32 || x.rank() < 2 || x.size() == 0 || x.shape().back() != k_ || n_ == 0 || bias_.rank() > x.rank()) return {};
        const auto rows = static_cast<std::int64_t>(x.size()) / k_;
        const auto& product = prepared(rows);
        if (!product.convolution) return {};
        dims shape = x.shape();
        shape.back() = n_;
        tensor y(data_type::float32, shape, memory.allocate(static_cast<std::size_t>(rows * n_) * sizeof(float)));
        product.convolution->run(x.as<float>().data(), y.as<float>().data(), memory);
        return y;
#else
        static_cast<void>(x), static_cast<void>(memory);
        return {};
#endif
    }

  private:
    std::vector<float> packed_;  ///< [n,k]
    tensor bias_;
    std::int64_t k_ = 0, n_ = 0;
#ifdef QK_HAVE_ONEDNN
    struct made {
        std::int64_t rows;
        std::optional<dnn_convolution> convolution;
    };
    const made& prepared(std::int64_t rows) const {
        {
            const std::shared_lock lock(mutex_);
            for (const auto& m : made_)
                if (m->rows == rows) return *m;
        }
        const std::unique_lock lock(mutex_);
        for (const auto& m : made_)
            if (m->rows == rows) return *m;
        auto m = std::make_unique<made>();
        m->rows = rows;
        dnn_convolution::shape s;
        s.x = {1, k_, 1, rows}, s.weights = {n_, k_, 1, 1}, s.y = {1, n_, 1, rows};
        s.stride = {1, 1}, s.dilation = {0, 0}, s.pad_begin = {0, 0}, s.pad_end = {0, 0};
        s.bias = !bias_.empty();
        const one_thread alone;
        try {
            m->convolution = dnn_convolution::make(s, packed_.data(), s.bias ? bias_.as<float>().data() : nullptr);
        } catch (const dnnl::error&) {  // a shape that it does not take
        }
        made_.push_back(std::move(m));
        return *made_.back();
    }
    mutable std::shared_mutex mutex_;
    mutable std::vector<std::unique_ptr<made>> made_;  ///< by number of rows
#endif
};

}  // namespace qk::graph::execute
