// SPDX-License-Identifier: Apache-2.0
// Completion scripts for shells, made from the option tables.
#pragma once

#include <string>

#include "command.hpp"

namespace qk::tool {

std::string bash_completion(const command& app);
std::string zsh_completion(const command& app);
std::string fish_completion(const command& app);

}  // namespace qk::tool
