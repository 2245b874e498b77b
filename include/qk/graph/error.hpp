// SPDX-License-Identifier: Apache-2.0
// The exception that every call of the graph module throws: one sentence that names the file, node, tensor or option.
#pragma once

#include "qk/graph/base/error.hpp"
