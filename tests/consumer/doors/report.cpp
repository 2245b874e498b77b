// SPDX-License-Identifier: Apache-2.0
// Text that is safe in a page. Includes one door of the installed package.
#include <qk/graph/report.hpp>

std::string cell(double bytes) { return "<td>" + qk::graph::html_escape(qk::graph::html_bytes(bytes)) + "</td>"; }
