// SPDX-License-Identifier: Apache-2.0
// Microscaling formats, and those under floating scales.
#pragma once

#include "qk/formats/format.hpp"
