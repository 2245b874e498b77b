// SPDX-License-Identifier: Apache-2.0
// Packed rows as a product reads them: any piece of a row as floats and, for the forms that decode in registers, the factors of its
// weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "qk/codec/decode/blocks.hpp"
#include "qk/codec/decode/elements.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/memory/values.hpp"
#include "qk/product/bytes.hpp"
#include "qk/product/options.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/sums.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

inline constexpr std::size_t all_weights = std::numeric_limits<std::size_t>::max();

/// The rows of a packed matrix. The loops of a product call this interface, so they are compiled once for all formats.
template <class Arch>
class weight_rows {
  public:
    const packed_weights& matrix;
    const int width;         ///< bits of a code
    const std::size_t run;   ///< so many weights of a row, from its start on, share a factor (all_weights: the whole row); 0: no such rule
    const std::size_t runs;  ///< of a row
    const std::size_t block_bytes;  ///< of formats in which a run's codes lie together with its factors: bytes of a run; else 0

    weight_rows(const packed_weights& m, int bits, std::size_t weights, std::size_t bytes_of_run = 0) noexcept
        : matrix(m),
          width(bits),
          run(weights),
          runs(run == 0 || run == all_weights ? 1 : divide_up(m.columns, static_cast<int>(run))),
          block_bytes(bytes_of_run) {}
    weight_rows(const weight_rows&) = delete;
    weight_rows& operator=(const weight_rows&) = delete;

    /// Writes the n weights of a row from column k on.
    virtual void decode(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept = 0;
    /// Writes the values of n codes before they are multiplied by a factor, without a zero point.
    virtual void elements(const std::uint32_t* code, float* to, std::size_t n) const noexcept = 0;
    /// Where `run` is not 0: returns the factors of `n` runs of a row from run `first` on, in `own` or where the caller keeps them. Sets
    /// `zero` to what is subtracted before (in own_zero), or to null. Unless all weights of a row share a factor, the runs of the next row
    /// follow those of this one.
    virtual const float* factors(std::size_t row, std::size_t first, std::size_t n, float* own, float* own_zero,
                                 const float*& zero) const noexcept = 0;

    /// Writes the factors of all codes of a scale, where each has a byte of its own, and nothing but the code decides.
    virtual bool factors_of_bytes(float* to) const noexcept = 0;
    /// Returns the codes of n of a row's scales from run `first` on, where factors_of_bytes() is true.
    virtual const std::byte* scale_bytes(std::size_t row, std::size_t first, std::size_t n) const noexcept = 0;

    /// The bytes of integers of eight bits.
    enum class integer_bytes { none, with_sign, without_sign };
    virtual integer_bytes bytes() const noexcept = 0;

    /// Is true where add_codes knows the format.
    virtual bool in_registers() const noexcept = 0;
    /// Adds the products of rows whose codes it decodes in registers.
    virtual void add_codes(const piece_of_rows& p) const noexcept = 0;

    /// Returns the first byte of a row's codes from column k on. They must begin at a whole byte, or block.
    const std::byte* codes(std::size_t row, std::size_t k) const noexcept {
        if (block_bytes != 0) return matrix.planes.elements.data() + (row * runs + k / run) * block_bytes;
        return matrix.planes.elements.data() + (row * matrix.columns + k) * static_cast<std::size_t>(width) / 8;
    }

    /// Returns how many bytes the codes of a row take.
    std::size_t bytes_of_row() const noexcept {
        return block_bytes != 0 ? runs * block_bytes : matrix.columns * static_cast<std::size_t>(width) / 8;
    }

  protected:
    ~weight_rows() = default;
};

/// Adds the products of R rows from row `first` of a piece on. each(in, put) decodes the 32 codes at `in` and calls put(k, values) for each
/// vector. Factors are multiplied by `unit`, a power of two that changes none of their bits but the exponent.
template <class Arch, std::size_t R, bool Zeros, class Each>
QK_INLINE void add_decoded(const piece_of_rows& p, std::size_t first, const Each& each, std::size_t bytes, float unit) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, V = vectors_of_sums<Arch>;
    kernels::vf<Arch> s[R][V];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    for (std::size_t r = 0; r < R; ++r) {
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
        for (std::size_t v = 0; v < V; ++v) s[r][v] = kernels::load<Arch>(p.sum + (first + r) * p.sum_stride + v * w);
    }
    const float* x = p.x;
    const std::size_t next = p.next;
    const kernels::vf<Arch> whole(unit);
    const auto all = [&](auto with_zero) QK_INLINE_CALL {
        for (std::size_t g = 0; g < p.groups; ++g, x += 32) {
            kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                const float *by = factor[r] + g * p.factors, *less = zero[r] + (with_zero ? g * p.factors : 0);
                const std::size_t second = p.factors - 1;
                const kernels::vf<Arch> factors[2] = {kernels::vf<Arch>(by[0]) * whole, kernels::vf<Arch>(by[second]) * whole};
                fetch(in[r] + next);
                each(in[r], [&](std::size_t k, kernels::vf<Arch> value) QK_INLINE_CALL {
                    const std::size_t half = k < 16 ? 0 : 1;
                    if constexpr (with_zero) value = value - kernels::vf<Arch>(less[half * second]);
                    const std::size_t v = k / w % V;
                    s[r][v] = fused<Arch>(kernels::load<Arch>(x + k), value * factors[half], s[r][v]);
                });
                in[r] += bytes;
            });
        }
    };
    if (Zeros && p.zeros) all(std::bool_constant<Zeros>());
    else all(std::false_type());
    for (std::size_t r = 0; r < R; ++r)
        for (std::size_t v = 0; v < V; ++v) kernels::store<Arch>(p.sum + (first + r) * p.sum_stride + v * w, s[r][v]);
}

template <class Arch, compile_time_facts Known, class Format>
class rows_of final : public weight_rows<Arch> {
    using base = weight_rows<Arch>;
    static constexpr bool in_blocks = kernels::is_block_family<Format>;

  public:
    rows_of(const Format& f, const packed_weights& m) noexcept
        : base(m, element_width(f), run_of(f, m)), format_(f), tensor_(tensor_of(f, m)), packed_(packing_of(f)) {
        if constexpr (under_floating_scales<Format>) factors_of_bytes(table_.factor);
    }

    void elements(const std::uint32_t* code, float* to, std::size_t n) const noexcept override {
        if constexpr (has_zero_points<Format>) {
            for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<float>(value_of(format_, code[i]));
        } else {
            elements_of<Arch>(format_, code, to, n);
        }
    }

    void decode(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept override {
        if constexpr (is_float<Format>) {
            if (format_ == no_format) return void(std::fill(to, to + n, std::numeric_limits<float>::quiet_NaN()));
        }
        const packed_weights& m = this->matrix;
        if constexpr (is_float<Format>) {
            const std::size_t done = decode_groups(row, k, n, to);
            if (done == n) return;
            k += done, n -= done, to += done;
        }
        const std::size_t first = row * m.columns + k, bit = first * static_cast<std::size_t>(this->width);
        if constexpr (in_blocks) {
            const along_axis a{m.rows, m.columns, 1};
            const std::size_t scale = scale_index(packed_, a, row, k, 0), shift = shift_index(packed_, a, row, k, 0),
                              scale_bit = scale * static_cast<std::size_t>(packed_.scale_width),
                              shift_bit = shift * static_cast<std::size_t>(packed_.shift_bits);
            const auto block = static_cast<std::size_t>(packed_.block_size);
            const bool whole = k % block == 0 && (n % block == 0 || k + n == m.columns);
            const decoder_of<Arch, Known, Format> decoder(format_, tensor_);
            if (whole && bit % 8 == 0 && scale_bit % 8 == 0 && shift_bit % 8 == 0) {
                const const_planes piece{m.planes.elements.subspan(bit / 8), m.planes.scales.subspan(scale_bit / 8),
                                         m.planes.shifts.subspan(packed_.shift_bits != 0 ? shift_bit / 8 : 0), m.planes.tensor};
                return decode_blocks<Arch>(decoder, piece, std::span<float>(to, n), along_axis{1, n, 1});
            }
            in_tiles(k, n, [&](std::size_t at, std::size_t some) QK_INLINE_CALL {
                alignas(64) std::uint32_t code[tile];
                alignas(64) float factor[tile];
                get_codes<Arch>(m.planes.elements, row * m.columns + at, some, this->width, code);
                elements_of<Arch>(format_, code, to + at - k, some);
                factors_of(packed_, a, at, 0, some, factor, [&](std::size_t along, std::size_t across, std::size_t count, float* f) {
                    decoder.factors(m.planes, a, row, along, across, count, f);
                });
                for (std::size_t i = 0; i < some; ++i) to[at - k + i] *= factor[i];
            });
        } else {
            codec_parameters p;
            bool simple = bit % 8 == 0;
            const codec_parameters& given = m.parameters;
            if (this->run == all_weights) {
                p = one_of_row(row);
            } else if (this->run != 0 && k % this->run == 0) {
                const std::size_t entry = row * this->runs + k / this->run, number = divide_up(n, static_cast<int>(this->run));
                p = per_block{given.scale.subspan(entry, number),
                              given.zero_point.empty() ? given.zero_point : given.zero_point.subspan(entry, number),
                              {1, n, 1},
                              this->run};
            } else {
                simple = false;
            }
            if (simple) {
                const const_planes piece{m.planes.elements.subspan(bit / 8), {}, {}, {}};
                return decode_elements<Arch>(format_, piece, std::span<float>(to, n), p, fast_decoders_of<Arch, Known.width, Format>());
            }
            one_by_one(row, k, n, to);
        }
    }

    using typename base::integer_bytes;
    integer_bytes bytes() const noexcept override {
        if constexpr (has_zero_points<Format>) {
            if (this->width == 8) return format_.is_signed ? integer_bytes::with_sign : integer_bytes::without_sign;
        }
        return integer_bytes::none;
    }

    bool in_registers() const noexcept override {
        return with_values([&](const auto& values) {
                   if constexpr (has_byte_values<Arch>() && std::same_as<std::remove_cvref_t<decltype(values)>, floating_values<Arch>>) {
                       if (in_bytes(values.format)) return std::size_t{1};
                   }
                   return std::size_t{this->width == 8 || (this->width == 16 && is_float<Format>)};
               }) != 0;
    }
    void add_codes(const piece_of_rows& p) const noexcept override {
        if constexpr (has_zero_points<Format> && has_integer_bytes) {
            if (this->width == 8) return add_integer_bytes<Arch>(p, bytes() == integer_bytes::with_sign);
        }
        with_values([&](const auto& values) {
            if constexpr (std::same_as<std::remove_cvref_t<decltype(values)>, floating_values<Arch>>) {
                if (add_floats(p, values)) return std::size_t{1};
            }
            if (Known.width == any_width || Known.width == 8) {
                if (this->width == 8) add_width<8>(p, values);
            }
            if constexpr (Known.width == 16 || (Known.width == any_width && is_float<Format>)) {
                if (this->width == 16) add_width<16>(p, values);
            }
            return std::size_t{1};
        });
    }

    const float* factors(std::size_t row, std::size_t first, std::size_t n, float* own, [[maybe_unused]] float* own_zero,
                         const float*& zero) const noexcept override {
        const packed_weights& m = this->matrix;
        zero = nullptr;
        if constexpr (in_blocks) {
            const std::size_t scale = row * this->runs + first;
            if constexpr (under_floating_scales<Format>) {
                if (packed_.scale_width == 8) {
                    const std::byte* const code = m.planes.scales.data() + scale;
                    fetch_later(code, n);
                    std::size_t i = 0;
                    if constexpr (has_half_values<Arch>()) {
                        if (table_.scale.usable)
                            i = decode_32_at_a_time<Arch, 8>(table_.scale, code, own, n, one_factor<Arch>(tensor_), false);
                    }
                    constexpr std::size_t w = kernels::lanes<Arch>;
                    for (; w == 16 && table_.scale.usable && i + w <= n; i += w) {  // fewer lanes are looked up as fast
                        const kernels::vi<Arch> c = kernels::load_codes<Arch>(reinterpret_cast<const std::uint8_t*>(code) + i);
                        kernels::store<Arch>(own + i, table_.scale(c) * kernels::vf<Arch>(tensor_));
                    }
                    for (; i < n; ++i) own[i] = table_.factor[std::to_integer<std::size_t>(code[i])];
                    return own;
                }
            }
            std::size_t done = 0;
            if constexpr (std::same_as<Format, microscaling>) {  // 2^(code - 127), and NaN for 255; of code 0 a subnormal number
                using V = kernels::vi<Arch>;
                const auto* const code = reinterpret_cast<const std::uint8_t*>(m.planes.scales.data()) + scale;
                fetch_later(code, n);
                for (; done + kernels::lanes<Arch> <= n; done += kernels::lanes<Arch>) {
                    const V c = kernels::load_codes<Arch>(code + done);
                    const V power = max(c << 23, V(1 << 22)) | (kernels::all_bits<Arch>(c == V(255)) & V(1 << 22));
                    kernels::store<Arch>(own + done, kernels::as_float<Arch>(power));
                }
            }
            if (done < n) factors_across<Arch>(format_, m.planes, scale + done, 0, n - done, tensor_, own + done);
            return own;
        } else {
            const codec_parameters& p = m.parameters;
            if (this->run == all_weights) {
                const affine one = one_of_row(row);
                own[0] = one.scale;
                if (has_zero_points<Format> && one.zero_point != 0) own_zero[0] = static_cast<float>(one.zero_point), zero = own_zero;
                return own;
            }
            const std::size_t entry = row * this->runs + first;
            if (has_zero_points<Format> && !p.zero_point.empty()) {
                for (std::size_t i = 0; i < n; ++i) own_zero[i] = static_cast<float>(p.zero_point[entry + i]);
                zero = own_zero;
            }
            if (const float* const scale = p.scale.data()) {
                fetch_later(scale + entry, n);
                return scale + entry;
            }
            for (std::size_t i = 0; i < n; ++i) own[i] = p.scale[entry + i];
            return own;
        }
    }

    bool factors_of_bytes([[maybe_unused]] float* to) const noexcept final {
        if constexpr (in_blocks && !has_sub_blocks<Format>) {
            if (packed_.scale_width == 8 && packed_.shift_bits == 0) {
                std::byte code[256];
                for (std::size_t i = 0; i < 256; ++i) code[i] = static_cast<std::byte>(i);
                factors_across<Arch>(format_, const_planes{{}, code, {}, {}}, 0, 0, 256, tensor_, to);
                return true;
            }
        }
        return false;
    }
    const std::byte* scale_bytes([[maybe_unused]] std::size_t row, [[maybe_unused]] std::size_t first,
                                 [[maybe_unused]] std::size_t n) const noexcept override {
        if constexpr (in_blocks) {
            const std::byte* const code = this->matrix.planes.scales.data() + row * this->runs + first;
            fetch_later(code, n);
            return code;
        } else {
            return nullptr;
        }
    }

  private:
    static float tensor_of([[maybe_unused]] const Format& f, [[maybe_unused]] const packed_weights& m) noexcept {
        float tensor = 1;
        if constexpr (under_floating_scales<Format>) {
            if (f.tensor_scale) std::memcpy(&tensor, m.planes.tensor.data(), sizeof tensor);
            else if (m.parameters.has_one && m.parameters.one.scale != 0) tensor = m.parameters.one.scale;
        }
        return tensor;
    }
    /// Is true where each row has a scale of its own.
    static bool by_row(const packed_weights& m) noexcept {
        const codec_parameters& p = m.parameters;
        return !p.one_scale() && p.group == 0 && p.axis.outer == 1 && p.axis.length == m.rows && p.axis.inner == m.columns;
    }
    static std::size_t run_of([[maybe_unused]] const Format& f, [[maybe_unused]] const packed_weights& m) noexcept {
        if constexpr (has_sub_blocks<Format>) return 0;
        else if constexpr (in_blocks) return static_cast<std::size_t>(f.block_size);
        else {
            const codec_parameters& p = m.parameters;
            if (p.one_scale() || by_row(m)) return all_weights;
            const bool along = p.group != 0 && p.block_rows == 1 && p.axis.inner == 1 && p.axis.length == m.columns;
            if (along && p.group >= m.columns) return all_weights;
            return along && p.group <= largest_run ? p.group : 0;
        }
    }
    static constexpr std::size_t largest_run = std::size_t{1} << 20;

    /// Returns the scale of a row whose weights share one.
    affine one_of_row(std::size_t row) const noexcept {
        const codec_parameters& p = this->matrix.parameters;
        if (p.one_scale()) return p.one;
        return {p.scale[row], p.zero_point.empty() ? 0 : p.zero_point[row]};
    }

    /// Returns call(values), where values(code) turns a vector of codes into values, or 0 where there is no such form.
    template <class Call>
    std::size_t with_values([[maybe_unused]] const Call& call) const noexcept {
        if constexpr (kernels::is_baseline<Arch> || has_listed_values<Format> || has_sub_blocks<Format> || under_floating_scales<Format> ||
                      (in_plain_blocks<Format> && Known.width == any_width)) {
            return 0;
        } else if constexpr (in_blocks) {
            return with_element_values<Arch, Known>(format_, call);
        } else if constexpr (has_zero_points<Format>) {
            return decodes_fast<Arch>(this->width) ? call(integer_values<Arch>(format_, 0)) : 0;
        } else {
            if (format_ == no_format || !decodes_fast<Arch>(this->width)) return 0;
            const floating_values<Arch> values(format_);
            return values.usable ? call(values) : 0;
        }
    }
    template <int Width, class Values>
    void add_width(const piece_of_rows& p, const Values& values) const noexcept {
        const code_reader<Arch, Width> codes{this->width, this->matrix.planes.elements.data() + this->matrix.planes.elements.size()};
        const auto each = [&](const std::byte* in, const auto& put) QK_INLINE_CALL {
            codes.template each_vector<32>(in, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, values(code)); });
        };
        add(p, each, Width * 4);
    }
    /// Adds rows of floats in a form that knows what they are; returns false where there is none.
    bool add_floats(const piece_of_rows& p, const floating_values<Arch>& values) const noexcept {
        const floating f = values.format;
        if constexpr (Known.width == any_width || Known.width == 16) {
            if (f == bf16) {
                const auto shifted = [](kernels::vi<Arch> code) QK_INLINE_CALL { return kernels::as_float<Arch>(code << 16); };
                add_width<16>(p, shifted);
                return true;
            }
        }
        if constexpr (has_half_values<Arch>()) {
            const float unit = half_unit(f);  // it goes into the factors, exactly where they stay finite
            if (half_form_of(f) != half_form::none && has_room(p, unit)) {
                half_values<Arch>(f).template with_form<Known.width>([&](const auto& each)
                                                                         QK_INLINE_CALL { add(p, each, this->width * 4, unit); });
                return true;
            }
        }
        if constexpr (has_byte_values<Arch>()) {
            if (in_bytes(f)) {
                byte_values<Arch> bytes;
                bytes.fill(f, values);
                bytes.with_kind(bits(f), [&](const auto& each) QK_INLINE_CALL { add(p, each, this->width * 4); });
                return true;
            }
        }
        return false;
    }
    /// Is true where all factors, times a power of two, are finite.
    static bool has_room(const piece_of_rows& p, float unit) noexcept {
        if (unit == 1) return true;
        const std::int32_t most = std::bit_cast<std::int32_t>(std::numeric_limits<float>::max() / unit);
        std::int32_t largest = 0;
        for (std::size_t r = 0; r < p.rows; ++r) {
            for (std::size_t i = 0; i < p.groups * p.factors; ++i)
                largest = std::max(largest, std::bit_cast<std::int32_t>(p.piece[r].factor[i]) & 0x7fffffff);
        }
        return largest <= most;
    }
    /// Adds rows some at a time. There is room behind the last one: what it gets is not used. `unit` is a factor of all weights.
    template <class Each>
    QK_INLINE static void add(const piece_of_rows& p, const Each& each, int bytes, float unit = 1) noexcept {
        constexpr std::size_t R = rows_in_registers<Arch>;
        for (std::size_t r = 0; r < p.rows; r += R)
            add_decoded<Arch, R, has_zero_points<Format>>(p, r, each, static_cast<std::size_t>(bytes), unit);
    }

    /// Calls call(column, number) for pieces of a row.
    template <class Call>
    static void in_tiles(std::size_t k, std::size_t n, const Call& call) {
        for (std::size_t at = k; at < k + n; at += tile) call(at, std::min(tile, k + n - at));
    }

    /// Decodes groups of 32 floats under a factor from column k on, where half_values has the format. Returns how many weights those were.
    QK_APART std::size_t decode_groups([[maybe_unused]] std::size_t row, [[maybe_unused]] std::size_t k, [[maybe_unused]] std::size_t n,
                                       [[maybe_unused]] float* to) const noexcept {
        if constexpr (is_float<Format> && has_half_values<Arch>()) {
            const std::size_t shared = this->run, bits_before = (row * this->matrix.columns + k) * static_cast<std::size_t>(this->width);
            if (!halves_ || shared == 0 || shared == all_weights || shared % 32 != 0 || k % 32 != 0 || bits_before % 8 != 0) return 0;
            const half_values<Arch> values(format_);
            const float unit = half_unit(format_), most = std::numeric_limits<float>::max() / unit;
            const std::byte* in = this->codes(row, k);
            std::size_t done = 0;
            while (done + 32 <= n) {
                const std::size_t number = (k + done) / shared, some = std::min(n - done, (number + 1) * shared - k - done) / 32 * 32;
                float own = 0, own_zero = 0;
                const float* zero = nullptr;
                const float factor = *factors(row, number, 1, &own, &own_zero, zero);
                if (some == 0 || !((factor < 0 ? -factor : factor) <= most)) return done;
                const kernels::vf<Arch> by(factor * unit);
                values.template with_form<Known.width>([&](const auto& each) QK_INLINE_CALL {
                    for (const std::size_t end = done + some; done < end; done += 32, in += 4 * this->width)
                        each(in, [&](std::size_t i, kernels::vf<Arch> v) QK_INLINE_CALL { kernels::store<Arch>(to + done + i, v * by); });
                });
            }
            return done;
        } else {
            return 0;
        }
    }

    /// Decodes elements that begin within a byte, or whose scales run along another axis.
    QK_APART void one_by_one(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept {
        if constexpr (!in_blocks) {
            const packed_weights& m = this->matrix;
            const codec_parameters& p = m.parameters;
            const along_axis a = walk_of(p, m.rows * m.columns);
            for (std::size_t i = 0; i < n; ++i) {
                const std::size_t at = row * m.columns + k + i;
                affine own = p.one;
                if (!p.one_scale()) {
                    const std::size_t entry = p.index(a, at / (a.inner * a.length), at / a.inner % a.length, at % a.inner);
                    own = {p.scale[entry], p.zero_point.empty() ? 0 : p.zero_point[entry]};
                }
                const std::uint32_t code = get_code(m.planes.elements, at, this->width);
                if constexpr (has_zero_points<Format>) {
                    to[i] = static_cast<float>(value_of(format_, code) - own.zero_point) * own.scale;
                } else {
                    elements_of<Arch>(format_, &code, to + i, 1);
                    if constexpr (is_float<Format>) {
                        if (format_ == fp32) continue;  // the identity, whatever the scale
                    }
                    to[i] *= own.scale;
                }
            }
        }
    }

    /// Fetches the n scales that the rows after the next ones have at this place.
    template <class Scale>
    QK_INLINE void fetch_later(const Scale* scale, std::size_t n) const noexcept {
        for (std::size_t i = 0; i < n; i += 64 / sizeof(Scale)) fetch(scale + rows_at_once * this->runs + i);
    }

    static bool has_halves([[maybe_unused]] const Format& f) noexcept {
        if constexpr (is_float<Format> && has_half_values<Arch>()) {
            return f != no_format && half_form_of(f) != half_form::none && floating_values<Arch>(f).usable && decodes_fast<Arch>(bits(f));
        } else {
            return false;
        }
    }

    const Format format_;
    const bool halves_ = has_halves(format_);  ///< half_values has it
    const float tensor_;
    const packing packed_;
    struct no_table {
        explicit no_table(const Format&) noexcept {}
    };
    struct scale_table {
        floating_values<Arch> scale;
        float factor[256];
        explicit scale_table(const auto& f) noexcept : scale(f.scale) {}
    };
    /// Factors by code, where a code takes more steps than a look-up.
    std::conditional_t<under_floating_scales<Format>, scale_table, no_table> table_{format_};
};

}  // namespace QK_ISA
}  // namespace detail
}  // namespace qk
