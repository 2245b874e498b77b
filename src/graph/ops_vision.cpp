// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/ops/groups/vision-inl.hpp"
