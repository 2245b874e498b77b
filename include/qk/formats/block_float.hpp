// SPDX-License-Identifier: Apache-2.0
// The format of block float: what is known of it, without its kernels, which lie beside it.
#pragma once

#include "qk/formats/block_float/format.hpp"
