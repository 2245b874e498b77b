// SPDX-License-Identifier: Apache-2.0
// Times products of one to many vectors by qk::dispatch, beside ggml's, beside oneDNN's products of float32 and of int8 matrices and beside
// reading as many bytes, on one thread. bench/vectors.py makes a table of it, with torch beside it.
//
// usage: vectors ROWS COLUMNS COPIES REPETITIONS [--ggml FOLDER] [FORMAT ...]
//
// COPIES matrices are multiplied in turn: one stays in the caches where it fits, many do not. FORMAT is what parse_format takes, and
// FORMAT/N an elementwise format whose scales are shared by N weights of a row; without one the weights share one. Milliseconds, the least
// of the repetitions; all contenders of a line take turns. FOLDER holds libggml-base.so and libggml-cpu.so.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ggml.hpp"
#include "onednn.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/parse.hpp"

namespace {

constexpr std::size_t counts[] = {1, 2, 4, 8, 32, 128};

/// Runs contenders turn by turn, once without a clock, and returns the least milliseconds of each.
std::vector<double> race(const std::vector<std::function<void()>>& all, int repetitions) {
    std::vector<double> least(all.size(), 1e30);
    for (int turn = 0; turn <= repetitions; ++turn) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto begin = std::chrono::steady_clock::now();
            all[i]();
            const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            if (turn != 0) least[i] = std::min(least[i], seconds * 1e3);
        }
    }
    return least;
}

struct matrix {
    std::vector<std::byte> packed;
    std::vector<float> scales;
    qk::packed_weights weights;
};

/// Makes a matrix whose rows repeat after 64 of them.
matrix make(const std::string& text, std::size_t rows, std::size_t columns, const std::vector<float>& numbers) {
    const std::size_t slash = text.find('/');
    const auto parsed = qk::parse_format(text.substr(0, slash));
    if (!parsed) {
        std::fprintf(stderr, "vectors: %s is no format\n", text.c_str());
        std::exit(2);
    }
    const qk::format f = *parsed;
    const qk::along_axis axis{rows, columns, 1};
    matrix m;
    qk::codec_parameters p;
    if (slash != std::string::npos) {
        const std::size_t run = std::strtoull(text.c_str() + slash + 1, nullptr, 10);
        m.scales.assign(rows * ((columns - 1) / run + 1), 0.03f);
        p = qk::per_block{m.scales, {}, axis, run};
    } else if (!qk::is_block_format(f)) {
        p = qk::affine{qk::is_integer_format(f) ? 0.03f : 1.0f};
    }
    if (qk::is_block_format(f)) p.axis = axis;
    m.packed.resize(qk::packed_bytes(f, axis));
    if (qk::is_read_only(f)) {  // ggml's blocks: any codes and scales
        std::mt19937 random(1);
        for (std::byte& b : m.packed) b = static_cast<std::byte>(random() >> 24 & 0x1f);
        m.weights = {rows, columns, {m.packed, {}, {}, {}}, {}};
        return m;
    }
    std::vector<float> all(rows * columns);
    for (std::size_t r = 0; r < rows; ++r) std::memcpy(&all[r * columns], &numbers[r % 64 * columns], columns * sizeof(float));
    static_cast<void>(qk::dispatch::encode(f, all, m.packed, p));
    const std::span<const std::byte> packed(m.packed);
    if (qk::is_block_format(f)) m.weights = {rows, columns, qk::planes_of(qk::layout_of(f, axis), packed), {}};
    else m.weights = {rows, columns, {packed, {}, {}, {}}, p};
    return m;
}

/// Reads memory, a word of each line.
void read(const std::vector<std::byte>& memory) {
    static volatile std::uint64_t seen = 0;
    constexpr std::size_t line = 64, lines = 8;
    std::uint64_t sum[lines] = {};
    for (std::size_t i = 0; i + lines * line <= memory.size(); i += lines * line) {
        for (std::size_t k = 0; k < lines; ++k) {
            std::uint64_t word;
            std::memcpy(&word, memory.data() + i + line * k, sizeof word);
            sum[k] ^= word;
        }
    }
    for (const std::uint64_t s : sum) seen = seen + s;
}

void print(const std::string& name, const char* order, const std::vector<double>& times) {
    std::printf("| %s | %s |", name.c_str(), order);
    for (const double t : times) std::printf(" %.2f |", t);
    std::printf("\n");
    std::fflush(stdout);
}

/// oneDNN's products, where its library is installed; those of int8 read one matrix again and again.
void race_onednn(std::size_t rows, std::size_t columns, std::size_t copies, int repetitions, const std::vector<float>& x,
                 std::vector<float>& y) {
    const onednn_products by;
    if (by.floats == nullptr) return;
    const std::vector<std::vector<float>> w(copies, std::vector<float>(rows * columns, 0.5f));
    const std::vector<std::int8_t> of_x(std::size_t{128} * columns, 3), of_w(rows * columns, 2);
    std::vector<std::int32_t> sums(std::size_t{128} * rows);
    std::vector<std::vector<double>> times(2);
    const auto m = static_cast<std::int64_t>(rows), k = static_cast<std::int64_t>(columns);
    for (const std::size_t count : counts) {
        const auto c = static_cast<std::int64_t>(count);
        const std::int32_t none = 0;
        const std::vector<double> least =
            race({[&] {
                      for (const auto& one : w) by.floats('N', 'T', c, m, k, 1, x.data(), k, one.data(), k, 0, y.data(), m);
                  },
                  [&] { by.integers('N', 'T', 'F', c, m, k, 1, of_x.data(), k, 0, of_w.data(), k, 0, 0, sums.data(), m, &none); }},
                 std::max(repetitions / static_cast<int>((count + 7) / 8), 2));
        times[0].push_back(least[0] / static_cast<double>(copies)), times[1].push_back(least[1]);
    }
    print("oneDNN float32", "", times[0]);
    print("oneDNN int8", "sums of int32", times[1]);
}

void race_ggml(const std::string& folder, std::size_t rows, std::size_t columns, std::size_t copies, int repetitions,
               const std::vector<float>& x, std::vector<float>& y) {
    for (const ggml_kernels::product& p : ggml_kernels(folder).products([rows](std::size_t) { return rows; }, columns, copies)) {
        std::vector<double> times;
        for (const std::size_t count : counts) {
            const auto all = [&] {
                for (std::size_t m = 0; m < copies; ++m) p.run(m, x.data(), count, y.data());
            };
            times.push_back(race({all}, std::max(repetitions / static_cast<int>((count + 7) / 8), 2))[0] / static_cast<double>(copies));
        }
        print(p.name, "", times);
    }
}

}  // namespace

int main(int n, char** arguments) {
    if (n < 5) {
        std::fprintf(stderr, "usage: vectors ROWS COLUMNS COPIES REPETITIONS [--ggml FOLDER] [FORMAT ...]\n");
        return 2;
    }
    const std::size_t rows = std::strtoull(arguments[1], nullptr, 10), columns = std::strtoull(arguments[2], nullptr, 10),
                      copies = std::strtoull(arguments[3], nullptr, 10);
    const int repetitions = std::atoi(arguments[4]);
    std::vector<std::string> names(arguments + 5, arguments + n);
    std::string ggml;
    if (names.size() > 1 && names[0] == "--ggml") {
        ggml = names[1];
        names.erase(names.begin(), names.begin() + 2);
    }
    if (names.empty())
        names = {"mxfp4", "nvfp4", "int4/32", "int4/128",  "int8/32",   "int8",      "fp8_e4m3fn",  "mxfp8_e4m3",
                 "bf16",  "fp16",  "fp32",    "ggml.q4_K", "ggml.q6_K", "ggml.q8_0", "ggml.iq4_nl", "ggml.iq4_xs"};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(std::size_t{128} * columns), y(std::size_t{128} * rows), numbers(64 * columns);
    for (float& v : x) v = normal(random);
    for (float& v : numbers) v = normal(random);
    std::printf("%s, %zu x %zu, %zu in turn; milliseconds of a product\n\n| weights | order | 1 | 2 | 4 | 8 | 32 | 128 |\n",
                qk::dispatch::architecture(), rows, columns, copies);
    std::printf("|---|---|---|---|---|---|---|---|\n");
    for (const double bits : {4.25, 8.0, 16.0, 32.0}) {
        const auto bytes = static_cast<std::size_t>(static_cast<double>(rows * columns) * bits / 8);
        const std::vector<std::vector<std::byte>> all(copies, std::vector<std::byte>(bytes, std::byte{1}));
        const double time = race({[&] {
                                     for (const auto& one : all) read(one);
                                 }},
                                 repetitions)[0] /
                            static_cast<double>(copies);
        char name[32];
        std::snprintf(name, sizeof name, "%g bits a weight", bits);
        print(name, "read", {time});
    }
    for (const std::string& name : names) {
        std::vector<matrix> all;
        for (std::size_t i = 0; i < copies; ++i) all.push_back(make(name, rows, columns, numbers));
        const qk::format f = *qk::parse_format(name.substr(0, name.find('/')));
        constexpr const char* orders[] = {"floats", "chains", "integers"};
        std::vector<std::vector<double>> times(3);
        for (const std::size_t count : counts) {
            std::vector<std::function<void()>> contenders;
            for (const qk::product_sums sums : {qk::product_sums::floats, qk::product_sums::chains, qk::product_sums::integers}) {
                if (sums == qk::product_sums::integers && !qk::takes_integers(f)) continue;
                contenders.push_back([&, count, sums] {
                    for (const matrix& m : all) qk::dispatch::product(f, m.weights, {x, count}, y, {.sums = sums});
                });
            }
            const std::vector<double> least = race(contenders, std::max(repetitions / static_cast<int>((count + 7) / 8), 2));
            for (std::size_t i = 0; i < least.size(); ++i) times[i].push_back(least[i] / static_cast<double>(copies));
        }
        for (std::size_t i = 0; i < 3; ++i) {
            if (!times[i].empty()) print(name, orders[i], times[i]);
        }
    }
    if (!ggml.empty()) race_ggml(ggml, rows, columns, copies, repetitions, x, y);
    race_onednn(rows, columns, copies, repetitions, x, y);
}
