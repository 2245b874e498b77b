// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/files/file.hpp"

#include <array>
#include <streambuf>

#include "graph/files/data_file.hpp"

namespace qk::graph {
namespace {

class file_buffer final : public std::streambuf {
  public:
    explicit file_buffer(const std::filesystem::path& file) : file_(file) {}

  private:
    int_type underflow() override {
        const std::size_t n = file_.read_some(offset_, std::as_writable_bytes(std::span(piece_)));
        offset_ += n;
        setg(piece_.data(), piece_.data(), piece_.data() + n);
        return n == 0 ? traits_type::eof() : traits_type::to_int_type(piece_[0]);
    }

    data_file file_;
    std::uint64_t offset_ = 0;
    std::array<char, 1 << 16> piece_;
};

}  // namespace

void cannot_read(const std::filesystem::path& file, const std::string& why) { throw error("cannot read '" + file.string() + "': " + why); }

std::string read_file(const std::filesystem::path& file) { return disk::read_whole(file, cannot_read); }

file_stream::file_stream(const std::filesystem::path& file) : std::istream(nullptr), buffer_(std::make_unique<file_buffer>(file)) {
    rdbuf(buffer_.get());
    exceptions(std::ios::badbit);  // so that an error of the file comes through
}
file_stream::~file_stream() = default;

}  // namespace qk::graph
