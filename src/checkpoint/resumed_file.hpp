// SPDX-License-Identifier: Apache-2.0
// An output that a later run can take up: its part stays when the process is killed, and becomes the output when it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "disk/output_file.hpp"

namespace qk::checkpoint {

/// The part is .NAME.qk-HASH.part in the target's folder. HASH is made of the target's name, the inputs' places, sizes and dates and of
/// `what` is done with them, so that another run does not take it up. An exception removes it; the end of the process does not. Two
/// processes do not write one part: it is locked.
class resumed_file {
  public:
    resumed_file(const std::filesystem::path& target, const std::vector<std::filesystem::path>& inputs, const std::string& what);

    std::uint64_t size() const { return size_; }  ///< of what an earlier run left, then of everything
    bool read_at(std::uint64_t offset, char* to, std::size_t n) const { return file_.read_at(offset, to, n); }
    void cut(std::uint64_t size);  ///< gives up what follows
    void append(std::string_view bytes);
    void write_at(std::uint64_t offset, std::string_view bytes);
    void flush();  ///< nothing is left that would need room on the disk

  private:
    friend void put_all(const std::vector<std::unique_ptr<resumed_file>>& files, const std::function<void()>& others);

    disk::output_file file_;
    std::uint64_t size_ = 0;
    std::string buffer_;
};

/// Puts all files on the disk, then makes them their targets, then calls `others` where there is one. Whatever fails, everything is as it
/// was, and the error says what could not be taken back.
void put_all(const std::vector<std::unique_ptr<resumed_file>>& files, const std::function<void()>& others = {});

}  // namespace qk::checkpoint
