// SPDX-License-Identifier: Apache-2.0
// ONNX models in memory: load, check, fold, edit, save.
#pragma once

#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/model/model.hpp"
