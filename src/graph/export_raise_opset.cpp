// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/export/raise_opset-inl.hpp"
