// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/tensor_proto-inl.hpp"
