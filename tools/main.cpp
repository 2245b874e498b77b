// SPDX-License-Identifier: Apache-2.0
// The command `qk`.
#include "verbs.hpp"

int main(int argc, char** argv) { return qk::tool::run_program(argc, argv); }
