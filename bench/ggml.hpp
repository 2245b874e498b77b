// SPDX-License-Identifier: Apache-2.0
// ggml's kernels of one thread, from a folder with its libraries: rows by its vec_dot, and its repacked matrices.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

/// Multiplies in ggml's ways: vectors are rounded to its blocks in each call, as its own products do.
class ggml_kernels {
  public:
    /// A matrix, and what multiplies `count` vectors by it: y[vector * rows + row].
    struct product {
        std::string name;
        std::size_t rows, bytes;  ///< of a matrix
        std::function<void(std::size_t matrix, const float* x, std::size_t count, float* y)> run;
    };

    explicit ggml_kernels(const std::string& folder) {
        for (const char* end : {".so.0", ".so"}) {
            base_ = dlopen((folder + "/libggml-base" + end).c_str(), RTLD_NOW | RTLD_GLOBAL);
            cpu_ = dlopen((folder + "/libggml-cpu" + end).c_str(), RTLD_NOW | RTLD_GLOBAL);
            if (base_ != nullptr && cpu_ != nullptr) break;
        }
        if (base_ == nullptr || cpu_ == nullptr) {
            std::fprintf(stderr, "%s: no libggml-base and libggml-cpu there: %s\n", folder.c_str(), dlerror());
            std::exit(1);
        }
        if (const auto prepare = symbol<void (*)()>(cpu_, "ggml_cpu_init")) prepare();
    }

    /// Returns all products that this ggml has, of `copies` matrices each. rows_of says how many rows of so many bytes a matrix has.
    std::vector<product> products(const std::function<std::size_t(std::size_t)>& rows_of, std::size_t columns, std::size_t copies) const {
        std::vector<product> all;
        for (const block_type& t : types) {
            if (columns % t.values != 0) continue;
            const std::size_t rows = rows_of(columns / t.values * t.bytes);
            add_rows(t, rows, columns, copies, all);
            if (rows % 8 == 0) add_repacked(t, rows, columns, copies, all);
        }
        return all;
    }

  private:
    struct block_type {
        const char* name;
        std::size_t bytes, values;
    };
    static constexpr block_type types[] = {{"mxfp4", 17, 32},  {"nvfp4", 36, 64},    {"q4_0", 18, 32},
                                           {"q8_0", 34, 32},   {"iq4_nl", 18, 32},   {"q4_K", 144, 256},
                                           {"q6_K", 210, 256}, {"iq4_xs", 136, 256}, {"bf16", 2, 1}};
    using quantize = void (*)(const float*, void*, std::int64_t);
    using dot = void (*)(int, float*, std::size_t, const void*, std::size_t, const void*, std::size_t, int);
    using several = void (*)(int, float*, std::size_t, const void*, const void*, int, int);
    using matrices = std::shared_ptr<std::vector<std::vector<std::uint8_t>>>;

    template <class Function>
    static Function symbol(void* library, const std::string& name) {
        return reinterpret_cast<Function>(dlsym(library, name.c_str()));
    }
    static const char* of_vector(const block_type& t) { return t.values == 256 ? "q8_K" : t.values == 1 ? "bf16" : "q8_0"; }
    static std::size_t bytes_of_vector(const block_type& t, std::size_t columns) {
        return t.values == 256 ? columns / 256 * 292 : t.values == 1 ? 2 * columns : columns / 32 * 34;
    }
    /// Blocks of bytes below 32, whose scales are small numbers: what they are changes no time.
    static matrices random_blocks(std::size_t bytes, std::size_t copies) {
        std::mt19937 random(1);
        std::vector<std::uint8_t> one(bytes);
        for (std::uint8_t& b : one) b = static_cast<std::uint8_t>(random() >> 24 & 0x1f);
        return std::make_shared<std::vector<std::vector<std::uint8_t>>>(copies, one);
    }

    void add_rows(const block_type& t, std::size_t rows, std::size_t columns, std::size_t copies, std::vector<product>& to) const {
        const auto multiply =
            symbol<dot>(cpu_, std::string("ggml_vec_dot_") + t.name + (t.values == 1 ? "" : std::string("_") + of_vector(t)));
        auto round = symbol<quantize>(cpu_, std::string("quantize_row_") + of_vector(t));
        if (t.values == 1) round = symbol<quantize>(base_, "ggml_fp32_to_bf16_row");
        if (multiply == nullptr || round == nullptr) return;
        const std::size_t row = columns / t.values * t.bytes, vector = bytes_of_vector(t, columns);
        const matrices w = random_blocks(rows * row, copies);
        to.push_back({std::string("ggml ") + t.name, rows, rows * row, [=](std::size_t m, const float* x, std::size_t count, float* y) {
                          std::vector<std::uint8_t> rounded(count * vector);
                          for (std::size_t v = 0; v < count; ++v)
                              round(x + v * columns, rounded.data() + v * vector, static_cast<std::int64_t>(columns));
                          for (std::size_t r = 0; r < rows; ++r) {
                              for (std::size_t v = 0; v < count; ++v)
                                  multiply(static_cast<int>(columns), y + v * rows + r, 0, (*w)[m].data() + r * row, 0,
                                           rounded.data() + v * vector, 0, 1);
                          }
                      }});
    }
    void add_repacked(const block_type& t, std::size_t rows, std::size_t columns, std::size_t copies, std::vector<product>& to) const {
        const std::string form = std::string(t.name) + "_8x8_" + of_vector(t);
        const auto one = symbol<several>(cpu_, "ggml_gemv_" + form), many = symbol<several>(cpu_, "ggml_gemm_" + form);
        const auto round = symbol<quantize>(cpu_, std::string("quantize_row_") + of_vector(t));
        const auto round_four = symbol<quantize>(cpu_, std::string("ggml_quantize_mat_") + of_vector(t) + "_4x8");
        if (one == nullptr || many == nullptr || round == nullptr || round_four == nullptr) return;
        const std::size_t bytes = rows * (columns / t.values * t.bytes), vector = bytes_of_vector(t, columns);
        const matrices w = random_blocks(bytes, copies);
        const auto k = static_cast<int>(columns), n = static_cast<int>(rows);
        to.push_back(
            {std::string("ggml ") + t.name + ", repacked", rows, bytes, [=](std::size_t m, const float* x, std::size_t count, float* y) {
                 std::vector<std::uint8_t> rounded(count * vector);
                 const std::size_t fours = count / 4 * 4;
                 for (std::size_t v = 0; v < fours; v += 4) round_four(x + v * columns, rounded.data() + v * vector, k);
                 for (std::size_t v = fours; v < count; ++v) round(x + v * columns, rounded.data() + v * vector, k);
                 if (fours != 0) many(k, y, rows, (*w)[m].data(), rounded.data(), static_cast<int>(fours), n);
                 for (std::size_t v = fours; v < count; ++v) one(k, y + v * rows, rows, (*w)[m].data(), rounded.data() + v * vector, 1, n);
             }});
    }

    void* base_ = nullptr;
    void* cpu_ = nullptr;
};
