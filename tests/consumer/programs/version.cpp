// SPDX-License-Identifier: Apache-2.0
// The version of the headers, for code that must work with several.
#include <qk/qk.hpp>

#if !defined(QK_VERSION_MAJOR) || !defined(QK_VERSION_MINOR) || !defined(QK_VERSION_PATCH)
#error "qk/qk.hpp does not say its version"
#endif
static_assert(QK_VERSION_MAJOR * 10000 + QK_VERSION_MINOR * 100 + QK_VERSION_PATCH == QK_EXPECTED_VERSION);

int main() {}
