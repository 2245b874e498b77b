// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

const qk::dispatch::kernel_table& qk::dispatch::kernels_neon() noexcept { return entry<kernels::native>::table; }
