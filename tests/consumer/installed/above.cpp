// SPDX-License-Identifier: Apache-2.0
// A program that uses the components above the graph module: an accumulator is refused before the call, and taken after it.
#include <cstdio>
#include <qk/graph/hardware.hpp>
#include <qk/graph/learn.hpp>
#include <qk/graph/pipeline.hpp>

namespace {

/// Returns why this accumulator is refused; nothing where it is taken.
std::string said(const char* accumulator) {
    try {
        qk::graph::parse_accumulator_request(accumulator, "here");
        return "";
    } catch (const qk::graph::error& e) {
        return e.what();
    }
}

}  // namespace

int main() {
    const bool refused = said("sum=exact").find("qk::hardware::enter()") != std::string::npos;
    qk::hardware::enter();
    qk::learn::enter();
    std::puts(said("sum=never").c_str());
    return refused && said("sum=exact").empty() && !said("sum=never").empty() ? 0 : 1;
}
