// SPDX-License-Identifier: Apache-2.0
// An output that a later run can take up: its part stays when the process is killed, and becomes the output when it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qk::checkpoint {

/// The part is .NAME.qk-HASH.part in the target's folder. HASH is made of the inputs' places, sizes and dates and of `what` is done with
/// them, so that another run does not take it up. An exception removes it; the end of the process does not. Two processes do not write
/// one part: it is locked.
class resumed_file {
  public:
    resumed_file(std::filesystem::path target, const std::vector<std::filesystem::path>& inputs, const std::string& what);
    ~resumed_file();
    resumed_file(const resumed_file&) = delete;
    resumed_file& operator=(const resumed_file&) = delete;

    std::uint64_t size() const { return size_; }  ///< of what an earlier run left, then of everything
    bool read_at(std::uint64_t offset, char* to, std::size_t n) const;
    void cut(std::uint64_t size);  ///< gives up what follows
    void append(std::string_view bytes);
    void write_at(std::uint64_t offset, std::string_view bytes);
    void put();  ///< makes it the target

  private:
    void flush();
    void write_all(std::uint64_t offset, const char* data, std::size_t n);
    [[noreturn]] void fail(int number) const;

    std::filesystem::path target_, place_, part_;
    int file_ = -1;
    bool put_ = false;
    std::uint64_t size_ = 0;
    std::string buffer_;
};

}  // namespace qk::checkpoint
