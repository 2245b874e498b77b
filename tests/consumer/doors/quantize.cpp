// SPDX-License-Identifier: Apache-2.0
// A plan made from requests and calibration. Includes one door of the installed package.
#include <qk/graph/quantize.hpp>

qk::graph::precision_plan plan_of(const qk::graph::model& m, const qk::graph::precision_requests& requests,
                                  const qk::graph::calibration& seen) {
    return qk::graph::quantize(m, requests, seen).plan;
}
