// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/zip-inl.hpp"
