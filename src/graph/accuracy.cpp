// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/accuracy-inl.hpp"
