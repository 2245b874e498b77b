// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

const qk::dispatch::kernel_table& qk::dispatch::kernels_avx2() noexcept { return entry<kernels::native>::table; }
