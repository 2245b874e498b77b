// SPDX-License-Identifier: Apache-2.0
// Keeps the measurements of a search on disk, so that a search continues where it stopped, whatever stopped it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "graph/base/content_hash.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// A file with one JSON object per line: {"key": HASH, "choice": "0120...", "metric": "0x1.8p-3", "error": "0x..."}. Lines with other keys
/// belong to other searches and stay. Each line is written whole and flushed right after its measurement; a torn last line is ignored.
class search_cache {
  public:
    /// An empty `file` means no cache. Throws if the file exists and is no cache of ours, or cannot be written. Of several processes the
    /// first reads and writes, and the others receive what it read.
    search_cache(std::filesystem::path file, std::string key, const ranks& together = {});

    std::optional<score> find(const assignment& a) const;
    void add(const assignment& a, const score& s);
    std::size_t size() const { return known_.size(); }

    /// Returns a function that calls `measure` only for assignments that the cache lacks.
    search_run::evaluate_function around(search_run::evaluate_function measure);

  private:
    void read();
    std::string line_of(const assignment& a, const score& s) const;
    bool add_line(const std::string& line);  ///< false: not a line of a cache
    std::filesystem::path file_;
    std::string key_;
    std::map<assignment, score> known_;
};

}  // namespace qk::graph
