// SPDX-License-Identifier: Apache-2.0
// Ranges of activations from one streaming pass over data, and the scales that follow from them.
#pragma once

#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/calibrate/calibration_text.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/calibrate/statistics.hpp"
