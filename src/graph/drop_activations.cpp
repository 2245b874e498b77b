// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/drop_activations-inl.hpp"
