// SPDX-License-Identifier: Apache-2.0
// The catalogue of devices. A name is VENDOR.ARCHITECTURE.INSTRUCTION.SHAPE.D.A.B[.C][.SCALE] (NVIDIA) or holds AMD's own name, or
// ARCHITECTURE.EXTENSION.INSTRUCTION (x86, Arm, RISC-V, Tenstorrent); in C++ '_' stands for '.'. Without its shape it means the largest k:
// nvidia.hopper.wgmma.f32.e4m3.e4m3.
#pragma once

#include <iterator>
#include <span>

#include "qk/dot/devices/amd_cdna1.hpp"
#include "qk/dot/devices/amd_cdna2.hpp"
#include "qk/dot/devices/amd_cdna3.hpp"
#include "qk/dot/devices/arm.hpp"
#include "qk/dot/devices/generic.hpp"
#include "qk/dot/devices/integer_units.hpp"
#include "qk/dot/devices/nvidia_ada_lovelace.hpp"
#include "qk/dot/devices/nvidia_ampere.hpp"
#include "qk/dot/devices/nvidia_blackwell.hpp"
#include "qk/dot/devices/nvidia_hopper.hpp"
#include "qk/dot/devices/nvidia_rtx_blackwell.hpp"
#include "qk/dot/devices/nvidia_turing.hpp"
#include "qk/dot/devices/nvidia_volta.hpp"
#include "qk/dot/devices/tenstorrent.hpp"
#include "qk/isa.hpp"

namespace qk {

using device_name = fixed_text<127>;

inline namespace QK_ISA {

/// Returns the name without its shape: without ".m16n8k16", or AMD's "16x16x4_4b_".
constexpr device_name without_shape(std::string_view name);

/// Returns the device of that name, or of that name without a shape (then the one with the largest k), or null.
constexpr const device* find_device(std::string_view name);

/// Returns "unknown device 'x'; did you mean y, z or ...?"
constexpr message unknown_device(std::string_view name);

}  // namespace QK_ISA

namespace devices {

/// Every device, a family after the other, as spans of pointers.
inline constexpr std::span<const device* const> families[] = {
    nvidia_volta, nvidia_turing, nvidia_ampere, nvidia_ada_lovelace, nvidia_hopper, nvidia_blackwell, nvidia_rtx_blackwell, amd_cdna1,
    amd_cdna2,    amd_cdna3,     generic,       arm_and_riscv,       integer_units, tenstorrent,
};

inline namespace QK_ISA {

/// Calls visit(device) for each device.
template <class Visit>
constexpr void each(Visit visit) {
    for (const auto& family : families) {
        for (const device* d : family) visit(*d);
    }
}

}  // namespace QK_ISA

}  // namespace devices

namespace detail {
inline namespace QK_ISA {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Returns the end of a shape like "m#n#k#" or "#x#x#" (# for digits) that starts at `at`, or `at` if there is none.
constexpr std::size_t end_of_shape(std::string_view s, std::size_t at, std::string_view before, std::string_view between) {
    std::size_t i = at;
    for (std::size_t part = 0; part < 3; ++part) {
        const std::string_view mark = part == 0 ? before : between.substr(part - 1, 1);
        if (s.substr(i, mark.size()) != mark) return at;
        i += mark.size();
        const std::size_t digits = i;
        while (i < s.size() && is_digit(s[i])) ++i;
        if (i == digits) return at;
    }
    return i;
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

constexpr device_name without_shape(std::string_view name) {
    for (std::size_t i = 0; i < name.size(); ++i) {
        if (const std::size_t end = detail::end_of_shape(name, i, ".m", "nk"); end != i)
            return device_name(name.substr(0, i)).append(name.substr(end));
        std::size_t end = detail::end_of_shape(name, i, "", "xx");
        if (end == i) continue;
        std::size_t blocks = end;  // "_4b"
        if (blocks < name.size() && name[blocks] == '_') {
            ++blocks;
            const std::size_t digits = blocks;
            while (blocks < name.size() && detail::is_digit(name[blocks])) ++blocks;
            if (blocks > digits && blocks < name.size() && name[blocks] == 'b' && (blocks + 1 == name.size() || name[blocks + 1] == '_'))
                end = blocks + 1;
        }
        if (end < name.size() && name[end] == '_') ++end;
        return device_name(name.substr(0, i)).append(name.substr(end));
    }
    return device_name(name);
}

constexpr const device* find_device(std::string_view name) {
    const device* best = nullptr;
    const device* exact = nullptr;
    devices::each([&](const device& d) {
        if (d.name == name) exact = &d;
        if ((best == nullptr || d.k > best->k) && without_shape(d.name) == name) best = &d;
    });
    return exact != nullptr ? exact : best;
}

constexpr message unknown_device(std::string_view name) {
    constexpr std::size_t none = std::size_t(-1);
    struct near {
        const device* d = nullptr;
        std::size_t distance = none;
    };
    std::array<near, 3> best{};
    const auto place = [&](near n) {
        for (near& b : best) {
            if (b.d != nullptr && n.d != nullptr && without_shape(b.d->name) == without_shape(n.d->name).view() && b.distance <= n.distance)
                return;
            if (n.distance < b.distance) std::swap(n, b);
        }
    };
    const bool shaped = without_shape(name) != name;
    devices::each([&](const device& d) {
        const device_name own = shaped ? device_name(d.name) : without_shape(d.name);
        const std::size_t part = distance_from_part(own, name);  // a word may be a part of names; of these the shortest comes first
        if (part <= std::max<std::size_t>(1, name.size() / 3)) place({&d, 128 * part + edit_distance(own, name)});
    });
    message m("unknown device '");
    m.append(name.substr(0, 80)).append("'");
    for (std::size_t i = 0; i < best.size() && best[i].d != nullptr; ++i) {
        m.append(i == 0 ? "; did you mean " : i + 1 == best.size() || best[i + 1].d == nullptr ? " or " : ", ");
        m.append(shaped ? best[i].d->name : without_shape(best[i].d->name).view());
    }
    m.append(best[0].d != nullptr ? "?" : ";");
    return m.append(" `qk formats --devices` lists the names");
}

}  // namespace QK_ISA

}  // namespace qk
