// SPDX-License-Identifier: Apache-2.0
// Work on the rows of a tensor: shared among threads, and with the importance of each column.
#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "parts.hpp"

namespace qk::checkpoint {

void in_parts(std::size_t count, int threads, const std::function<void(std::size_t, std::size_t)>& work) {
    const std::size_t parts = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), count);
    if (parts <= 1) {
        if (count != 0) work(0, count);
        return;
    }
    std::exception_ptr problem;
    std::mutex one;
    const auto part = [&](std::size_t k) {
        try {
            work(count * k / parts, count * (k + 1) / parts);
        } catch (...) {
            const std::scoped_lock lock(one);
            if (!problem) problem = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    for (std::size_t k = 1; k < parts; ++k) others.emplace_back(part, k);
    part(0);
    for (std::thread& t : others) t.join();
    if (problem) std::rethrow_exception(problem);
}

importance_rows::importance_rows(const weight& w, std::vector<float> values) : values_(std::move(values)) {
    if (values_.empty()) return;
    columns_ = w.shape.empty() ? 1 : w.shape.back();
    rows_ = w.shape.size() < 2 ? 1 : w.shape[w.shape.size() - 2];
    const std::uint64_t stack = w.elements() == 0 ? 1 : w.elements() / (rows_ * columns_);
    matrices_ = values_.size() == columns_ ? 1 : stack;
    if (values_.size() != columns_ * matrices_)
        throw error(w.name + " has " + std::to_string(columns_) + " columns" +
                    (stack > 1 ? " in " + std::to_string(stack) + " matrices" : "") + ", and an importance of " +
                    std::to_string(values_.size()) + " values");
    for (const float v : values_)
        if (!(v >= 0 && std::isfinite(v))) throw error("the importance of " + w.name + " holds a value that is no number from 0 on");
}

}  // namespace qk::checkpoint
