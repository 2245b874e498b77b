// SPDX-License-Identifier: Apache-2.0
// Chooses the instruction set, once. What a call promises is checked in every build: sums of sizes cost nothing beside a kernel.
#define QK_CHECK_SIZES
#include "qk/dispatch.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "qk/backward.hpp"
#include "qk/preconditions.hpp"
#include "qk/product/preconditions.hpp"
#include "table.hpp"

namespace qk::dispatch {
namespace {

struct candidate {
    const char* name;
    kernel_table (*table)() noexcept;
    bool (*runs)() noexcept;
};

#ifdef QK_DISPATCH_AVX512
bool has_avx512() noexcept {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("bmi2") != 0;
}
#endif

// The instruction sets of this build, best first. (g++ and clang check the operating system's support for wide registers too.)
constexpr candidate candidates[] = {
#ifdef QK_DISPATCH_AVX512_VNNI
    {"avx512_vnni", table_of<isa::avx512, isa::avx512_vnni>,
     []() noexcept { return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512vbmi") != 0; }},
#endif
#ifdef QK_DISPATCH_AVX512
    {"avx512", table_of<isa::avx512>, has_avx512},
#endif
#ifdef QK_DISPATCH_AVX2
    // Every processor with AVX2 and FMA has F16C, which older compilers cannot test for.
    {"avx2", table_of<isa::avx2>,
     []() noexcept {
         return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("bmi2") != 0;
     }},
#endif
#ifdef QK_DISPATCH_SSE2
    {"sse2", table_of<isa::sse2>, []() noexcept { return true; }},
#endif
#ifdef QK_DISPATCH_NEON
    {"neon", table_of<isa::neon>, []() noexcept { return true; }},
#endif
};

/// The names of the instruction sets of this build, or of those that run here.
std::array<char, 64> names_of(bool running) noexcept {
    std::array<char, 64> names{};
    for (const candidate& c : candidates) {
        if (running && !c.runs()) continue;
        if (names[0] != '\0') std::strncat(names.data(), ", ", names.size() - std::strlen(names.data()) - 1);
        std::strncat(names.data(), c.name, names.size() - std::strlen(names.data()) - 1);
    }
    return names;
}

struct choice {
    const candidate* chosen = nullptr;  ///< null: none of this build's runs here
    char problem[256] = {};

    choice() noexcept {
        const char* wanted = std::getenv("QK_ARCH");
        if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
        const candidate* named = nullptr;
        for (const candidate& c : candidates) {
            if (wanted != nullptr && std::strcmp(c.name, wanted) == 0) named = &c;
            if (chosen == nullptr && c.runs()) chosen = &c;
        }
        if (chosen == nullptr) {
            std::snprintf(problem, sizeof problem,
                          "this qk was built for %s alone, which this processor lacks: build it here, or install a package, "
                          "which has the kernels of every instruction set",
                          names_of(false).data());
            return;
        }
        if (wanted == nullptr) return;
        if (named != nullptr && named->runs()) {
            chosen = named;
            return;
        }
        std::snprintf(problem, sizeof problem, "QK_ARCH=%.32s: %s; set it to one of %s, or leave it unset for the best", wanted,
                      named != nullptr ? "this processor lacks that instruction set" : "this build has no such instruction set",
                      names_of(true).data());
    }
};

const choice& choose() noexcept {
    static const choice c;
    return c;
}

const kernel_table& kernels() noexcept {
    static const kernel_table table = [] {
        if (choose().chosen == nullptr) {
            std::fprintf(stderr, "qk: %s\n", choose().problem);
            std::abort();
        }
        return choose().chosen->table();
    }();
    return table;
}

/// Checks the preconditions of a call, since the kernels behind the table check nothing.
template <class Parameters>
void expect_call(const format& f, std::span<const float> x, std::span<float> y, const Parameters& p, const semantics& how) noexcept {
    detail::expect_arrays(x, y);
    detail::expect_words(how, x.size());
    detail::expect_format(f);
    detail::expect_rounds(f);
    if constexpr (std::is_same_v<Parameters, affine>) detail::expect_scale(f, p);
    else if constexpr (std::is_same_v<Parameters, along_axis>) detail::expect_axis(p, x.size());
    else detail::expect_scales(f, p, x.size());
}

/// Returns the kernel of an elementwise format for one piece.
auto elements_kernel(const format& f, bool one_scale) noexcept {
    return [&f, one_scale](const float* from, float* to, const detail::scaled_piece& s, const semantics& own) {
        const arrays a{from, to, s.n};
        const fake_quantizers& run = kernels().fake_quantize;
        if (one_scale) return run.scaled(f, a, {s.scale[0], s.zero[0]}, own);
        run.by_block(f, a, {std::span(s.scale, s.entries), std::span(s.zero, s.entries), {1, s.n, 1}, s.group}, own);
    };
}

scale_gradient backward(const format& f, const values_in& x, const values_in& grad_out, const values_out& grad_in,
                        const codec_parameters& p, const scale_gradients& by, const semantics& how) noexcept {
    detail::expect_backward(f, x, grad_out, grad_in, p, by);
    if (!is_block_format(f))
        return detail::backward_of_elements<native>(f, x, grad_out, grad_in, p, by, how, elements_kernel(f, p.one_scale()));
    detail::backward_of_blocks<native>(x, grad_out, grad_in);
    return {};
}

}  // namespace

const char* architecture() noexcept { return choose().chosen != nullptr ? choose().chosen->name : "none"; }
const char* problem() noexcept { return choose().problem[0] != '\0' ? choose().problem : nullptr; }

void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how) noexcept {
    expect_call(f, x, y, along_axis{}, how);
    kernels().fake_quantize.whole(f, {x.data(), y.data(), x.size()}, how);
}
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale, const semantics& how) noexcept {
    expect_call(f, x, y, scale, how);
    kernels().fake_quantize.scaled(f, {x.data(), y.data(), x.size()}, scale, how);
}
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how) noexcept {
    expect_call(f, x, y, axis, how);
    kernels().fake_quantize.along(f, {x.data(), y.data(), x.size()}, axis, how);
}
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how) noexcept {
    expect_call(f, x, y, axis, how);
    expect_call(f, x, y, scale, how);
    kernels().fake_quantize.along_scaled(f, {x.data(), y.data(), x.size()}, axis, scale, how);
}
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                   const semantics& how) noexcept {
    expect_call(f, x, y, scales, how);
    kernels().fake_quantize.by_channel(f, {x.data(), y.data(), x.size()}, scales, how);
}
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how) noexcept {
    expect_call(f, x, y, scales, how);
    kernels().fake_quantize.by_block(f, {x.data(), y.data(), x.size()}, scales, how);
}
void fake_quantize_values(const format& f, const values_in& x, const values_out& y, const codec_parameters& p,
                          const semantics& how) noexcept {
    detail::expect_values(f, x, y, p);
    detail::expect_words(how, x.size());
    if (!is_block_format(f)) return detail::pieces_of_elements<native>(x, y, p, how, elements_kernel(f, p.one_scale()));
    affine t = p.has_one ? p.one : detail::no_scale(f);
    if (has_floating_scales(f) && t.scale == 0)
        t.scale = has_tensor_scale(f) ? qk::kernels::tensor_scale_of(f, detail::largest_finite<native>(x), how) : 1.0f;
    detail::pieces_of_blocks<native>(
        static_cast<std::size_t>(block_size(f)), x, y, resolved(p.axis, x.size()), how,
        [&](const float* from, float* to, along_axis axis, const semantics& own) {
            kernels().fake_quantize.along_scaled(f, {from, to, axis.outer * axis.length * axis.inner}, axis, t, own);
        });
}
scale_gradient fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, affine scale,
                                      const semantics& how) noexcept {
    return backward(f, x, grad_out, grad_in, scale, {}, how);
}
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_channel& scales,
                            scale_gradients by, const semantics& how) noexcept {
    backward(f, x, grad_out, grad_in, scales, by, how);
}
void fake_quantize_backward(const format& f, values_in x, values_in grad_out, values_out grad_in, const per_block& scales,
                            scale_gradients by, const semantics& how) noexcept {
    backward(f, x, grad_out, grad_in, scales, by, how);
}

encode_status encode(const format& f, values_in x, std::span<std::byte> packed, const codec_parameters& p, const semantics& how) noexcept {
    if (!encodable(f, how)) return encode_status::no_code;
    const packed_layout l = layout_of(f, resolved(p.axis, x.size()));
    if (packed.size() < l.bytes()) return encode_status::too_small;
    detail::expect_format(f);
    detail::expect_numbers(f, x, packed, p);
    detail::expect_words(how, x.size());
    kernels().encode(f, x, planes_of(l, packed), p, how);
    return encode_status::done;
}
encode_status encode(const format& f, values_in x, planes packed, const codec_parameters& p, const semantics& how) noexcept {
    if (!encodable(f, how)) return encode_status::no_code;
    const packed_layout l = layout_of(f, resolved(p.axis, x.size()));
    if (!holds(packed, l)) return encode_status::too_small;
    detail::expect_format(f);
    detail::expect_numbers(f, x, packed.elements, p);
    detail::expect_words(how, x.size());
    kernels().encode(f, x, cut_to(l, packed), p, how);
    return encode_status::done;
}
void decode(const format& f, const_planes packed, values_out y, const codec_parameters& p) noexcept {
    detail::expect_format(f);
    const packed_layout l = layout_of(f, resolved(p.axis, y.size()));
    detail::expect_planes(l, packed);
    detail::expect_numbers(f, y, packed.elements, p);
    kernels().decode(f, cut_to(l, packed), y, p);
}
void decode(const format& f, std::span<const std::byte> packed, values_out y, const codec_parameters& p) noexcept {
    const packed_layout l = layout_of(f, resolved(p.axis, y.size()));
    detail::expect_format(f);
    detail::expect_packed(l, packed);
    detail::expect_numbers(f, y, packed, p);
    kernels().decode(f, planes_of(l, packed), y, p);
}
void product(const format& f, const packed_weights& w, const product_input& x, const product_output& y, const product_options& o) noexcept {
    const detail::product_call c = detail::call_of(detail::all_rows(w), x, y, o);
    detail::expect_product(f, c);
    kernels().multiply.product(f, c);
}
void grouped_product(const format& f, const packed_weights& w, const product_experts& e, const product_input& x, const product_output& y,
                     const product_options& o) noexcept {
    const detail::product_call c = detail::call_of(w, e, x, y, o);
    detail::expect_product(f, c);
    kernels().multiply.product(f, c);
}
void dot_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
              const product_options& o) noexcept {
    const detail::product_call c = detail::call_of(rows, x, y, o);
    detail::expect_product(f, c);
    kernels().multiply.product(f, c);
}
void weighted_rows(const format& f, const packed_rows& rows, const product_input& x, const product_output& y,
                   const weighted_options& o) noexcept {
    const detail::weighted_call c = detail::call_of(rows, x, y, o);
    detail::expect_weighted(f, c);
    kernels().multiply.weighted(f, c);
}
void round_vectors(const product_input& x, std::size_t columns, std::span<std::int8_t> q, std::span<float> scale,
                   const input_rounding& round) noexcept {
    const detail::rounding_call c{x, columns, q, scale, round};
    detail::expect_rounding(c);
    kernels().multiply.round(c);
}
input_rounding rounded_to(const format& f) noexcept {
    return {[](const void* of, const float* x, float* y, std::size_t n) noexcept {
                fake_quantize(*static_cast<const format*>(of), std::span<const float>(x, n), std::span<float>(y, n));
            },
            &f};
}

}  // namespace qk::dispatch
