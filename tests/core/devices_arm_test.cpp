// SPDX-License-Identifier: Apache-2.0
// Compares Arm's dot product instructions with qk's devices for them. tests/arm_devices.sh compiles it for aarch64 and runs it under qemu.
#include <arm_neon.h>

#include <cstdio>
#include <cstring>
#include <span>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "test_inputs.hpp"

using namespace qk;

namespace {

generator g{1};
/// Returns two bfloat16 numbers of one kind: any bits, of few magnitudes, subnormal, huge, special.
std::uint32_t any_pair(int kind) {
    const std::uint32_t w = g.word();
    switch (kind % 6) {
        case 0: return w;
        case 1: return (w & 0x807f807fu) | 0x3f803f80u;
        case 2: return (w & 0x807f807fu) | (w & 0x01000100u);
        case 3: return (w & 0x807f807fu) | 0x5f005f80u;
        case 4: return (w & 0x80ff80ffu) | 0x20003f00u;
        default: return (w & 0x80008000u) | 0x7f803f80u;
    }
}
bool is_nan(std::uint32_t v) { return (v & 0x7fffffffu) > 0x7f800000u; }

int failed = 0;
template <class Instruction>
void hold(const device& d, bool floats, Instruction instruction) {
    const auto k = static_cast<std::size_t>(d.k), m = static_cast<std::size_t>(d.m), n = static_cast<std::size_t>(d.n);
    const std::size_t row = floats ? 2 * k : k;  // bytes
    int wrong = 0;
    const int cases = 40000;
    for (int t = 0; t < cases; ++t) {
        std::uint32_t a[4], b[4], c[4], given[4];
        for (int i = 0; i < 4; ++i) {
            a[i] = floats ? any_pair(t / 6 + i % 2) : g.word(), b[i] = floats ? any_pair(t % 36 / 6 + i % 3) : g.word();
            if (!floats && t % 5 == 0) a[i] = 0x80808080u, b[i] = t % 2 == 0 ? 0x80808080u : 0xffffffffu;
            c[i] = t % 7 == 0 ? 0x7fffffffu - g.word() % 70000 : floats && t % 3 == 0 ? any_pair(t) << 16 : g.word();
        }
        std::memcpy(given, c, sizeof c);
        instruction(a, b, given);
        for (std::size_t i = 0; i < 4; ++i) {
            // A matrix instruction has two rows of a, and two columns of b, which stand as rows; the others four lanes.
            const std::size_t of_a = m == 1 ? i * row : i / n * row, of_b = m == 1 ? i * row : i % n * row;
            const auto bytes = [&](const std::uint32_t* from, std::size_t at) {
                return std::span(reinterpret_cast<const std::byte*>(from) + at, row);
            };
            const auto start = floats ? std::uint64_t{c[i]} : static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(c[i])});
            const auto right = static_cast<std::uint32_t>(dot(d.a, d.b, d.accumulator, {bytes(a, of_a), k}, {bytes(b, of_b), k}, start));
            if (right == given[i] || (floats && is_nan(right) && is_nan(given[i]))) continue;
            if (++wrong <= 3)
                std::printf("%s: a %08x b %08x c %08x gives %08x, qk says %08x\n", d.name.data(), a[i], b[i], c[i], given[i], right);
        }
    }
    std::printf("%s: %d results, %d differ\n", d.name.data(), 4 * cases, wrong);
    failed += wrong != 0;
}

int8x16_t s8(const std::uint32_t* w) { return vreinterpretq_s8_u32(vld1q_u32(w)); }
uint8x16_t u8(const std::uint32_t* w) { return vreinterpretq_u8_u32(vld1q_u32(w)); }
int32x4_t s32(const std::uint32_t* w) { return vreinterpretq_s32_u32(vld1q_u32(w)); }
void put(std::uint32_t* to, int32x4_t v) { vst1q_u32(to, vreinterpretq_u32_s32(v)); }
bfloat16x8_t bf(const std::uint32_t* w) { return vreinterpretq_bf16_u32(vld1q_u32(w)); }
float32x4_t f32(const std::uint32_t* w) { return vreinterpretq_f32_u32(vld1q_u32(w)); }

}  // namespace

int main() {
    using words = const std::uint32_t*;
    hold(devices::arm_dotprod_sdot, false, [](words a, words b, std::uint32_t* c) { put(c, vdotq_s32(s32(c), s8(a), s8(b))); });
    hold(devices::arm_dotprod_udot, false, [](words a, words b, std::uint32_t* c) { vst1q_u32(c, vdotq_u32(vld1q_u32(c), u8(a), u8(b))); });
    hold(devices::arm_i8mm_usdot, false, [](words a, words b, std::uint32_t* c) { put(c, vusdotq_s32(s32(c), u8(a), s8(b))); });
    hold(devices::arm_i8mm_sudot, false, [](words a, words b, std::uint32_t* c) {  // its b is one lane of another register
        const std::uint32_t start[4] = {c[0], c[1], c[2], c[3]};
        std::uint32_t r[4];
        put(r, vsudotq_laneq_s32(s32(start), s8(a), u8(b), 0)), c[0] = r[0];
        put(r, vsudotq_laneq_s32(s32(start), s8(a), u8(b), 1)), c[1] = r[1];
        put(r, vsudotq_laneq_s32(s32(start), s8(a), u8(b), 2)), c[2] = r[2];
        put(r, vsudotq_laneq_s32(s32(start), s8(a), u8(b), 3)), c[3] = r[3];
    });
    hold(devices::arm_i8mm_smmla, false, [](words a, words b, std::uint32_t* c) { put(c, vmmlaq_s32(s32(c), s8(a), s8(b))); });
    hold(devices::arm_i8mm_ummla, false, [](words a, words b, std::uint32_t* c) { vst1q_u32(c, vmmlaq_u32(vld1q_u32(c), u8(a), u8(b))); });
    hold(devices::arm_i8mm_usmmla, false, [](words a, words b, std::uint32_t* c) { put(c, vusmmlaq_s32(s32(c), u8(a), s8(b))); });
    hold(devices::arm_bf16_bfdot, true,
         [](words a, words b, std::uint32_t* c) { vst1q_u32(c, vreinterpretq_u32_f32(vbfdotq_f32(f32(c), bf(a), bf(b)))); });
    hold(devices::arm_bf16_bfmmla, true,
         [](words a, words b, std::uint32_t* c) { vst1q_u32(c, vreinterpretq_u32_f32(vbfmmlaq_f32(f32(c), bf(a), bf(b)))); });
    return failed == 0 ? 0 : 1;
}
