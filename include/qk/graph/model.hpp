// SPDX-License-Identifier: Apache-2.0
// ONNX models in memory: load, check, fold, edit, save.
#pragma once

#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/ops/tensor_values.hpp"
