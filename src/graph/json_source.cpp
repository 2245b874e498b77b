// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/json_source-inl.hpp"
