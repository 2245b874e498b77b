// SPDX-License-Identifier: Apache-2.0
// A release build that checks what callers promise: this call breaks a promise, and must end with the sentence.
#define NDEBUG
#define QK_CHECK
#include <qk/fake_quantize.hpp>

#include "same.hpp"

int main() {
    std::vector<float> x(64, 1.0f), y(63);
    qk::fake_quantize<qk::int8>(x, y);
}
