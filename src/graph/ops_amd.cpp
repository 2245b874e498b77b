// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/ops/groups/amd-inl.hpp"
