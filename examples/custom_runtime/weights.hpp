// SPDX-License-Identifier: Apache-2.0
// What a decoder keeps packed: the weights of a checkpoint, where they lie in the file as far as qk's formats have them so, and caches of
// keys and values; and the threads that share their products.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include "qk/checkpoint.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/parse.hpp"

namespace custom_runtime {

using bytes = std::span<const std::byte>;

[[noreturn]] inline void fail(const std::string& sentence) { throw std::runtime_error(sentence); }

/// Threads that wait for work: what products take as parallel_for.
class workers {
  public:
    explicit workers(std::size_t threads) {
        for (std::size_t i = 1; i < threads; ++i) threads_.emplace_back([this] { loop(); });
    }
    workers(const workers&) = delete;
    workers& operator=(const workers&) = delete;
    ~workers() {
        stop_ = true, ++round_;
        round_.notify_all();
    }
    std::size_t count() const { return threads_.size() + 1; }
    void operator()(std::size_t pieces, const std::function<void(std::size_t)>& body) {
        body_ = &body, pieces_ = pieces, next_ = 0, busy_ = threads_.size(), ++round_;
        round_.notify_all();
        work();
        for (std::size_t left = busy_; left != 0; left = busy_) wait_for_change(busy_, left);
    }

  private:
    /// Looks again for some hundred microseconds, since the next product comes soon, before it sleeps: waking takes as long as a product.
    template <class T>
    static void wait_for_change(const std::atomic<T>& of, T seen) {
        for (int i = 0; i < 20000 && of == seen; ++i) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        of.wait(seen);
    }
    void work() {
        for (std::size_t i = next_++; i < pieces_; i = next_++) (*body_)(i);
    }
    void loop() {
        for (std::uint32_t seen = 0;;) {
            wait_for_change(round_, seen);
            seen = round_;
            if (stop_) return;
            work();
            if (--busy_ == 0) busy_.notify_one();
        }
    }

    const std::function<void(std::size_t)>* body_ = nullptr;
    std::size_t pieces_ = 0;
    std::atomic<std::size_t> next_ = 0, busy_ = 0;
    std::atomic<std::uint32_t> round_ = 0;
    std::atomic<bool> stop_ = false;
    std::vector<std::jthread> threads_;  // joined first
};

/// The tensors of a checkpoint, moved from its file to memory of their own, in large pages where the system has them: a processor reads
/// those faster than what is mapped in pages of 4 KiB.
class resident {
  public:
    explicit resident(qk::checkpoint::checkpoint& c) {
        constexpr std::size_t line = 64;
        std::size_t size = page;
        for (const auto& t : c.tensors) size += (t.data.size() + line - 1) / line * line;
        size = size / page * page;
        memory_.reset(static_cast<std::byte*>(::operator new(size, std::align_val_t(page))));
#if defined(MADV_HUGEPAGE)
        madvise(memory_.get(), size, MADV_HUGEPAGE);
#endif
        std::byte* at = memory_.get();
        for (auto& t : c.tensors) {
            if (!t.data.empty()) std::memcpy(at, t.data.data(), t.data.size());
            t.data = bytes(at, t.data.size());
            at += (t.data.size() + line - 1) / line * line;
        }
    }

  private:
    static constexpr std::size_t page = std::size_t{2} << 20;
    struct freed {
        void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(page)); }
    };
    std::unique_ptr<std::byte, freed> memory_;
};

/// Packed weights, one matrix or those of several experts one after the other, and what is added to their products.
struct matrix {
    qk::format format;
    qk::packed_weights w;
    std::vector<float> bias;
    std::vector<std::byte> codes, scale_codes;
    std::vector<float> scale;
    std::vector<std::int64_t> zero;
    qk::product_sums sums = qk::product_sums::floats;

    matrix() = default;
    matrix(matrix&&) = default;  // memory stays where it is when a vector is moved
    matrix& operator=(matrix&&) = default;
    std::size_t size() const {
        return w.planes.elements.size() + w.planes.scales.size() + (scale.size() + w.planes.tensor.size() / 4) * sizeof(float);
    }
    /// Decodes row r to y.
    void row(std::size_t r, std::span<float> y) const {
        const qk::packed_rows one{w, 1, w.columns, r};
        const float weight = 1;  // one row, times 1
        qk::dispatch::weighted_rows(format, one, {std::span(&weight, 1)}, {y});
    }
    /// y = W x + bias for vectors that lie one after the other.
    void multiply(workers& threads, std::span<const float> x, std::span<float> y, qk::product_options o = {}) const {
        o.sums = sums, o.bias = bias;
        const auto parallel_for = [&](std::size_t pieces, const auto& body) { threads(pieces, body); };
        qk::dispatch::product(format, w, {x, x.size() / w.columns}, {y}, o, parallel_for, piece(threads, w.rows));
    }
    /// The same with the matrices that a router chose.
    void multiply(workers& threads, const qk::product_experts& experts, std::span<const float> x, std::span<float> y,
                  qk::product_options o = {}) const {
        const std::size_t rows = piece(threads, experts.rows);
        o.sums = sums, o.bias = bias;
        threads((experts.rows - 1) / rows + 1, [&](std::size_t i) {
            qk::product_options part = o;
            part.rows = {i * rows, (i + 1) * rows};
            qk::dispatch::grouped_product(format, w, experts, {x, x.size() / w.columns}, {y}, part);
        });
    }

  private:
    /// Two pieces for each thread, so that one that is held up does less.
    static std::size_t piece(const workers& threads, std::size_t rows) {
        const std::size_t pieces = threads.count() == 1 ? 1 : 2 * threads.count();
        return (rows / pieces + 16) / 16 * 16;
    }
};

/// Puts the codes and scales of a quantized matrix where qk's formats have them; what is there already is not moved.
inline void take_quantized(const qk::checkpoint::checkpoint& c, const qk::checkpoint::weight& w, matrix& m) {
    const auto part = [&](int number) { return number < 0 ? bytes() : bytes(c.tensors[static_cast<std::size_t>(number)].data); };
    qk::matrix_planes in{part(w.codes), part(w.scales), part(w.zeros), 1, part(w.group_of)};
    if (w.global >= 0) std::memcpy(&in.global, part(w.global).data(), sizeof(float));
    const qk::layout& from = w.how;
    qk::layout to = from;
    to.order = qk::code_order::rows, to.row_bits = 8, to.scales = qk::scale_order::rows;
    const bool few_rows = from.group_rows > 1 && (from.scale == qk::scale_type::e8m0 || from.scale == qk::scale_type::e4m3);
    const bool moved_experts = w.stack != 1 && (!(from == to) || from.scale != qk::scale_type::e8m0);
    if (from.zero != qk::zero_type::none || !in.group_of.empty() || from.codes == qk::element::ggml || few_rows || moved_experts)
        fail(w.name + ": this example has no product for weights like " + w.format + "; qk convert writes others");
    m.w.rows = w.stack * w.matrix.rows, m.w.columns = w.matrix.columns;
    if (!(from == to)) {
        const qk::plane_sizes n = qk::sizes_of(to, w.matrix);
        std::vector<std::uint8_t> scratch(w.matrix.columns);
        m.codes.resize(n.codes), m.scale_codes.resize(n.scales);
        float global = 1;
        if (!qk::repack(from, w.matrix, in, to, {m.codes, m.scale_codes, {}, &global}, scratch).done) fail(w.name + ": cannot be moved");
        in.codes = m.codes, in.scales = m.scale_codes;
    }
    const std::string element = from.codes == qk::element::e2m1   ? "fp4_e2m1"
                                : from.codes == qk::element::e2m3 ? "fp6_e2m3"
                                : from.codes == qk::element::e3m2 ? "fp6_e3m2"
                                : from.codes == qk::element::e4m3 ? "fp8_e4m3fn"
                                : from.codes == qk::element::e5m2
                                    ? "fp8_e5m2"
                                    : (from.codes == qk::element::unsigned_integer ? "uint" : "int") + std::to_string(from.bits);
    const std::string group = std::to_string(from.group_columns);
    m.w.planes = {in.codes, in.scales, {}, {}};
    if (from.scale == qk::scale_type::e8m0) {
        m.format = *qk::parse_format("mx:element=" + element + ",block=" + group);
    } else if (from.scale == qk::scale_type::e4m3) {
        m.format = *qk::parse_format("nvfp:block=" + group + ",element=" + element + ",scale=fp8_e4m3fn,tensor=0");
        m.w.parameters = qk::affine{from.global == qk::global_type::divides ? 1 / in.global : in.global};
    } else {
        m.format = *qk::parse_format(element);
        const std::size_t groups = qk::groups_of(from, w.matrix), together = static_cast<std::size_t>(from.group_rows);
        for (std::size_t r = 0; r < m.w.rows; ++r)
            for (std::size_t g = 0; g < groups; ++g)
                m.scale.push_back(
                    from.scale == qk::scale_type::none
                        ? 1.0f
                        : qk::scale_value(from.scale, qk::scale_bits(to, w.matrix, in.scales, together == 0 ? 0 : r / together, g)));
        if (from.offset != 0) m.zero.assign(m.scale.size(), from.offset);
        m.w.planes.scales = {};
        m.w.parameters = qk::per_block{
            m.scale, m.zero, {m.w.rows, m.w.columns, 1}, groups == 1 ? m.w.columns : static_cast<std::size_t>(from.group_columns)};
    }
}

enum class weights_as { packed, floats, integers };

inline std::vector<float> load_vector(const qk::checkpoint::checkpoint& c, const std::string& name) {
    const qk::checkpoint::weight* w = c.find_weight(name);
    return w == nullptr ? std::vector<float>() : c.decode(*w);
}
inline matrix load(const qk::checkpoint::checkpoint& c, const std::string& name, weights_as how, const std::string& bias = {}) {
    const qk::checkpoint::weight* w = c.find_weight(name);
    if (w == nullptr) fail(c.path.string() + ": there is no " + name);
    if (w->problem) fail(w->problem->sentence);
    matrix m;
    if (w->quantized) {
        take_quantized(c, *w, m);
    } else {
        m.w.columns = static_cast<std::size_t>(w->shape.back()), m.w.rows = w->elements() / m.w.columns;
        m.format = *qk::parse_format(w->format == "f16" ? "fp16" : w->format == "f32" ? "fp32" : "bf16");
        m.w.planes.elements = c.tensors[static_cast<std::size_t>(w->codes)].data;
    }
    m.bias = load_vector(c, bias);
    if (how == weights_as::integers && qk::takes_integers(m.format)) m.sums = qk::product_sums::integers;
    if (how != weights_as::floats) return m;
    matrix f;
    f.format = qk::fp32, f.w.rows = m.w.rows, f.w.columns = m.w.columns, f.bias = std::move(m.bias);
    f.codes.resize(m.w.rows * m.w.columns * sizeof(float));
    for (std::size_t r = 0; r < m.w.rows; ++r) m.row(r, std::span(reinterpret_cast<float*>(f.codes.data()) + r * m.w.columns, m.w.columns));
    f.w.planes.elements = f.codes;
    return f;
}

/// Keys or values: a packed matrix with a row for each token.
class cache {
  public:
    cache(const qk::format& f, std::size_t tokens, std::size_t columns)
        : format_(f), layout_(qk::layout_of(f, qk::along_axis{tokens, columns, 1})) {
        const qk::packed_layout row = qk::layout_of(f, qk::along_axis{1, columns, 1});
        row_ = row;
        if (layout_.elements.bytes() != tokens * row.elements.bytes() || layout_.scales.bytes() != tokens * row.scales.bytes() ||
            layout_.shifts.count != 0 || layout_.tensor.count != 0 || qk::is_integer_format(f))
            fail("--cache: a float, or blocks whose scales are bytes");
        memory_.resize(layout_.bytes());
        w_ = {tokens, columns, qk::planes_of(layout_, bytes(memory_)), qk::affine{1}};
        if (qk::is_block_format(f)) w_.parameters = {};
    }
    void put(std::size_t token, std::span<const float> x) {
        const qk::planes all = qk::planes_of(layout_, std::span(memory_));
        const std::size_t e = row_.elements.bytes(), s = row_.scales.bytes();
        const qk::planes one{all.elements.subspan(token * e, e), all.scales.subspan(token * s, s), {}, {}};
        if (qk::dispatch::encode(format_, x, one) != qk::encode_status::done) fail("--cache: cannot be encoded");
    }
    /// Returns `tokens` rows of one head from number `first` on.
    qk::packed_rows of_head(std::size_t first, std::size_t tokens, std::size_t size, std::size_t head) const {
        return {w_, tokens, size, first, 1, head * size};
    }
    const qk::format& format() const { return format_; }

  private:
    qk::format format_;
    qk::packed_layout layout_, row_;
    std::vector<std::byte> memory_;
    qk::packed_weights w_;
};

}  // namespace custom_runtime
