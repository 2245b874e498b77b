// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/compensate-inl.hpp"
