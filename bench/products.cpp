// SPDX-License-Identifier: Apache-2.0
// Times products over packed weights beside ggml's, oneDNN's and Eigen's kernels, on one thread and turn by turn: each figure is the best
// of many short repetitions, which other work on the machine disturbs least. bench/products.py makes a table of it.
//
// usage: products one BYTES REPETITIONS [GGML_FOLDER]         one vector and a matrix of so many packed bytes, 4096 columns
//        products many VECTORS REPETITIONS                    256 rows of 4096 columns
//
// GGML_FOLDER holds libggml-base.so and libggml-cpu.so. oneDNN is loaded where it is installed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ggml.hpp"
#include "onednn.hpp"
#include "qk/codec.hpp"
#include "qk/product.hpp"

#if __has_include(<Eigen/Dense>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <Eigen/Dense>
#pragma GCC diagnostic pop
#define HAS_EIGEN 1
#endif

namespace {

constexpr std::size_t columns = 4096;

struct contender {
    std::string name;
    double work;   ///< weights, or multiply-adds
    double bytes;  ///< of weights
    std::function<void()> run;
    double best = 1e30;
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void race(std::vector<contender>& all, int repetitions) {
    for (int i = 0; i < repetitions; ++i) {
        for (contender& c : all) {
            c.run();
            const double begin = seconds();
            c.run();
            c.best = std::min(c.best, seconds() - begin);
        }
    }
    for (const contender& c : all) std::printf("%s\t%.3f\t%.3f\n", c.name.c_str(), c.work / c.best * 1e-9, c.bytes / c.best * 1e-9);
}

std::vector<float> numbers(std::size_t n) {
    std::mt19937 random(static_cast<std::uint32_t>(n));
    std::normal_distribution<float> normal;
    std::vector<float> made(n);
    for (float& v : made) v = normal(random);
    return made;
}

/// A matrix whose rows repeat after 64 of them, so that large ones are made quickly.
struct matrix {
    std::vector<std::byte> packed;
    std::vector<float> scales;
    qk::packed_weights weights;
};
template <auto Format>
std::size_t bytes_of_row() {
    return qk::packed_bytes<Format>(qk::along_axis{1, columns, 1});
}
template <auto Format>
matrix* make(std::size_t rows) {
    auto* m = new matrix;  // as long as the program
    const std::vector<float> row = numbers(64 * columns);
    const qk::along_axis axis{rows, columns, 1};
    std::vector<float> all(rows * columns);
    for (std::size_t r = 0; r < rows; ++r) std::memcpy(&all[r * columns], &row[r % 64 * columns], columns * sizeof(float));
    m->packed.resize(qk::packed_bytes<Format>(axis));
    const std::span<const std::byte> packed(m->packed);
    if constexpr (qk::is_block_format(Format)) {
        qk::encode<Format>(all, m->packed, axis);
        m->weights = {rows, columns, qk::planes_of(qk::layout_of(Format, axis), packed), {}};
    } else {
        m->scales.assign(rows * columns / 32, 0.03f);
        const qk::codec_parameters scales = qk::per_block{m->scales, {}, axis, 32};
        qk::encode<Format>(all, m->packed, scales);
        m->weights = {rows, columns, {packed, {}, {}, {}}, scales};
    }
    return m;
}

template <auto Format>
void add_one(const char* name, std::size_t bytes, const std::vector<float>& x, std::vector<float>& y, std::vector<contender>& to) {
    const std::size_t rows = std::min(y.size(), bytes / bytes_of_row<Format>() / 8 * 8);
    const matrix* m = make<Format>(rows);
    const double weights = static_cast<double>(rows * columns), read = static_cast<double>(m->packed.size() + 4 * m->scales.size());
    const auto with = [&](const char* order, qk::product_sums sums) {
        to.push_back({std::string("qk ") + name + order, weights, read,
                      [=, &x, &y] { qk::product<Format>(m->weights, {x}, {std::span(y).first(rows)}, {.sums = sums}); }});
    };
    with("", qk::product_sums::floats);
    if (qk::takes_integers(Format)) with(", integers", qk::product_sums::integers);
}

/// Adds a product over ggml's blocks as they lie in a .gguf: any bits, under scales of 2^-12 (where a block of the type has them).
template <auto Format>
void add_blocks(const char* name, std::size_t scale, std::size_t bytes, const std::vector<float>& x, std::vector<float>& y,
                std::vector<contender>& to) {
    const std::size_t row = bytes_of_row<Format>(), rows = std::min(y.size(), bytes / row / 8 * 8);
    auto* m = new matrix;  // as long as the program
    std::mt19937 random(1);
    m->packed.resize(rows * row);
    for (std::byte& b : m->packed) b = static_cast<std::byte>(random() >> 24);
    for (std::size_t at = scale; at + 4 <= m->packed.size(); at += qk::bytes_of_block(Format)) {
        constexpr std::uint16_t two[2] = {0x0c00, 0x0c00};
        std::memcpy(m->packed.data() + at, two, scale == 0 && Format == qk::ggml::q4_K ? 4 : 2);
    }
    m->weights = {rows, columns, {m->packed, {}, {}, {}}};
    to.push_back({std::string("qk ggml.") + name, static_cast<double>(rows * columns), static_cast<double>(m->packed.size()),
                  [=, &x, &y] { qk::product<Format>(m->weights, {x}, {std::span(y).first(rows)}); }});
}

/// ggml's products, with x rounded in each call, as qk does.
void add_ggml(const char* folder, std::size_t bytes, const std::vector<float>& x, std::vector<float>& y, std::vector<contender>& to) {
    const auto rows = [&](std::size_t row) { return std::min(y.size(), bytes / row / 8 * 8); };
    for (const ggml_kernels::product& p : ggml_kernels(folder).products(rows, columns, 1))
        to.push_back({p.name, static_cast<double>(p.rows * columns), static_cast<double>(p.bytes),
                      [p, &x, &y] { p.run(0, x.data(), 1, y.data()); }});
}

#if defined(HAS_EIGEN)
using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
Eigen::Map<const row_major> as_matrix(const std::vector<float>& v, std::size_t rows) {
    return {v.data(), static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns)};
}
#endif

int one(std::size_t bytes, int repetitions, const char* ggml) {
    static const std::vector<float> x = numbers(columns);
    static std::vector<float> y(std::max<std::size_t>(bytes / (columns / 2), 64));
    static std::vector<float> w;
    std::vector<contender> all;
    add_one<qk::mxfp4>("mxfp4", bytes, x, y, all);
    add_one<qk::nvfp4>("nvfp4", bytes, x, y, all);
    add_one<qk::int4>("int4", bytes, x, y, all);
    add_one<qk::int8>("int8", bytes, x, y, all);
    add_one<qk::fp8_e4m3fn>("fp8_e4m3fn", bytes, x, y, all);
    add_blocks<qk::ggml::q4_K>("q4_K", 0, bytes, x, y, all);
    add_blocks<qk::ggml::q6_K>("q6_K", 208, bytes, x, y, all);
    add_blocks<qk::ggml::q8_0>("q8_0", 0, bytes, x, y, all);
    add_blocks<qk::ggml::iq4_nl>("iq4_nl", 0, bytes, x, y, all);
    add_blocks<qk::ggml::iq4_xs>("iq4_xs", 0, bytes, x, y, all);
    if (ggml != nullptr) add_ggml(ggml, bytes, x, y, all);
#if defined(HAS_EIGEN)
    const std::size_t rows = std::max<std::size_t>(bytes / (4 * columns), 8);
    w.assign(rows * columns, 0.5f);
    all.push_back({"Eigen float32", static_cast<double>(rows * columns), static_cast<double>(4 * rows * columns), [rows] {
                       Eigen::Map<Eigen::VectorXf>(y.data(), static_cast<Eigen::Index>(rows)).noalias() =
                           as_matrix(w, rows) * Eigen::Map<const Eigen::VectorXf>(x.data(), static_cast<Eigen::Index>(columns));
                   }});
#endif
    race(all, repetitions);
    return 0;
}

template <auto Format>
void add_many(const char* name, std::size_t rows, std::size_t vectors, const std::vector<float>& x, std::vector<float>& y,
              std::vector<contender>& to) {
    const matrix* m = make<Format>(rows);
    constexpr const char* orders[] = {"", ", chains", ", integers"};
    for (const qk::product_sums sums : {qk::product_sums::floats, qk::product_sums::chains, qk::product_sums::integers}) {
        if (sums == qk::product_sums::integers && !qk::takes_integers(Format)) continue;
        to.push_back({std::string("qk ") + name + orders[static_cast<int>(sums)], static_cast<double>(rows * columns * vectors),
                      static_cast<double>(m->packed.size()), [=, &x, &y] {
                          qk::product<Format>(m->weights, {x, vectors}, {y}, {.sums = sums});
                      }});
    }
}

int many(std::size_t vectors, int repetitions) {
    constexpr std::size_t rows = 256;
    static const std::vector<float> x = numbers(vectors * columns), w = numbers(rows * columns);
    static std::vector<float> y(vectors * rows);
    const double work = static_cast<double>(rows * columns * vectors), bytes = static_cast<double>(4 * rows * columns);
    std::vector<contender> all;
    add_many<qk::mxfp4>("mxfp4", rows, vectors, x, y, all);
    add_many<qk::int8>("int8", rows, vectors, x, y, all);
    add_many<qk::fp8_e4m3fn>("fp8_e4m3fn", rows, vectors, x, y, all);
    if (const onednn_products by; by.floats != nullptr) {
        constexpr auto m = static_cast<std::int64_t>(rows), k = static_cast<std::int64_t>(columns);
        const auto n = static_cast<std::int64_t>(vectors);
        all.push_back(
            {"oneDNN float32", work, bytes, [=] { by.floats('N', 'T', n, m, k, 1.0f, x.data(), k, w.data(), k, 0.0f, y.data(), m); }});
    }
#if defined(HAS_EIGEN)
    all.push_back({"Eigen float32", work, bytes, [vectors] {
                       Eigen::Map<row_major>(y.data(), static_cast<Eigen::Index>(vectors), static_cast<Eigen::Index>(rows)).noalias() =
                           as_matrix(x, vectors) * as_matrix(w, rows).transpose();
                   }});
#endif
    race(all, repetitions);
    return 0;
}

}  // namespace

int main(int n, char** arguments) {
    const std::string what = n > 3 ? arguments[1] : "";
    if (what == "one") return one(std::strtoull(arguments[2], nullptr, 10), std::atoi(arguments[3]), n > 4 ? arguments[4] : nullptr);
    if (what == "many") return many(std::strtoull(arguments[2], nullptr, 10), std::atoi(arguments[3]));
    std::fprintf(stderr, "usage: products one BYTES REPETITIONS [GGML_FOLDER] | products many VECTORS REPETITIONS\n");
    return 2;
}
