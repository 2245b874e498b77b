// SPDX-License-Identifier: Apache-2.0
// Handles '-' as the name of a file: standard input for a file that a verb reads, standard output for one that it writes.
#pragma once

#include <filesystem>
#include <string>

#include "option_table.hpp"

namespace qk::tool {

/// While this object lives, each '-' among the verb's files is a temporary file: standard input is copied into one before the verb runs,
/// and what the verb wrote is copied to standard output after it, whole. Standard input has a bound, since it may have no end. So verbs
/// read and write files as usual, and a verb that fails writes nothing. If the verb writes to '-', what it prints for people goes to
/// standard error.
class standard_streams {
  public:
    standard_streams() = default;
    ~standard_streams();
    standard_streams(const standard_streams&) = delete;
    standard_streams& operator=(const standard_streams&) = delete;

    /// Replaces '-' among the verb's values by files. Throws qk::graph::error if '-' stands for two inputs or two outputs, if --json needs
    /// standard output, too, or if several processes run together.
    void replace(const option_table& verb);
    /// Copies to standard output what was written for it. Throws qk::graph::error if that fails.
    void commit();
    /// Is true for the file that is standard output to the verb.
    bool is_output(const std::string& file) const { return !out_.empty() && out_ == file; }

    /// Returns `sentence` with the names of the temporary files replaced by "standard input" and "standard output".
    static std::string in_words(std::string sentence);

    /// Puts /dev/null where standard input, output or error is closed, so that no file that is opened gets its number, and with it what is
    /// printed. Returns whether standard output was closed.
    static bool fill_closed();

  private:
    std::filesystem::path in_, out_;
    int real_output_ = -1;  ///< standard output's own descriptor while standard error takes its place
};

}  // namespace qk::tool
