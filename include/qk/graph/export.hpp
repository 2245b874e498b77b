// SPDX-License-Identifier: Apache-2.0
// Writes a model under a plan as a model that other runtimes run.
#pragma once

#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/export/export.hpp"
