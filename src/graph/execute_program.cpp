// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/execute/program-inl.hpp"
#include "qk/graph/execute/run-inl.hpp"
