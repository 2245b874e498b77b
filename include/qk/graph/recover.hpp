// SPDX-License-Identifier: Apache-2.0
// The plan of a model that is quantized already, and its float model.
#pragma once

#include "qk/graph/recover/recover.hpp"
