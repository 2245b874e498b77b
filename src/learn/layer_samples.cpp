// SPDX-License-Identifier: Apache-2.0
#include "learn/layer_samples.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <random>

#include "graph/ops/conv.hpp"
#include "graph/ops/conv_transpose.hpp"
#include "graph/ops/widened.hpp"

namespace qk::graph::detail {
namespace {

std::size_t count_of(const tensor& made, const weight_rows& rows) { return made.size() / (rows.groups * rows.rows); }

/// The offset in one channel of the input at which each tap of an output's place reads. -1: padding, or between inputs of a ConvTranspose.
class taps_of_place {
  public:
    taps_of_place(const execute::net_node& node, const dims& x, const dims& weight, std::size_t groups)
        : transposed_(product_axes_of(node.view.proto())->transposed),
          window_(transposed_ ? ops::transposed_window(node.view, x, {weight.begin() + 2, weight.end()})
                              : ops::check_conv(node.view, x, weight, nullptr, static_cast<std::int64_t>(groups))),
          reads_(transposed_ ? window_.output : window_.input),
          makes_(transposed_ ? window_.input : window_.output),
          offsets_(static_cast<std::size_t>(ops::product(window_.kernel))) {}

    std::size_t places() const { return static_cast<std::size_t>(ops::product(makes_)); }
    std::size_t picture() const { return static_cast<std::size_t>(ops::product(reads_)); }

    const std::vector<std::int64_t>& at(std::size_t place) {
        std::vector<std::int64_t> o(window_.rank()), k(window_.rank(), 0);
        for (std::size_t i = window_.rank(), rest = place; i-- > 0;) {
            o[i] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(makes_[i]));
            rest /= static_cast<std::size_t>(makes_[i]);
        }
        std::size_t t = 0;
        do offsets_[t++] = offset(o, k);
        while (ops::advance(k, window_.kernel));
        return offsets_;
    }

  private:
    std::int64_t offset(const std::vector<std::int64_t>& o, const std::vector<std::int64_t>& k) const {
        std::int64_t base = 0;
        for (std::size_t i = 0; i < window_.rank(); ++i) {
            std::int64_t p = 0;
            if (transposed_) {
                const std::int64_t from = o[i] + window_.pad_begin[i] - k[i] * window_.dilation[i];
                if (from < 0 || from % window_.stride[i] != 0) return -1;
                p = from / window_.stride[i];
            } else {
                p = o[i] * window_.stride[i] - window_.pad_begin[i] + k[i] * window_.dilation[i];
            }
            if (p < 0 || p >= reads_[i]) return -1;
            base = base * reads_[i] + p;
        }
        return base;
    }
    bool transposed_;
    ops::window window_;
    std::vector<std::int64_t> reads_, makes_, offsets_;
};

}  // namespace

channel_of::channel_of(const weight_rows& rows, const dims& output, bool convolution) : channels(rows.groups * rows.rows) {
    if (convolution)
        for (std::size_t i = 2; i < output.size(); ++i) inner *= static_cast<std::size_t>(output[i]);
}

std::vector<place> choose_places(const side_by_side::visit& here, const weight_rows& rows, std::size_t limit, std::uint64_t seed) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u + here.node);
    std::size_t all = 0;
    for (const tensor& y : here.makes) all += count_of(y, rows);
    std::vector<place> chosen;
    const std::size_t runs = here.makes.size();
    for (std::size_t r = 0; r < runs; ++r) {
        const std::size_t count = count_of(here.makes[r], rows);
        const std::size_t quota = all <= limit ? count : std::min(count, (r + 1) * limit / runs - r * limit / runs);
        std::size_t left = quota;
        for (std::size_t p = 0; p < count && left > 0; ++p)  // every subset is equally likely
            if (random() % (count - p) < left) chosen.push_back({r, p}), --left;
    }
    for (std::size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[static_cast<std::size_t>(random() % i)]);
    return chosen;
}

layer_samples gather_samples(const side_by_side::visit& here, const weight_rows& rows, const dims& weight, std::size_t group,
                             const std::vector<place>& places, execute::workers& pool) {
    layer_samples s;
    s.x.resize(static_cast<Eigen::Index>(places.size()), static_cast<Eigen::Index>(rows.columns));
    s.y.resize(static_cast<Eigen::Index>(places.size()), static_cast<Eigen::Index>(rows.rows));
    const bool convolution = product_axes_of(here.at->view.proto())->windows;
    std::vector<tensor> reads, makes;
    for (std::size_t r = 0; r < here.reads.size(); ++r)
        reads.push_back(ops::widened(here.reads[r])), makes.push_back(ops::widened(here.makes[r]));
    const std::size_t channels = rows.columns / rows.taps, piece = 256, pieces = (places.size() + piece - 1) / piece;
    pool.for_each(pieces, [&](std::size_t k, execute::arena&) {
        dims shape;
        std::optional<taps_of_place> taps;
        for (std::size_t i = k * piece; i < std::min((k + 1) * piece, places.size()); ++i) {
            const tensor &x = reads[places[i].run], &y = makes[places[i].run];
            float *to_x = s.x.data() + i * rows.columns, *to_y = s.y.data() + i * rows.rows;
            const float *from = x.as<float>().data(), *made = y.as<float>().data();
            if (!convolution) {
                std::copy_n(from + places[i].at * rows.columns, rows.columns, to_x);
                std::copy_n(made + places[i].at * rows.rows, rows.rows, to_y);
                continue;
            }
            if (!taps || shape != x.shape()) taps.emplace(*here.at, x.shape(), weight, rows.groups), shape = x.shape();
            const std::size_t picture = places[i].at / taps->places(), at = places[i].at % taps->places();
            const std::vector<std::int64_t>& offsets = taps->at(at);
            from += (picture * rows.groups + group) * channels * taps->picture();
            for (std::size_t c = 0; c < channels; ++c, from += taps->picture())
                for (const std::int64_t o : offsets) *to_x++ = o < 0 ? 0.0f : from[o];
            made += (picture * rows.groups + group) * rows.rows * taps->places() + at;
            for (std::size_t o = 0; o < rows.rows; ++o) to_y[o] = made[o * taps->places()];
        }
    });
    return s;
}

}  // namespace qk::graph::detail
