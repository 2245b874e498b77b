// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/calibration-inl.hpp"

#include "qk/graph/calibration_json-inl.hpp"
