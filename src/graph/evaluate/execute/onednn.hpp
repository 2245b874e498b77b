// SPDX-License-Identifier: Apache-2.0
// A thin adapter to oneDNN 2.6 and 3.x: one convolution (channels last) or one matrix product for one shape, on one thread.
#pragma once

#ifdef QK_HAVE_ONEDNN

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/evaluate/execute/check_convolution.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::execute {

/// Restricts oneDNN's OpenMP to one thread while it lives: samples run side by side, and a sum's order must not depend on threads. The
/// OpenMP runtime that libdnnl loaded is looked up by name, so that qk links none itself.
class one_thread {
  public:
    one_thread() : before_(get() != nullptr ? get()() : 0) {
        if (set() != nullptr) set()(1);
    }
    ~one_thread() {
        if (set() != nullptr && before_ > 0) set()(before_);
    }
    one_thread(const one_thread&) = delete;
    one_thread& operator=(const one_thread&) = delete;

  private:
    using getter = int (*)();
    using setter = void (*)(int);
    static getter get() {
        static const auto f = reinterpret_cast<getter>(::dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
        return f;
    }
    static setter set() {
        static const auto f = reinterpret_cast<setter>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
        return f;
    }
    int before_;
};

inline const dnnl::engine& cpu_engine() {
    static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
    return e;
}

/// A pool of argument lists for calls of one primitive: making a list takes a third of a small call's time, so lists are reused. It holds
/// as many as threads ran at once.
template <class Call>
class spare_calls {
  public:
    /// Returns a free one, or else what make() returns.
    template <class Make>
    std::unique_ptr<Call> take(const Make& make) {
        {
            const std::scoped_lock lock(mutex_);
            if (!free_.empty()) {
                std::unique_ptr<Call> c = std::move(free_.back());
                free_.pop_back();
                return c;
            }
        }
        return make();
    }
    void give(std::unique_ptr<Call> c) {
        const std::scoped_lock lock(mutex_);
        free_.push_back(std::move(c));
    }

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Call>> free_;
};

/// y = relu(scale * (conv(x, w) + bias / scale) + y), where `shape` says which parts apply; x and y are channels last, y and all addends
/// are float32.
class dnn_convolution {
  public:
    using operand = dnnl::memory::data_type;  ///< type of x: f32, bf16, u8 or s8; weights have the same type, or s8 beside u8
    struct shape {
        dnnl::memory::dims x, weights, y, stride, dilation, pad_begin, pad_end;  ///< weights have a leading group axis if `grouped`
        operand type = operand::f32;
        std::vector<float> scale;  ///< by channel of y, for whole numbers (bytes or whole floats); else empty
        bool grouped = false, bias = false, add = false, relu = false;
        int zero = 0;          ///< the byte of x that stands for zero, in the padding, too
        bool columns = false;  ///< weights are passed as [in, out] of a 1 x 1 kernel, not [out, in]
    };

    /// Weights in oneDNN's layouts. Convolutions of several shapes that need the same layout share them.
    using packed_weights = std::vector<std::pair<dnnl::memory::desc, dnnl::memory>>;

    /// Returns nullopt if oneDNN has only slow code for this shape and these operands, code whose sums saturate, or code that fails the
    /// check of computes_right().
    static std::optional<dnn_convolution> make(const shape& s, const std::function<tensor()>& weights, const float* bias,
                                               packed_weights& packed) {
        using namespace dnnl;
        using tag = memory::format_tag;
        constexpr auto f32 = memory::data_type::f32;
        const bool whole = !s.scale.empty(), bytes = whole && s.type != f32;
        // In floats a sum that begins with the bias would not be exact, so the bias is added after the sum.
        const bool bias_behind = s.bias && whole && !bytes, own_bias = s.bias && !bias_behind;
        const operand weight_type = bytes ? operand::s8 : s.type;
        const memory::desc x(s.x, s.type, tag::nhwc), y(s.y, f32, tag::nhwc), w(s.weights, weight_type, tag::any), b({s.y[1]}, f32, tag::x);
        primitive_attr attributes;
        attributes.set_scratchpad_mode(scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
        if (s.zero != 0) attributes.set_zero_points_mask(DNNL_ARG_SRC, 0);
#else
        if (s.zero != 0) attributes.set_zero_points(DNNL_ARG_SRC, 0, {DNNL_RUNTIME_S32_VAL});
#endif
        post_ops after;
        // Bias and scale are arguments of each call, so that layers of one shape share the code that oneDNN makes.
        if (bias_behind) after.append_binary(algorithm::binary_add, memory::desc({1, s.y[1], 1, 1}, f32, tag::nhwc));
        if (whole) after.append_binary(algorithm::binary_mul, memory::desc({1, s.y[1], 1, 1}, f32, tag::nhwc));
        if (s.add) after.append_sum(1.0f);
#if DNNL_VERSION_MAJOR >= 3
        if (s.relu) after.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
        attributes.set_post_ops(after);
        const convolution_forward::primitive_desc made(cpu_engine(), prop_kind::forward_inference, algorithm::convolution_direct, x, w,
                                                       own_bias ? b : memory::desc(), y, s.stride, s.dilation, s.pad_begin, s.pad_end,
                                                       attributes, true);
#else
        if (s.relu) after.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
        attributes.set_post_ops(after);
        const auto description = own_bias ? convolution_forward::desc(prop_kind::forward_inference, algorithm::convolution_direct, x, w, b,
                                                                      y, s.stride, s.dilation, s.pad_begin, s.pad_end)
                                          : convolution_forward::desc(prop_kind::forward_inference, algorithm::convolution_direct, x, w, y,
                                                                      s.stride, s.dilation, s.pad_begin, s.pad_end);
        const convolution_forward::primitive_desc made(description, attributes, cpu_engine(), true);
#endif
        if (!made || !is_quick(made.impl_info_str(), s.type, whole)) return std::nullopt;
        if (s.zero != 0 && std::string_view(made.impl_info_str()).find("amx") != std::string_view::npos) return std::nullopt;  // untried
        dnn_convolution c;
        c.primitive_ = convolution_forward(made);
        c.x_ = made.src_desc(), c.y_ = made.dst_desc(), c.w_ = made.weights_desc(), c.b_ = b, c.scratch_ = made.scratchpad_desc();
        c.has_bias_ = own_bias, c.bias_behind_ = bias_behind;
        if (!c.is_right(s, made.impl_info_str(), weight_type)) return std::nullopt;
        const auto known = std::find_if(packed.begin(), packed.end(), [&](const auto& p) { return p.first == c.w_; });
        if (known == packed.end()) {
            const tensor values = weights();
            memory given(memory::desc(s.weights, weight_type,
                                      s.columns   ? tag::iohw
                                      : s.grouped ? tag::goihw
                                                  : tag::oihw),
                         cpu_engine(), const_cast<std::byte*>(values.bytes()));
            c.weights_ = memory(c.w_, cpu_engine());
            dnnl::stream order(cpu_engine());
            reorder(given, c.weights_).execute(order, given, c.weights_);
            order.wait();
            packed.emplace_back(c.w_, c.weights_);
        } else {
            c.weights_ = known->second;
        }
        if (s.bias) {
            c.bias_ = memory(bias_behind ? memory::desc({1, s.y[1], 1, 1}, f32, tag::nhwc) : c.b_, cpu_engine());
            auto* to = static_cast<float*>(c.bias_.get_data_handle());
            std::copy_n(bias, s.y[1], to);
            for (std::size_t i = 0; i < s.scale.size(); ++i) to[i] /= s.scale[i];  // the bias is added before the scale
        }
        if (s.zero != 0) c.zero_ = zero_point(s.zero);
        if (whole) {
            c.scale_ = memory({{1, s.y[1], 1, 1}, f32, tag::nhwc}, cpu_engine());
            std::copy_n(s.scale.data(), s.scale.size(), static_cast<float*>(c.scale_.get_data_handle()));
        }
        return c;
    }

    void run(const void* x, float* y, allocator& memory) const {
        thread_local dnnl::stream order(cpu_engine());
        const auto scratch = memory.allocate(scratch_.get_size());
        std::unique_ptr<call> c = calls_->take([&] { return std::make_unique<call>(*this); });
        c->x.set_data_handle(const_cast<void*>(x));
        c->y.set_data_handle(y);
        c->scratch.set_data_handle(scratch.get());
        primitive_.execute(order, c->arguments);
        calls_->give(std::move(c));
    }

  private:
    /// Returns whether an implementation is fast and exact. Sums of bytes are exact with VNNI or AMX; without them oneDNN adds pairs in 16
    /// bits, which saturate.
    static bool is_quick(std::string_view implementation, operand type, bool whole) {
        const auto has = [&](const char* part) { return implementation.find(part) != std::string_view::npos; };
        if (has("ref") || has("sse41")) return false;                    // oneDNN 2.6 crashes for SSE4.1 with some shapes
        if (whole && type == operand::f32 && has("gemm")) return false;  // gemm scales in another order
        if (type == operand::bf16) return has("amx");                    // others are slower than floats
        return type == operand::f32 || has("amx") || has("vnni");
    }

    /// Returns whether the primitive passes the check; each shape, kind of operand and implementation is checked once in a process.
    bool is_right(const shape& s, const std::string& implementation, operand weight_type) const {
        static std::mutex guard;
        static std::map<std::string, bool> checked;
        std::string key =
            implementation + (s.bias ? " bias" : "") + (s.add ? " add" : "") + (s.relu ? " relu" : "") + (s.scale.empty() ? "" : " scaled");
        for (const dnnl::memory::dims* d : {&s.x, &s.weights, &s.y, &s.stride, &s.dilation, &s.pad_begin, &s.pad_end})
            for (const auto extent : *d) key += " " + std::to_string(extent);
        key += " " + std::to_string(static_cast<int>(s.type)) + " " + std::to_string(s.zero);
        {
            const std::scoped_lock lock(guard);
            if (const auto at = checked.find(key); at != checked.end()) return at->second;
        }
        const bool right = computes_right(case_of(s), [&](convolution_numbers& d) { run_numbers(s, weight_type, d); });
        const std::scoped_lock lock(guard);
        return checked[key] = right;
    }

    static convolution_case case_of(const shape& s) {
        const std::size_t first = s.grouped ? 1 : 0;  // of the weights' axes behind the groups
        convolution_case c{};
        c.n = s.x[0], c.groups = s.grouped ? s.weights[0] : 1, c.out = s.weights[first], c.in = s.weights[first + 1];
        for (std::size_t i = 0; i < 2; ++i)
            c.x[i] = s.x[2 + i], c.y[i] = s.y[2 + i], c.kernel[i] = s.weights[first + 2 + i], c.stride[i] = s.stride[i],
            c.dilation[i] = s.dilation[i] + 1, c.pad[i] = s.pad_begin[i];
        const bool bytes = s.type == operand::u8 || s.type == operand::s8;
        c.lowest_x = s.type == operand::u8 ? 0 : bytes ? -128 : -8, c.highest_x = s.type == operand::u8 ? 255 : bytes ? 127 : 8;
        c.lowest_w = bytes ? -128 : -8, c.highest_w = bytes ? 127 : 8;
        c.zero = s.zero, c.bias = s.bias, c.scaled = !s.scale.empty(), c.add = s.add, c.relu = s.relu;
        return c;
    }

    /// Runs the primitive on these numbers in place of the layer's own operands.
    void run_numbers(const shape& s, operand weight_type, convolution_numbers& d) const {
        using dnnl::memory;
        using tag = memory::format_tag;
        const auto stored = [](const std::vector<std::int32_t>& from, const memory::desc& as, operand type) {
            memory to(as, cpu_engine());
            const auto fill = [&](auto convert) {
                using element = decltype(convert(0));
                std::transform(from.begin(), from.end(), static_cast<element*>(to.get_data_handle()), convert);
            };
            if (type == operand::u8) fill([](std::int32_t v) { return static_cast<std::uint8_t>(v); });
            else if (type == operand::s8) fill([](std::int32_t v) { return static_cast<std::int8_t>(v); });
            else if (type == operand::f32) fill([](std::int32_t v) { return static_cast<float>(v); });
            else fill([](std::int32_t v) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(v)) >> 16); });
            return to;
        };
        const auto floats = [](const memory::desc& as, std::vector<float>& values) { return memory(as, cpu_engine(), values.data()); };
        const memory::desc by_channel({1, s.y[1], 1, 1}, operand::f32, tag::nhwc);
        dnn_convolution own = *this;
        own.calls_ = nullptr;
        memory given = stored(d.w, memory::desc(s.weights, weight_type, s.grouped ? tag::goihw : tag::oihw), weight_type),
               x = stored(d.x, x_, s.type);
        own.weights_ = memory(w_, cpu_engine());
        dnnl::stream order(cpu_engine());
        dnnl::reorder(given, own.weights_).execute(order, given, own.weights_);
        if (s.bias) own.bias_ = floats(bias_behind_ ? by_channel : b_, d.bias);
        if (!s.scale.empty()) own.scale_ = floats(by_channel, d.scale);
        if (s.zero != 0) own.zero_ = zero_point(s.zero);
        call c(own);
        memory scratch(scratch_, cpu_engine());
        c.x.set_data_handle(x.get_data_handle());
        c.y.set_data_handle(d.y.data());
        c.scratch.set_data_handle(scratch.get_data_handle());
        primitive_.execute(order, c.arguments);
        order.wait();
    }

    static dnnl::memory zero_point(int zero) {
        dnnl::memory held({{1}, operand::s32, dnnl::memory::format_tag::x}, cpu_engine());
        *static_cast<std::int32_t*>(held.get_data_handle()) = zero;
        return held;
    }

    struct call {  ///< arguments of one call
        explicit call(const dnn_convolution& d)
            : x(d.x_, cpu_engine(), nullptr),
              y(d.y_, cpu_engine(), nullptr),
              scratch(d.scratch_, cpu_engine(), nullptr),
              arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, d.weights_}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, scratch}} {
            if (d.has_bias_) arguments.emplace(DNNL_ARG_BIAS, d.bias_);
            if (d.zero_) arguments.emplace(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, d.zero_);
            int after = 0;
            if (d.bias_behind_) arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(after++) | DNNL_ARG_SRC_1, d.bias_);
            if (d.scale_) arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(after) | DNNL_ARG_SRC_1, d.scale_);
        }
        dnnl::memory x, y, scratch;  ///< shared with `arguments`
        std::unordered_map<int, dnnl::memory> arguments;
    };

    dnnl::primitive primitive_;
    dnnl::memory::desc x_, y_, w_, b_, scratch_;
    dnnl::memory weights_, bias_, scale_, zero_;
    bool has_bias_ = false, bias_behind_ = false;
    std::shared_ptr<spare_calls<call>> calls_ = std::make_shared<spare_calls<call>>();
};

/// y = x * w + bias for float32 matrices of one shape.
class dnn_matmul {
  public:
    using desc = dnnl::memory::desc;
    static desc rows_of(std::int64_t m, std::int64_t n) { return desc({m, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab); }

    /// x is [m,k] and y [m,n]; `w` is [k,n] in a given layout, or in any. Returns null if oneDNN has no fast code that takes this layout.
    static std::unique_ptr<dnn_matmul> make(std::int64_t m, std::int64_t k, std::int64_t n, const desc& w, bool biased) {
        const desc x = rows_of(m, k), y = rows_of(m, n), b = rows_of(1, n);
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        try {
#if DNNL_VERSION_MAJOR >= 3
            const dnnl::matmul::primitive_desc made = biased ? dnnl::matmul::primitive_desc(cpu_engine(), x, w, b, y, attributes, true)
                                                             : dnnl::matmul::primitive_desc(cpu_engine(), x, w, y, attributes, true);
#else
            const dnnl::matmul::desc wanted = biased ? dnnl::matmul::desc(x, w, b, y) : dnnl::matmul::desc(x, w, y);
            const dnnl::matmul::primitive_desc made(wanted, attributes, cpu_engine(), true);
#endif
            // Implementations other than brgemm pack the weights at every call.
            if (!made || std::string_view(made.impl_info_str()).find("brg") == std::string_view::npos) return nullptr;
            auto c = std::unique_ptr<dnn_matmul>(new dnn_matmul());
            c->primitive_ = dnnl::matmul(made);
            c->x_ = made.src_desc(), c->w_ = made.weights_desc(), c->y_ = made.dst_desc(), c->scratch_ = made.scratchpad_desc();
            if (biased) c->bias_ = b;
            return c;
        } catch (const dnnl::error&) {  // a shape that it does not take
            return nullptr;
        }
    }

    const desc& weights() const { return w_; }

    /// `w` has the layout weights(); `bias` is null if there is none.
    void run(const float* x, const void* w, const float* bias, float* y, allocator& memory) const {
        thread_local dnnl::stream order(cpu_engine());
        const auto scratch = memory.allocate(scratch_.get_size());
        std::unique_ptr<call> c = calls_.take([&] { return std::make_unique<call>(*this); });
        c->x.set_data_handle(const_cast<float*>(x));
        c->w.set_data_handle(const_cast<void*>(w));
        c->y.set_data_handle(y);
        c->scratch.set_data_handle(scratch.get());
        if (bias != nullptr) c->bias.set_data_handle(const_cast<float*>(bias));
        primitive_.execute(order, c->arguments);
        calls_.give(std::move(c));
    }

  private:
    dnn_matmul() = default;

    struct call {  ///< arguments of one call
        explicit call(const dnn_matmul& m) {
            const auto argument = [&](int name, dnnl::memory& held, const desc& d) {
                held = dnnl::memory(d, cpu_engine(), nullptr);
                arguments.emplace(name, held);
            };
            argument(DNNL_ARG_SRC, x, m.x_), argument(DNNL_ARG_WEIGHTS, w, m.w_), argument(DNNL_ARG_DST, y, m.y_);
            argument(DNNL_ARG_SCRATCHPAD, scratch, m.scratch_);
            if (m.bias_.get_size() != 0) argument(DNNL_ARG_BIAS, bias, m.bias_);
        }
        dnnl::memory x, w, bias, y, scratch;  ///< shared with `arguments`
        std::unordered_map<int, dnnl::memory> arguments;
    };

    dnnl::matmul primitive_;
    desc x_, w_, bias_, y_, scratch_;
    mutable spare_calls<call> calls_;
};

}  // namespace qk::graph::execute

#else

namespace qk::graph::execute {
class one_thread {};
}  // namespace qk::graph::execute

#endif
