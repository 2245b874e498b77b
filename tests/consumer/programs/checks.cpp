// SPDX-License-Identifier: Apache-2.0
// A release build that checks what callers promise: this call breaks a promise, and must abort with the sentence.
#undef NDEBUG
#define NDEBUG
#define QK_CHECK
#include <csignal>
#include <cstdlib>
#include <qk/fake_quantize.hpp>

#include "same.hpp"

int main() {
    std::signal(SIGABRT, [](int) { std::_Exit(0); });
    std::vector<float> x(64, 1.0f), y(63);
    qk::fake_quantize<qk::int8>(x, y);
    return 1;
}
