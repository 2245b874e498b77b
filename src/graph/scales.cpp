// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/scales-inl.hpp"
