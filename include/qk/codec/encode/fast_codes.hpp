// SPDX-License-Identifier: Apache-2.0
// Encodes rows of elementwise formats by the coders of their rooms (formats/FAMILY/codes.hpp), a vector at a time. encode_elements' tiles
// do what the fast forms cannot.
#pragma once

#include "qk/codec/layout/compile_time_facts.hpp"
#include "qk/formats/codes.hpp"
#include "qk/formats/codes/byte_codes.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/range_call.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/memory/bits.hpp"
#include "qk/memory/narrow_codes.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Encodes n values from a whole byte of the plane on, four vectors at least. The last four vectors may overlap those before, and must
/// begin at a whole byte, too; under a table of scales they may not. Vectors that the coder cannot encode go to general(begin, count).
template <class Arch, int Known, class Coder>
QK_INLINE void encode_row(const Coder& given, const float* x, std::size_t n, std::byte* out, int width,
                          const kernels::range_call& general) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, count = 4 * w;
    using V = kernels::vi<Arch>;
    const Coder coder = given;
    const code_writer<Arch, Known> writer{width};
    const V limit = kernels::opaque<Arch>(V(coder.limit()));  // in a register
    constexpr bool by_table = requires { coder.table; }
    , places = requires(const kernels::vf<Arch>& x0) { coder.code(x0, n, n); };
    [[maybe_unused]] bool in_bytes = false;
    if constexpr (requires { coder.serves_bytes(); }) in_bytes = coder.serves_bytes();
    const auto beyond = [&](const kernels::vf<Arch>* v) QK_INLINE_CALL {
        V most(INT32_MIN);
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { most = max(most, kernels::tested<Arch>(coder, v[k])); });
        return any(most > limit);
    };
    const std::size_t last = n - count, ahead = kernels::distance_in_row(n);
    for (std::size_t i = 0, next = 0; next < n; next += count, i = std::min(next, last)) {
        kernels::vf<Arch> v[4];
        V codes[4];
        kernels::read_ahead<Arch, 4>(x + i, ahead);
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { v[k] = kernels::load_in_turn<Arch>(x + i + k * w); });
        if constexpr (by_table) coder.prepare(v, i);
        else coder.prepare(v);
        if (__builtin_expect(beyond(v), 0)) {
            bool serves = false;
            if constexpr (by_table) {  // some divisor may have no product
                kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { v[k] = kernels::load<Arch>(x + i + k * w); });
                coder.divide(v, i);
                serves = !beyond(v);
            }
            if (!serves) {
                general(i, count);
                continue;
            }
        }
#if QK_HAS(BYTE_SHUFFLES)
        if constexpr (has_byte_codes<Arch>() && Known <= 8 && requires { coder.serves_bytes(); }) {
            if (in_bytes) {
                if constexpr (places) writer.put_packed(out + writer.bytes(i), coder.bytes(v, i));
                else writer.put_packed(out + writer.bytes(i), coder.bytes(v));
                continue;
            }
        }
#endif
        if constexpr (kernels::converts_halves<Arch>() && may_be_wide(Known, 16) && requires { coder.is_half; }) {
            if (coder.is_half) {
                auto* to = reinterpret_cast<std::uint16_t*>(out + writer.bytes(i));
                kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { kernels::store_halves<Arch>(to + k * w, v[k]); });
                continue;
            }
        }
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            if constexpr (places) codes[k] = coder.code(v[k], i, k);
            else codes[k] = coder.code(v[k]);
        });
        if (writer.waits()) {
            std::uint8_t waiting[count];
            for (std::size_t k = 0; k < 4; ++k) kernels::store_codes<Arch>(waiting + k * w, codes[k]);
            writer.put_waiting(out + writer.bytes(i), waiting, count);
        } else {
            writer.template put<4>(out + writer.bytes(i), codes);
        }
    }
}

/// encode_row with a coder: takes (x, n, out, general).
using row_encoder = kernels::call_with<const float*, std::size_t, std::byte*, const kernels::range_call&>;

/// Encodes any number n of values from any bit of the plane on: makes their codes in a buffer beside it and copies the bits.
template <class Arch>
void encode_beside(const row_encoder& encode, const float* x, std::size_t first, std::size_t n, std::span<std::byte> plane, int width,
                   const kernels::range_call& general) noexcept {
    constexpr std::size_t count = 4 * kernels::lanes<Arch>, most = 8 * count;
    const auto bytes = [&](std::size_t codes) { return codes * static_cast<std::size_t>(width) / 8; };
    for (std::size_t at = 0; at < n; at += most) {
        const std::size_t some = std::min(most, n - at), whole = some - some % count;
        alignas(64) std::byte codes[2 * most];
        alignas(64) float last[count] = {};
        std::uint32_t declined = 0;
        const auto row = [&](const float* v, std::size_t from, std::size_t values) {
            const auto note = [&](std::size_t i, std::size_t) { declined |= 1u << (from + i) / count; };
            encode(v, values, codes + bytes(from), kernels::range_call(note));
        };
        if (whole != 0) row(x + at, 0, whole);
        if (whole < some) {
            std::memcpy(last, x + at + whole, (some - whole) * sizeof(float));
            row(last, whole, count);
        }
        copy_bits<Arch>(plane, (first + at) * static_cast<std::size_t>(width), codes, 0, some * static_cast<std::size_t>(width));
        for (std::size_t i = 0; declined != 0; i += count, declined >>= 1)
            if ((declined & 1u) != 0) general(at + i, std::min(count, some - i));
    }
}

/// Encodes a run that starts at value `first` of the plane; under a table of scales, whole tiles. Returns false where the coder cannot.
template <class Arch, int Known, class Coder>
bool encode_fast(const Coder& coder, const float* x, std::size_t first, std::size_t n, std::span<std::byte> plane, int width,
                 const kernels::range_call& general) noexcept {
    const std::size_t bit = first * static_cast<std::size_t>(width);
    if (!coder.usable() || (width > 8 && width != 16) || !kernels::default_environment<Arch>()) return false;
    if (kernels::lanes<Arch> == 1 && width % 8 != 0) return false;  // four codes need not fill whole bytes
    QK_TRACE("rows", first, n, Coder);
    if constexpr (requires { coder.table; }) {
        if (bit % 8 != 0) return false;
        encode_row<Arch, Known>(coder, x, n, plane.data() + bit / 8, width, general);
        return true;
    }
    constexpr std::size_t count = 4 * kernels::lanes<Arch>;
    const auto row = [&](const float* v, std::size_t values, std::byte* out, const kernels::range_call& declined)
                         QK_APART { encode_row<Arch, Known>(coder, v, values, out, width, declined); };
    const bool overlaps = n >= count && (n - count) * static_cast<std::size_t>(width) % 8 == 0;
    const std::size_t whole = bit % 8 != 0 ? 0 : overlaps ? n : n - n % count;
    if (whole != 0) row(x, whole, plane.data() + bit / 8, general);
    const auto behind = [&](std::size_t i, std::size_t some) { general(whole + i, some); };
    if (whole < n) encode_beside<Arch>(row_encoder(row), x + whole, first + whole, n - whole, plane, width, kernels::range_call(behind));
    return true;
}

}  // namespace QK_ISA
}  // namespace qk::detail
