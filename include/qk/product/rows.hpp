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
#include "qk/product/floats.hpp"
#include "qk/product/options.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/sums.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

inline constexpr std::size_t all_weights = std::numeric_limits<std::size_t>::max();

struct integer_input;

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
    /// Is true where decode_codes knows the format.
    virtual bool decodes_codes() const noexcept = 0;
    /// Writes the weights of a piece of rows, those of row r from to + r * stride on.
    virtual void decode_codes(const piece_of_rows& p, float* to, std::size_t stride) const noexcept = 0;

    // Whole numbers of formats in which a run's codes lie together with its factors (block_bytes).

    /// Writes the whole numbers of up to 32 weights of a row from column k on, a multiple of 32, the factors of both halves of 32, and what
    /// is added behind the products: nothing, one number for all weights or one for each half. Returns how many those are.
    virtual std::size_t whole_numbers(std::size_t row, std::size_t k, std::size_t n, std::int32_t* number, float* factor,
                                      float* added) const noexcept = 0;
    /// Is true where add_integers knows the format.
    virtual bool integers_in_registers() const noexcept = 0;
    /// Adds the products of whole blocks with x, whose lanes are those of order_blocks.
    virtual void add_integers(const piece_of_rows& p, const integer_input& x) const noexcept = 0;

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
        if constexpr (has_floats) {
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
        if (takes_floats_) return true;
        return with_values([&]<class Values>(const Values&) { return std::size_t{!is_of_floats<Values> && this->width == 8}; }) != 0;
    }
    void add_codes(const piece_of_rows& p) const noexcept override {
        if constexpr (has_zero_points<Format> && has_integer_bytes) {
            if (this->width == 8) return add_integer_bytes<Arch>(p, bytes() == integer_bytes::with_sign);
        }
        if constexpr (has_floats) {
            if (takes_floats_) return add_floats<Arch, Known.width>(*float_of(format_), p);
        }
        with_values([&]<class Values>(const Values& values) {
            if constexpr (!is_of_floats<Values> && (Known.width == any_width || Known.width == 8)) {
                if (this->width == 8) add_width<8>(p, values);
            }
            return std::size_t{1};
        });
    }
    bool decodes_codes() const noexcept override { return takes_floats_ || (has_integer_bytes && bytes() != integer_bytes::none); }
    void decode_codes([[maybe_unused]] const piece_of_rows& p, [[maybe_unused]] float* to,
                      [[maybe_unused]] std::size_t stride) const noexcept override {
        if constexpr (has_zero_points<Format> && has_integer_bytes)
            decode_integer_bytes<Arch>(p, bytes() == integer_bytes::with_sign, to, stride);
        else if constexpr (has_floats) decode_floats<Arch, Known.width>(*float_of(format_), p, to, stride);
    }

    std::size_t whole_numbers(std::size_t, std::size_t, std::size_t, std::int32_t*, float*, float*) const noexcept override { return 0; }
    bool integers_in_registers() const noexcept override { return false; }
    void add_integers(const piece_of_rows&, const integer_input&) const noexcept override {}

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

    template <class Values>
    static constexpr bool is_of_floats = std::same_as<Values, floating_values<Arch>>;

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
            return 0;
        }
    }
    template <int Width, class Values>
    void add_width(const piece_of_rows& p, const Values& values) const noexcept {
        const code_reader<Arch, Width> codes{this->width, this->matrix.planes.elements.data() + this->matrix.planes.elements.size()};
        const auto each = [&](const std::byte* in, const auto& put) QK_INLINE_CALL {
            codes.template each_vector<32>(in, [&](std::size_t k, kernels::vi<Arch> code) QK_INLINE_CALL { put(k, values(code)); });
        };
        add_decoded<Arch, has_zero_points<Format>, false, !has_integer_bytes>(p, each, Width * 4);
    }
    /// Calls call(column, number) for pieces of a row.
    template <class Call>
    static void in_tiles(std::size_t k, std::size_t n, const Call& call) {
        for (std::size_t at = k; at < k + n; at += tile) call(at, std::min(tile, k + n - at));
    }

    /// Decodes groups of 32 floats from column k on, where floats.hpp has the codes. Returns how many weights those were.
    QK_APART std::size_t decode_groups(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept {
        const std::size_t shared = this->run, bits_before = (row * this->matrix.columns + k) * static_cast<std::size_t>(this->width);
        const bool one = shared == all_weights;
        if (!takes_floats_ || bits_before % 8 != 0 ||
            !(one || (shared == 16 && k % 16 == 0) || (shared % 32 == 0 && shared != 0 && k % 32 == 0)))
            return 0;
        constexpr std::size_t most = 512;
        alignas(64) float of_runs[most / 16], of_groups[most / 32];
        std::size_t done = 0;
        for (std::size_t some = 0; done + 32 <= n; done += some) {
            some = std::min(most, n - done) / 32 * 32;
            const std::size_t at = k + done, first = one ? 0 : at / shared, number = one ? 1 : (at + some - 1) / shared - first + 1;
            const float* zero = nullptr;
            const float* factor = factors(row, first, number, of_runs, nullptr, zero);
            if (!one && shared > 32) {
                for (std::size_t g = 0; g < some / 32; ++g) of_groups[g] = factor[(at + 32 * g) / shared - first];
                factor = of_groups;
            }
            packed_piece piece[rows_at_once];
            for (packed_piece& p : piece) p = {this->codes(row, at), factor, nullptr, nullptr};
            const std::size_t each = shared == 16 ? 2 : 1;
            decode_floats<Arch, Known.width>(
                *float_of(format_), {piece, 1, some / 32, each, one ? 0 : each, false, 1, nullptr, 0, nullptr, 0, 0}, to + done, 0);
        }
        return done;
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

    static constexpr bool has_floats = Known.width != 4 && (is_float<Format> || (has_elements<Format> && !has_sub_blocks<Format>));
    /// Returns the floating format of the codes, or null where they are none.
    static const floating* float_of(const Format& f) noexcept {
        if constexpr (is_float<Format>) return &f;
        else if constexpr (!has_floats) return nullptr;
        else if constexpr (requires { has_integer_elements(f); }) return has_integer_elements(f) ? nullptr : &f.element;
        else return &f.element;
    }
    static bool takes_floats_of(const Format& f) noexcept {
        const floating* const own = float_of(f);
        return own != nullptr && takes_floats<Arch>(*own, is_float<Format>);
    }

    const Format format_;
    const bool takes_floats_ = takes_floats_of(format_);  ///< floats.hpp has the codes
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
