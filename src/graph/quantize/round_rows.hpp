// SPDX-License-Identifier: Apache-2.0
// Equations (2) and (3) of compensate.hpp on plain matrices.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace qk::graph::detail {

using double_matrix = Eigen::MatrixXd;

/// Returns e h e^T summed over the rows e of E: the squared error of the outputs.
inline double output_error(const double_matrix& e, const double_matrix& h) { return (e * h).cwiseProduct(e).sum(); }

/// Rounds w [rows, n] with compensation for h [n, n] (symmetric). `lengths` cuts the columns into blocks of neighbours; round(block,
/// values) rounds the columns of one block (row-major floats) in place. Returns false and leaves w unchanged if h has no inverse or
/// rounding to nearest is as good. `nearest` and `compensated` receive the errors of the two.
template <class Round>
bool round_rows(double_matrix& w, const double_matrix& h, const std::vector<std::size_t>& lengths, const Round& round, double& nearest,
                double& compensated) {
    const Eigen::Index n = w.cols(), rows = w.rows();
    const auto rounded = [&](std::size_t block, const auto& part) {
        std::vector<float> values(static_cast<std::size_t>(part.size()));
        Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> view(values.data(), rows, part.cols());
        view = part.template cast<float>();
        round(block, std::span<float>(values));
        return double_matrix(view.template cast<double>());
    };
    std::vector<Eigen::Index> first;
    Eigen::Index at = 0;
    for (const std::size_t l : lengths) first.push_back(at), at += static_cast<Eigen::Index>(l);

    double_matrix plain(rows, n);
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        const auto l = static_cast<Eigen::Index>(lengths[b]);
        plain.middleCols(first[b], l) = rounded(b, w.middleCols(first[b], l));
    }
    nearest = compensated = output_error(w - plain, h);
    const double mean = h.diagonal().mean();
    if (!(mean > 0) || !h.allFinite() || !w.allFinite()) return false;

    // Blocks with the largest inputs come first, so that the many smaller ones behind them can take up their errors.
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<double> weight;
    for (std::size_t b = 0; b < lengths.size(); ++b)
        weight.push_back(h.diagonal().segment(first[b], static_cast<Eigen::Index>(lengths[b])).mean());
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> sorted(n);
    std::vector<Eigen::Index> edge{0};  // first columns of the sorted blocks, and the end
    for (const std::size_t b : order) {
        const auto l = static_cast<Eigen::Index>(lengths[b]);
        for (Eigen::Index i = 0; i < l; ++i) sorted.indices()[first[b] + i] = static_cast<int>(edge.back() + i);
        edge.push_back(edge.back() + l);
    }

    double_matrix v = w * sorted.transpose();
    double_matrix damped = sorted * h * sorted.transpose();
    damped.diagonal().array() += 0.01 * mean;
    const Eigen::LLT<double_matrix> forward(damped);
    if (forward.info() != Eigen::Success) return false;
    const Eigen::LLT<double_matrix, Eigen::Upper> inverse(forward.solve(double_matrix::Identity(n, n)));
    if (inverse.info() != Eigen::Success) return false;
    const double_matrix u = inverse.matrixU();

    // Columns behind a panel of blocks are updated once for the whole panel: one matrix product instead of many thin ones.
    double_matrix q(rows, n), x(rows, n);
    for (std::size_t k = 0; k < order.size();) {
        const Eigen::Index start = edge[k];
        std::size_t stop = k;
        while (stop < order.size() && edge[stop] - start < 64) ++stop;
        const Eigen::Index end = edge[stop];
        for (; k < stop; ++k) {
            const Eigen::Index here = edge[k], next = edge[k + 1], l = next - here;
            q.middleCols(here, l) = rounded(order[k], v.middleCols(here, l));
            double_matrix e = v.middleCols(here, l) - q.middleCols(here, l);
            u.block(here, here, l, l).triangularView<Eigen::Upper>().solveInPlace<Eigen::OnTheRight>(e);
            v.middleCols(next, end - next).noalias() -= e * u.block(here, next, l, end - next);
            x.middleCols(here, l) = e;
        }
        v.rightCols(n - end).noalias() -= x.middleCols(start, end - start) * u.block(start, end, end - start, n - end);
    }
    q = q * sorted;
    const double error = output_error(w - q, h);
    if (!(error < nearest)) return false;
    compensated = error;
    w = q;
    return true;
}

}  // namespace qk::graph::detail
