// SPDX-License-Identifier: Apache-2.0
// A quantized model turned into a float model and a plan. Includes one door of the installed package.
#include <qk/graph/recover.hpp>

qk::graph::precision_plan plan_in(const char* file) { return qk::graph::recover_plan(qk::graph::model::load(file)).plan; }
