// SPDX-License-Identifier: Apache-2.0
// '-' as the name of a file: standard input for what a verb reads, standard output for what it writes.
#pragma once

#include <filesystem>
#include <string>

#include "option_table.hpp"

namespace qk::tool {

/// While it lives, each '-' among the verb's files is a file of its own: standard input is read into one before the work, the other goes to
/// standard output after it, whole. So verbs read and write files as ever, and a failed one writes nothing. What the verb prints for people
/// goes to standard error then.
class standard_streams {
  public:
    standard_streams() = default;
    ~standard_streams();
    standard_streams(const standard_streams&) = delete;
    standard_streams& operator=(const standard_streams&) = delete;

    /// Puts files in the place of '-' among the verb's values. Throws qk::graph::error if '-' stands for two inputs or two outputs, or if
    /// --json needs standard output, too.
    void replace(const option_table& verb);
    /// Standard output gets what was written for it. Throws qk::graph::error if it does not take it.
    void commit();

    /// `sentence` with "standard input" and "standard output" for the names of the files that stand for them.
    static std::string in_words(std::string sentence);

  private:
    std::filesystem::path in_, out_;
    int real_output_ = -1;  ///< standard output's own descriptor while standard error takes its place
};

}  // namespace qk::tool
