// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pending_file-inl.hpp"
