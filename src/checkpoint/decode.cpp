// SPDX-License-Identifier: Apache-2.0
// Turns weights into floats, a part at a time, and gives the pages that were read back to the system.
#include <algorithm>
#include <cstring>

#include "parts.hpp"
#include "qk/formats/codes/code.hpp"

namespace qk::checkpoint {
namespace {

constexpr std::size_t floats_at_once = std::size_t{1} << 20;

/// Reads a number of `width` bytes of either byte order.
template <class T>
T number_at(const std::byte* p, bool swapped) {
    T v;
    std::byte raw[sizeof(T)];
    std::memcpy(raw, p, sizeof(T));
    if (swapped) std::reverse(raw, raw + sizeof(T));
    std::memcpy(&v, raw, sizeof(T));
    return v;
}

/// Decodes numbers [first, first + n) of a plain tensor.
void decode_plain(const stored_tensor& t, std::uint64_t first, std::size_t n, float* y) {
    const std::byte* p = t.data.data();
    const auto each = [&](auto value) {
        for (std::size_t i = 0; i < n; ++i) y[i] = value(first + i);
    };
    const std::string& type = t.type;
    if (type == "F32" || type == "f32") {
        if (!t.swapped) std::memcpy(y, p + 4 * first, 4 * n);
        else each([&](std::uint64_t i) { return number_at<float>(p + 4 * i, true); });
    } else if (type == "F16" || type == "f16")
        each([&](std::uint64_t i) { return layout_parts::half_to_float(number_at<std::uint16_t>(p + 2 * i, t.swapped)); });
    else if (type == "BF16" || type == "bf16")
        each([&](std::uint64_t i) { return layout_parts::bfloat_to_float(number_at<std::uint16_t>(p + 2 * i, t.swapped)); });
    else if (type == "F64" || type == "f64")
        each([&](std::uint64_t i) { return static_cast<float>(number_at<double>(p + 8 * i, t.swapped)); });
    else if (type == "F8_E4M3FNUZ") each([&](std::uint64_t i) { return value_of(fp8_e4m3fnuz, std::to_integer<unsigned>(p[i])); });
    else if (type == "F8_E5M2FNUZ") each([&](std::uint64_t i) { return value_of(fp8_e5m2fnuz, std::to_integer<unsigned>(p[i])); });
    else if (type == "F8_E8M0") each([&](std::uint64_t i) { return layout_parts::e8m0_to_float(std::to_integer<std::uint8_t>(p[i])); });
    else {
        const unsigned bits = bits_of_type(type);
        const element e = type == "F4"        ? element::e2m1
                          : type == "F6_E2M3" ? element::e2m3
                          : type == "F6_E3M2" ? element::e3m2
                          : type == "F8_E5M2" ? element::e5m2
                                              : element::e4m3;
        const float* table = layout_parts::values_of(e);
        each([&](std::uint64_t i) { return table[layout_parts::stream_bits(layout_parts::raw(t.data), i * bits, bits)]; });
    }
}

/// Turns the 16-bit fields of one of ggml's blocks round.
void swap_fields(ggml_type type, std::uint8_t* b) {
    using enum ggml_type;
    const auto swap = [&](std::initializer_list<std::size_t> places) {
        for (const std::size_t at : places) std::swap(b[at], b[at + 1]);
    };
    switch (type) {
        case q4_1:
        case q5_1:
        case q8_1:
        case q4_k:
        case q5_k:
        case iq4_xs: return swap({0, 2});
        case q2_k: return swap({80, 82});
        case q3_k: return swap({108});
        case q6_k: return swap({208});
        case tq1_0: return swap({52});
        case tq2_0: return swap({64});
        case q8_k: return std::reverse(b, b + 4);
        case mxfp4:
        case nvfp4: return;
        default: return swap({0});
    }
}

}  // namespace

std::uint64_t stored_tensor::elements() const { return product_of(shape).value_or(0); }
std::uint64_t weight::elements() const { return product_of(shape).value_or(0); }

void check_files(const checkpoint& c, const weight& w) {
    for (const int number : {w.codes, w.scales, w.zeros, w.global, w.group_of}) {
        if (number == weight::none) continue;
        const std::size_t file = c.tensors[static_cast<std::size_t>(number)].file;
        if (file < c.files.size()) c.files[file]->check();
    }
}

matrix_planes planes_of(const checkpoint& c, const weight& w, std::uint64_t index) {
    const auto part = [&](int number) -> std::span<const std::byte> {
        if (number == weight::none) return {};
        const stored_tensor& t = c.tensors[static_cast<std::size_t>(number)];
        const std::size_t each = t.data.size() / w.stack;
        return t.data.subspan(index * each, each);
    };
    matrix_planes p{.codes = part(w.codes), .scales = part(w.scales), .zeros = part(w.zeros)};
    if (w.global != weight::none) {
        const stored_tensor& t = c.tensors[static_cast<std::size_t>(w.global)];
        p.global = number_at<float>(t.data.data() + (t.data.size() == 4 * w.stack ? 4 * index : 0), t.swapped);
    }
    if (w.group_of != weight::none) p.group_of = c.tensors[static_cast<std::size_t>(w.group_of)].data;
    return p;
}

std::uint64_t beyond_float32(const stored_tensor& t) {
    std::uint64_t n = 0;
    if (t.type == "F64" || t.type == "f64")
        for (std::uint64_t i = 0; i < t.elements(); ++i) {
            const auto v = number_at<double>(t.data.data() + 8 * i, t.swapped);
            n += std::isfinite(v) && !std::isfinite(static_cast<float>(v));
        }
    return n;
}

namespace {

/// Decodes a weight in order.
class decoder {
  public:
    decoder(const checkpoint& c, const weight& w, const std::function<void(std::span<const float>)>& take) : c_(c), w_(w), take_(take) {}

    void run() {
        if (!w_.quantized) return plain();
        scratch_.resize(w_.matrix.columns);
        for (std::uint64_t m = 0; m < w_.stack; ++m) {
            const matrix_planes p = planes_of(c_, w_, m);
            if (w_.transposed) turned(p);
            else rows(p);
            release();
        }
    }

  private:
    /// Gives floats away, if the files that they come from were not changed meanwhile.
    void give(std::span<const float> part) {
        check_files(c_, w_);
        take_(part);
    }
    void plain() {
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(w_.codes)];
        std::vector<float> y(std::min<std::uint64_t>(w_.elements(), floats_at_once));
        for (std::uint64_t i = 0; i < w_.elements(); i += y.size()) {
            const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(y.size(), w_.elements() - i));
            decode_plain(t, i, n, y.data());
            give(std::span(y).first(n));
            read(n * 4);
        }
        release();
    }
    void row(const matrix_planes& p, std::size_t r, float* y) {
        if (!c_.big_endian) return decode_row(w_.how, w_.matrix, p, r, scratch_.data(), y);
        const ggml_facts f = facts_of(w_.how.block);
        const std::uint8_t* from = layout_parts::raw(p.codes) + r * (w_.matrix.columns / f.values) * f.bytes;
        for (std::size_t k = 0; k < w_.matrix.columns; k += f.values, from += f.bytes) {
            std::uint8_t block[512];
            std::memcpy(block, from, f.bytes);
            swap_fields(w_.how.block, block);
            decode_ggml(w_.how.block, block, y + k);
        }
    }
    void rows(const matrix_planes& p) {
        const std::size_t k = w_.matrix.columns, at_once = std::max<std::size_t>(1, floats_at_once / std::max<std::size_t>(1, k));
        std::vector<float> y(std::min(at_once, w_.matrix.rows) * k);
        for (std::size_t first = 0; first < w_.matrix.rows; first += at_once) {
            const std::size_t n = std::min(at_once, w_.matrix.rows - first);
            for (std::size_t r = 0; r < n; ++r) row(p, first + r, y.data() + r * k);
            give(std::span(y).first(n * k));
            read(n * k);
        }
    }
    /// The columns first: stripes of them, so that no matrix is in memory twice.
    void turned(const matrix_planes& p) {
        const std::size_t n = w_.matrix.rows, k = w_.matrix.columns;
        const std::size_t stripe = std::clamp<std::size_t>((std::size_t{16} << 20) / std::max<std::size_t>(1, n), 1, k);
        constexpr std::size_t together = 16;  // rows that fill a cache line of each column
        std::vector<float> y(together * k), out(stripe * n);
        for (std::size_t first = 0; first < k; first += stripe) {
            const std::size_t width = std::min(stripe, k - first);
            for (std::size_t r = 0; r < n; r += together) {
                const std::size_t some = std::min(together, n - r);
                for (std::size_t i = 0; i < some; ++i) row(p, r + i, y.data() + i * k);
                for (std::size_t c = 0; c < width; ++c)
                    for (std::size_t i = 0; i < some; ++i) out[c * n + r + i] = y[i * k + first + c];
            }
            give(std::span(out).first(width * n));
        }
    }
    void read(std::size_t bytes) {
        read_ += bytes;
        if (read_ > std::size_t{64} << 20) release();
    }
    void release() {
        read_ = 0;
        for (const int part : {w_.codes, w_.scales, w_.zeros}) {
            if (part == weight::none) continue;
            const stored_tensor& t = c_.tensors[static_cast<std::size_t>(part)];
            if (t.file < c_.files.size()) c_.files[t.file]->release(t.data);
        }
    }

    const checkpoint& c_;
    const weight& w_;
    const std::function<void(std::span<const float>)>& take_;
    std::vector<std::uint8_t> scratch_;
    std::size_t read_ = 0;
};

}  // namespace

namespace {

/// Hands on what `decode` gives after `change` has seen each number and its place.
template <class Change>
void decode_changed(const std::function<void(const std::function<void(std::span<const float>)>&)>& decode, const Change& change,
                    const std::function<void(std::span<const float>)>& take) {
    std::uint64_t at = 0;
    std::vector<float> changed;
    decode([&](std::span<const float> part) {
        changed.assign(part.begin(), part.end());
        for (float& v : changed) v = change(v, at++);
        take(changed);
    });
}

}  // namespace

void checkpoint::decode(const weight& w, const std::function<void(std::span<const float>)>& take) const {
    if (w.problem) throw error(path.string() + ": " + w.problem->sentence);
    if (w.elements() == 0) return;
    if (kind != container::gguf || w.global == weight::none) return decoder(*this, w, take).run();
    std::vector<float> factors;
    for (std::uint64_t m = 0; m < w.stack; ++m) factors.push_back(planes_of(*this, w, m).global);
    const std::uint64_t each = w.elements() / w.stack;
    decode_changed([&](const auto& to) { decoder(*this, w, to).run(); }, [&](float v, std::uint64_t i) { return v * factors[i / each]; },
                   take);
}

void checkpoint::decode_with_factor(const weight& w, const std::function<void(std::span<const float>)>& take) const {
    if (w.input_factor == weight::none) return decode(w, take);
    const stored_tensor& t = tensors[static_cast<std::size_t>(w.input_factor)];
    std::vector<float> factors(t.elements());
    decode_plain(t, 0, factors.size(), factors.data());
    // One factor for each input: the last number of the shape, or the one before where the inputs are first.
    const std::uint64_t inner = factors.size() == w.shape.back() ? 1 : w.shape.back();
    decode_changed([&](const auto& to) { decode(w, to); },
                   [&](float v, std::uint64_t i) { return v * factors[i / inner % factors.size()]; }, take);
}

std::vector<float> checkpoint::decode(const weight& w) const {
    std::vector<float> all;
    decode(w, [&](std::span<const float> part) { all.insert(all.end(), part.begin(), part.end()); });
    return all;
}

}  // namespace qk::checkpoint
