// SPDX-License-Identifier: Apache-2.0
// Accumulators of devices in this program's plans. Includes one door of the installed package.
#include <qk/graph/hardware.hpp>

void with_accumulators() { qk::hardware::enter(); }
