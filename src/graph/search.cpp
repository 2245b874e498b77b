// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/search/cache-inl.hpp"
#include "qk/graph/search/latency-inl.hpp"
#include "qk/graph/search/metric-inl.hpp"
#include "qk/graph/search/mixture-inl.hpp"
#include "qk/graph/search/run-inl.hpp"
#include "qk/graph/search/scorer-inl.hpp"
#include "qk/graph/search/search-inl.hpp"
#include "qk/graph/search/strategies-inl.hpp"
