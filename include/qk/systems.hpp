// SPDX-License-Identifier: Apache-2.0
// Other people's quantizers by name. A rule is everything that one system does between a float32 matrix and the numbers that its own reader
// gives back: choice of the scales, rounding, ties, saturation, zeros, NaN, and the order of the float operations. SYSTEM.FORMAT names it:
// "ggml.q4_K", "transformer_engine.nvfp4_4over6_mse". docs/reference/systems.md puts the rules side by side.
//
//   const auto* rule = qk::systems::find("mlx.mxfp4");
//   const auto made = rule->convert({.values = x, .rows = 8, .columns = 256});
//   made.values, made.plane("codes")->bytes, made.plane("scales")->shape
//
// A system's defect is repeated where that system is named, and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qk::systems {

/// What one system makes of a matrix besides the values: its packed codes, scales and so on, in the type and order in which it keeps them.
struct plane {
    enum class type { uint8, int8, int32, uint32, float32 };

    std::string name;  ///< "codes", "scales", "global" (or "scales0", "scales1"), "amax", "block_amax", "global_amax", "zeros"
    type kind = type::uint8;
    std::vector<std::size_t> shape;
    std::vector<std::byte> bytes;  ///< row-major, little endian
};

struct result {
    std::vector<std::size_t> shape;  ///< of the values: rows x columns, but columns x rows where a system transposes
    std::vector<float> values;       ///< what the system's own reader gives back
    std::vector<plane> planes;

    const plane* find(std::string_view name) const {
        for (const plane& p : planes) {
            if (p.name == name) return &p;
        }
        return nullptr;
    }
};

struct input {
    std::span<const float> values;  ///< rows x columns
    std::size_t rows = 0, columns = 0;
    std::span<const float> importance = {};  ///< one weight for each column, or none; only rules that say so take it
};

struct rule {
    std::string_view system, format;
    std::string_view keeps;   ///< names of its planes: "codes scales global"
    std::string_view how;     ///< the rule in a line
    std::string_view source;  ///< package and version that it is proven on
    bool takes_importance;
    std::size_t multiple;  ///< columns come in multiples of it
    /// Throws std::invalid_argument where the system refuses the input: columns that its blocks do not divide, an importance of another
    /// length.
    result (*run)(const rule&, const input&);

    result convert(const input& x) const;
    std::string name() const { return std::string(system) + "." + std::string(format); }
};

/// Every rule, by system and format.
std::span<const rule> rules();

/// Finds the rule named "SYSTEM.FORMAT"; nullptr if there is none. torchao's scale rules are part of the format ("mxfp4_e2m1.floor");
/// without one, "rceil" is meant.
const rule* find(std::string_view name);

/// Value of a code of UE5M3 (no sign, bias 15, 255 is NaN), the scale of "auto_round.nvfp4_e5m3_g16" and "quark_torch.amdfp4_g16".
float ue5m3_value(std::uint8_t code);

}  // namespace qk::systems
