// SPDX-License-Identifier: Apache-2.0
// Files that qk reads and writes: .npy and .npz, outputs that are written whole or not at all, names and text that are safe to print.
#pragma once

#include "qk/graph/base/printable.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/output_set.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/files/zip.hpp"
