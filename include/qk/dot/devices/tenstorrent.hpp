// SPDX-License-Identifier: Apache-2.0
// Tenstorrent's fma. tests/tenstorrent_fma.sh holds it against the maker's model.
#pragma once

#include "qk/dot/devices/device.hpp"
#include "qk/isa.hpp"

namespace qk::devices {

inline constexpr std::string_view tt_fma = "tenstorrent/tt-isa-documentation, Miscellaneous/FMA, fma_model_bh; tests/tenstorrent_fma.sh";

/// The product keeps three bits more than float32 and a sticky one, its exponent eight bits, and it meets C in a register of that width.
inline constexpr accumulator partly_fused{.sum = summation::aligned,
                                          .groups = 1,
                                          .align = 26,
                                          .cut = rounding::to_odd,
                                          .lost_is_zero = true,
                                          .flush_inputs = input_flush::kept_sign,
                                          .flush_partials = true,
                                          .product_range = true};

inline constexpr device tenstorrent_blackhole_sfpmad{"tenstorrent.blackhole.sfpmad", fp32, fp32, partly_fused, 1, 32, 1, tt_fma};

inline constexpr const device* tenstorrent[] = {&tenstorrent_blackhole_sfpmad};

}  // namespace qk::devices
