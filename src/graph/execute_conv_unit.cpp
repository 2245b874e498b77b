// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/execute/conv_unit-inl.hpp"
