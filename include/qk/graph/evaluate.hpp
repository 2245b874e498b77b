// SPDX-License-Identifier: Apache-2.0
// Runs a model, in float32 or under a precision plan.
#pragma once

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/preprocess.hpp"
#include "qk/graph/evaluate/session.hpp"
