// SPDX-License-Identifier: Apache-2.0
// A runtime of your own: y = W x with weights packed at their true width. qk's kernels decode them in tiles that stay in the first-level
// cache. The product on float weights runs beside it. Uses only qk's core headers.
//
//   custom_runtime [rows columns]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "qk/codec.hpp"

namespace {

/// Sums in eight independent chains, so that the compiler may use vectors without changing the order within a chain.
float dot(const float* a, const float* b, std::size_t n) {
    float sum[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (std::size_t k = 0; k < 8; ++k) sum[k] += a[i + k] * b[i + k];
    }
    for (; i < n; ++i) sum[0] += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/// Weights of a linear layer. Each row is packed on its own; blocks run along the row.
template <auto Format>
class packed_matrix {
  public:
    packed_matrix(const std::vector<float>& w, std::size_t rows, std::size_t columns)
        : rows_(rows), columns_(columns), row_bytes_(qk::packed_bytes<Format>(columns)), bytes_(rows * row_bytes_) {
        for (std::size_t r = 0; r < rows; ++r) {
            const std::span<const float> row(w.data() + r * columns, columns);
            qk::encode<Format>(row, std::span<std::byte>(bytes_).subspan(r * row_bytes_, row_bytes_));
        }
    }

    std::size_t bytes() const { return bytes_.size(); }

    /// Computes y = W x. `row` is scratch memory for one decoded row of `columns` floats, a few KiB.
    void multiply(const std::vector<float>& x, std::vector<float>& y, std::vector<float>& row) const {
        for (std::size_t r = 0; r < rows_; ++r) {
            qk::decode<Format>(std::span<const std::byte>(bytes_).subspan(r * row_bytes_, row_bytes_), std::span<float>(row));
            y[r] = dot(row.data(), x.data(), columns_);
        }
    }

  private:
    std::size_t rows_, columns_, row_bytes_;
    std::vector<std::byte> bytes_;
};

template <class Call>
double milliseconds(const Call& call) {
    double best = 1e30;
    for (int i = 0; i < 7; ++i) {
        const auto start = std::chrono::steady_clock::now();
        call();
        best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

struct problem {
    std::size_t rows, columns;
    std::vector<float> w, x;
    std::vector<float> expected;
};

template <auto Format>
bool run(const char* name, const problem& p) {
    const packed_matrix<Format> packed(p.w, p.rows, p.columns);
    std::vector<float> y(p.rows), row(p.columns);
    const double ms = milliseconds([&] { packed.multiply(p.x, y, row); });
    double error = 0, size = 0;
    for (std::size_t r = 0; r < p.rows; ++r) {
        error += static_cast<double>(y[r] - p.expected[r]) * static_cast<double>(y[r] - p.expected[r]);
        size += static_cast<double>(p.expected[r]) * static_cast<double>(p.expected[r]);
    }
    // The law: the packed product is the product of fake-quantized weights, bit for bit.
    bool same = true;
    for (std::size_t r = 0; r < p.rows; ++r) {
        const std::span<const float> exact(p.w.data() + r * p.columns, p.columns);
        qk::fake_quantize<Format>(exact, std::span<float>(row));
        same = same && y[r] == dot(row.data(), p.x.data(), p.columns);
    }
    std::printf("%-12s %8.2f MB %8.3f ms   error %.2e   %s\n", name, static_cast<double>(packed.bytes()) / 1e6, ms, error / size,
                same ? "equals fake_quantize" : "DIFFERS FROM FAKE_QUANTIZE");
    return same;
}

}  // namespace

int main(int argc, char** argv) {
    problem p;
    p.rows = argc > 2 ? static_cast<std::size_t>(std::atol(argv[1])) : 1024;
    p.columns = argc > 2 ? static_cast<std::size_t>(std::atol(argv[2])) : 4096;
    p.w.resize(p.rows * p.columns);
    p.x.resize(p.columns);
    p.expected.resize(p.rows);
    unsigned state = 1;
    const auto uniform = [&state] {
        state = state * 1664525u + 1013904223u;
        return static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) * 0x1p-23f;
    };
    for (float& v : p.w) v = uniform() * uniform();
    for (float& v : p.x) v = uniform();
    const double ms = milliseconds([&] {
        for (std::size_t r = 0; r < p.rows; ++r) p.expected[r] = dot(p.w.data() + r * p.columns, p.x.data(), p.columns);
    });
    std::printf("%zu x %zu\n%-12s %8.2f MB %8.3f ms\n", p.rows, p.columns, "float", static_cast<double>(p.w.size()) * 4e-6, ms);
    bool same = run<qk::bf16>("bf16", p);
    same = run<qk::bfp16>("bfp16", p) && same;
    same = run<qk::mxfp8_e4m3>("mxfp8_e4m3", p) && same;
    same = run<qk::mxint8>("mxint8", p) && same;
    same = run<qk::mxfp4>("mxfp4", p) && same;
    return same ? 0 : 1;
}
