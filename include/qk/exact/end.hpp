// SPDX-License-Identifier: Apache-2.0
// Ends what begin.hpp began: from here on the file's own flags hold again.
#if defined(__clang__) && !defined(__wasm__)
#pragma float_control(pop)
#endif
