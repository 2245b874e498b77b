// SPDX-License-Identifier: Apache-2.0
// What vectors and masks are called, whoever makes them: registers.hpp or scalar.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/isa.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// A vector of lanes of type T, and one truth value for each lane.
template <class T, class Arch>
struct batch;
template <class Arch>
struct mask;

template <class Arch>
using vf = batch<float, Arch>;
template <class Arch>
using vi = batch<std::int32_t, Arch>;
template <class Arch>
using vu = batch<std::uint32_t, Arch>;

}  // namespace QK_ISA
}  // namespace qk::kernels
