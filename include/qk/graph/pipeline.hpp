// SPDX-License-Identifier: Apache-2.0
// The commands quantize, evaluate, diff, gradient, sensitivity and search as one call each.
#pragma once

#include "qk/graph/pipeline/diff.hpp"
#include "qk/graph/pipeline/evaluate.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/gradient.hpp"
#include "qk/graph/pipeline/quantize.hpp"
#include "qk/graph/pipeline/search.hpp"
#include "qk/graph/pipeline/sensitivity.hpp"
