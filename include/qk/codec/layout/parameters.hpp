// SPDX-License-Identifier: Apache-2.0
// The old name of qk/memory/values.hpp (and of codec_parameters, now in qk/parameters.hpp); 0.4.0 takes it away.
#pragma once

#include "qk/codec/layout/layout.hpp"
#include "qk/memory/values.hpp"
