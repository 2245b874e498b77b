// SPDX-License-Identifier: Apache-2.0
// Recovers the plan of a model that is already quantized, and its float model.
#pragma once

#include "qk/graph/recover/already_quantized.hpp"
#include "qk/graph/recover/recover.hpp"
