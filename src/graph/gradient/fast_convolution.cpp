// SPDX-License-Identifier: Apache-2.0
// Definitions of fast_convolution.hpp: oneDNN chooses its fastest layouts, and values are converted to these and back.
#include "graph/gradient/fast_convolution.hpp"

#include "graph/evaluate/execute/onednn.hpp"

#ifdef QK_HAVE_ONEDNN

#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace qk::graph::gradient {
namespace {

using dnnl::memory;
using tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;

/// Returns memory that the thread keeps: fresh pages would take longer than what is computed on them.
std::byte* lasting(std::size_t slot, std::size_t bytes) {
    struct buffer {
        std::shared_ptr<std::byte> data;
        std::size_t size = 0;
    };
    thread_local std::array<buffer, 4> buffers;
    buffer& b = buffers[slot];
    if (b.size < bytes) b.data = thread_memory::of_heap(bytes), b.size = bytes;
    return b.data.get();
}
enum slot : std::size_t { first_operand, second_operand, result, scratch };

/// A primitive of oneDNN and its arguments' layouts; run() takes a pointer for each argument.
class callable {
  public:
    callable(dnnl::primitive what, std::vector<std::pair<int, memory::desc>> arguments)
        : what_(std::move(what)), arguments_(std::move(arguments)) {}

    void run(std::initializer_list<const void*> handles) const {
        thread_local dnnl::stream order(execute::cpu_engine());
        std::unique_ptr<call> c = calls_.take([&] { return std::make_unique<call>(arguments_); });
        std::size_t i = 0;
        for (const void* handle : handles) c->memories[i++].set_data_handle(const_cast<void*>(handle));
        what_.execute(order, c->map);
        order.wait();
        calls_.give(std::move(c));
    }

  private:
    struct call {
        explicit call(const std::vector<std::pair<int, memory::desc>>& arguments) {
            for (const auto& [what, desc] : arguments) {
                memories.emplace_back(desc, execute::cpu_engine(), nullptr);
                map.emplace(what, memories.back());
            }
        }
        std::vector<memory> memories;  ///< shared with `map`
        std::unordered_map<int, memory> map;
    };

    dnnl::primitive what_;
    std::vector<std::pair<int, memory::desc>> arguments_;
    mutable execute::spare_calls<call> calls_;
};

/// Converts from one layout to another; does nothing if they are the same.
class relayout {
  public:
    relayout(const memory::desc& from, const memory::desc& to) : bytes_before_(from.get_size()), bytes_(to.get_size()) {
        if (from == to) return;
        const dnnl::reorder::primitive_desc made(execute::cpu_engine(), from, execute::cpu_engine(), to);
        call_ = std::make_unique<callable>(dnnl::reorder(made),
                                           std::vector<std::pair<int, memory::desc>>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    }
    bool is_needed() const { return call_ != nullptr; }
    std::size_t bytes_before() const { return bytes_before_; }  ///< padding included, which blocked layouts have
    std::size_t bytes() const { return bytes_; }
    void run(const void* from, void* to) const { call_->run({from, to}); }
    /// Returns the values in the new layout: `from` itself, or a copy in the thread's memory.
    const void* through(const void* from, slot where) const {
        if (!call_) return from;
        std::byte* to = lasting(where, bytes_);
        run(from, to);
        return to;
    }

  private:
    std::unique_ptr<callable> call_;
    std::size_t bytes_before_, bytes_;
};

/// A convolution in one direction: two operands and a result, each with the conversion from ONNX's layout or to it.
struct direction {
    std::unique_ptr<callable> call;
    std::unique_ptr<relayout> first, second, back;
    std::size_t scratch_bytes = 0;

    void run(const void* a, const void* b, const void* bias, float* to) const {
        void* out = back->is_needed() ? lasting(result, back->bytes_before()) : static_cast<void*>(to);
        std::byte* work = lasting(scratch, scratch_bytes);
        if (bias != nullptr) call->run({a, b, out, work, bias});
        else call->run({a, b, out, work});
        if (back->is_needed()) back->run(out, to);
    }
};

class dnn_convolutions final : public fast_convolution {
  public:
    explicit dnn_convolutions(const geometry& g) : g_(g) {
        const execute::one_thread alone;
        x_ = memory::desc(g.x, f32, tag::nchw), y_ = memory::desc(g.y, f32, tag::nchw), b_ = memory::desc({g.y[1]}, f32, tag::x);
        memory::dims weights = g.weights;
        if (g.group > 1) {
            weights[0] /= g.group;
            weights.insert(weights.begin(), g.group);
        }
        w_ = memory::desc(weights, f32, g.group > 1 ? tag::goihw : tag::oihw);
        attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        // With few channels oneDNN's own layouts are mostly padding: backward passes take three times as long as with ONNX's.
        const bool few = g.weights[1] < 8 && g.group == 1;
        make_forward();
        for (const bool plain : {few, !few})
            if (!by_input_.call) make_by_input(plain);
        make_by_weights();
    }

    bool has_forward() const override { return forward_.call != nullptr; }
    bool has_by_input() const override { return by_input_.call != nullptr; }
    bool has_by_weights() const override { return by_weights_.call != nullptr; }

    void forward(const float* x, const float* weights, const float* bias, float* y) const override {
        const execute::one_thread alone;
        const direction& d = bias != nullptr ? with_bias_ : forward_;
        d.run(d.first->through(x, first_operand), d.second->through(weights, second_operand), bias, y);
    }
    std::shared_ptr<const void> prepared(const float* weights) const override {
        const execute::one_thread alone;
        const relayout& way = *by_input_.second;
        if (!way.is_needed()) return {std::shared_ptr<void>(), weights};
        auto to = thread_memory::allocate(way.bytes());
        way.run(weights, to.get());
        return to;
    }
    void by_input(const float* g, const void* prepared_weights, float* dx) const override {
        const execute::one_thread alone;
        by_input_.run(by_input_.first->through(g, first_operand), prepared_weights, nullptr, dx);
    }
    void by_weights(const float* x, const float* g, float* dw) const override {
        const execute::one_thread alone;
        by_weights_.run(by_weights_.first->through(x, first_operand), by_weights_.second->through(g, second_operand), nullptr, dw);
    }
    void by_both(const float* x, const float* g, const void* prepared_weights, float* dx, float* dw) const override {
        if (!reads_gradients_alike_) {
            by_input(g, prepared_weights, dx);
            return by_weights(x, g, dw);
        }
        const execute::one_thread alone;
        const void* laid_out = by_input_.first->through(g, first_operand);
        by_input_.run(laid_out, prepared_weights, nullptr, dx);
        by_weights_.run(by_weights_.first->through(x, second_operand), laid_out, nullptr, dw);
    }

  private:
    memory::desc free_layout(const memory::desc& d, bool plain) const {
#if DNNL_VERSION_MAJOR >= 3
        const memory::dims shape = d.get_dims();
#else
        const memory::dims shape = d.dims();
#endif
        return plain ? d : memory::desc(shape, f32, tag::any);
    }
    memory::dims dilation() const {
        memory::dims d = g_.dilation;
        for (auto& v : d) v -= 1;
        return d;
    }

    dnnl::convolution_forward::primitive_desc forward_desc(bool plain, bool bias, bool training) const {
        const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
        const auto how = dnnl::algorithm::convolution_direct;
        const memory::desc x = free_layout(x_, plain), w = free_layout(w_, false), y = free_layout(y_, plain);
#if DNNL_VERSION_MAJOR >= 3
        return {execute::cpu_engine(), kind,       how,         x,   w, bias ? b_ : memory::desc(), y, g_.stride, dilation(),
                g_.pad_begin,          g_.pad_end, attributes_, true};
#else
        using desc = dnnl::convolution_forward::desc;
        return {bias ? desc(kind, how, x, w, b_, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end)
                     : desc(kind, how, x, w, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end),
                attributes_, execute::cpu_engine(), true};
#endif
    }
    dnnl::convolution_backward_data::primitive_desc by_input_desc(const dnnl::convolution_forward::primitive_desc& hint, bool plain) const {
        const auto how = dnnl::algorithm::convolution_direct;
        const memory::desc x = free_layout(x_, plain), w = free_layout(w_, false), y = free_layout(y_, plain);
#if DNNL_VERSION_MAJOR >= 3
        return {execute::cpu_engine(), how, x, w, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end, hint, attributes_, true};
#else
        return {dnnl::convolution_backward_data::desc(how, x, w, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end), attributes_,
                execute::cpu_engine(), hint, true};
#endif
    }
    dnnl::convolution_backward_weights::primitive_desc by_weights_desc(const dnnl::convolution_forward::primitive_desc& hint) const {
        const auto how = dnnl::algorithm::convolution_direct;
        const memory::desc x = free_layout(x_, false), w = free_layout(w_, false), y = free_layout(y_, false);
#if DNNL_VERSION_MAJOR >= 3
        return {execute::cpu_engine(), how, x, w, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end, hint, attributes_, true};
#else
        return {dnnl::convolution_backward_weights::desc(how, x, w, y, g_.stride, dilation(), g_.pad_begin, g_.pad_end), attributes_,
                execute::cpu_engine(), hint, true};
#endif
    }

    /// Is true if oneDNN has an implementation that is not its slow reference code.
    template <class Desc>
    static bool is_quick(const Desc& made) {
        return made && std::string_view(made.impl_info_str()).find("ref") == std::string_view::npos;
    }

    void make_forward() {
        for (const bool bias : {false, true}) {
            const auto made = forward_desc(false, bias, false);
            if (!is_quick(made)) return;
            direction& d = bias ? with_bias_ : forward_;
            std::vector<std::pair<int, memory::desc>> arguments{{DNNL_ARG_SRC, made.src_desc()},
                                                                {DNNL_ARG_WEIGHTS, made.weights_desc()},
                                                                {DNNL_ARG_DST, made.dst_desc()},
                                                                {DNNL_ARG_SCRATCHPAD, made.scratchpad_desc()}};
            if (bias) arguments.emplace_back(DNNL_ARG_BIAS, b_);
            d.first = std::make_unique<relayout>(x_, made.src_desc());
            d.second = std::make_unique<relayout>(w_, made.weights_desc());
            d.back = std::make_unique<relayout>(made.dst_desc(), y_);
            finish(d, dnnl::convolution_forward(made), std::move(arguments), made.scratchpad_desc());
        }
    }
    void make_by_input(bool plain) {
        const auto hint = forward_desc(plain, false, true);
        if (!hint) return;
        const auto made = by_input_desc(hint, plain);
        if (!is_quick(made)) return;
        gradient_by_input_ = made.diff_dst_desc();
        by_input_.first = std::make_unique<relayout>(y_, gradient_by_input_);
        by_input_.second = std::make_unique<relayout>(w_, made.weights_desc());
        by_input_.back = std::make_unique<relayout>(made.diff_src_desc(), x_);
        finish(by_input_, dnnl::convolution_backward_data(made),
               {{DNNL_ARG_DIFF_DST, made.diff_dst_desc()},
                {DNNL_ARG_WEIGHTS, made.weights_desc()},
                {DNNL_ARG_DIFF_SRC, made.diff_src_desc()},
                {DNNL_ARG_SCRATCHPAD, made.scratchpad_desc()}},
               made.scratchpad_desc());
    }
    void make_by_weights() {
        const auto hint = forward_desc(false, false, true);
        if (!hint) return;
        const auto made = by_weights_desc(hint);
        if (!is_quick(made)) return;
        by_weights_.first = std::make_unique<relayout>(x_, made.src_desc());
        by_weights_.second = std::make_unique<relayout>(y_, made.diff_dst_desc());
        by_weights_.back = std::make_unique<relayout>(made.diff_weights_desc(), w_);
        reads_gradients_alike_ = by_input_.call != nullptr && gradient_by_input_ == made.diff_dst_desc();
        finish(by_weights_, dnnl::convolution_backward_weights(made),
               {{DNNL_ARG_SRC, made.src_desc()},
                {DNNL_ARG_DIFF_DST, made.diff_dst_desc()},
                {DNNL_ARG_DIFF_WEIGHTS, made.diff_weights_desc()},
                {DNNL_ARG_SCRATCHPAD, made.scratchpad_desc()}},
               made.scratchpad_desc());
    }
    static void finish(direction& d, dnnl::primitive what, std::vector<std::pair<int, memory::desc>> arguments, const memory::desc& work) {
        d.scratch_bytes = std::max<std::size_t>(work.get_size(), 64);
        d.call = std::make_unique<callable>(std::move(what), std::move(arguments));
    }

    geometry g_;
    memory::desc x_, y_, w_, b_;
    dnnl::primitive_attr attributes_;
    direction forward_, with_bias_, by_input_, by_weights_;
    memory::desc gradient_by_input_;      ///< layout in which by_input_ reads g
    bool reads_gradients_alike_ = false;  ///< by_input_ and by_weights_ read g in one layout
};

std::shared_ptr<const fast_convolution> made_for(const fast_convolution::geometry& g) {
    try {
        return std::make_shared<dnn_convolutions>(g);
    } catch (const dnnl::error&) {  // a shape that oneDNN does not take
        return nullptr;
    }
}

}  // namespace

std::shared_ptr<const fast_convolution> fast_convolution::find(const ops::window& w, const dims& x, const dims& weights,
                                                               std::int64_t group) {
    const std::size_t rank = w.rank();
    if (rank != 1 && rank != 2) return nullptr;
    geometry g{x, weights, {x[0], weights[0]}, group, w.stride, w.dilation, w.pad_begin, w.pad_end};
    g.y.insert(g.y.end(), w.output.begin(), w.output.end());
    for (const dims* d : {&g.x, &g.weights, &g.y})
        if (element_count(*d) == 0) return nullptr;
    for (std::size_t i = 0; i < rank; ++i)
        if (w.pad_begin[i] < 0 || w.pad_end[i] < 0) return nullptr;
    if (rank == 1) {  // a sequence is an image of one row
        for (dims* d : {&g.x, &g.weights, &g.y}) d->insert(d->begin() + 2, 1);
        for (auto* v : {&g.stride, &g.dilation}) v->insert(v->begin(), 1);
        for (auto* v : {&g.pad_begin, &g.pad_end}) v->insert(v->begin(), 0);
    }
    static std::shared_mutex mutex;
    static std::map<geometry, std::shared_ptr<const fast_convolution>> known;
    {
        const std::shared_lock lock(mutex);
        if (const auto found = known.find(g); found != known.end()) return found->second;
    }
    const std::unique_lock lock(mutex);
    if (const auto found = known.find(g); found != known.end()) return found->second;
    if (known.size() >= 2048) known.clear();
    return known[g] = made_for(g);
}

}  // namespace qk::graph::gradient

#else

namespace qk::graph::gradient {

std::shared_ptr<const fast_convolution> fast_convolution::find(const ops::window&, const dims&, const dims&, std::int64_t) {
    return nullptr;
}

}  // namespace qk::graph::gradient

#endif
