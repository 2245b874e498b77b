// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/search/metric-inl.hpp"
#include "qk/graph/search/run-inl.hpp"
#include "qk/graph/search/strategies-inl.hpp"
