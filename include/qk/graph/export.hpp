// SPDX-License-Identifier: Apache-2.0
// A model and a plan become a model that other runtimes run.
#pragma once

#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/export/export.hpp"
