// SPDX-License-Identifier: Apache-2.0
// Definitions of resumed_file.hpp.
#include "resumed_file.hpp"

#include <sys/stat.h>

#include <cstdio>
#include <exception>

#include "qk/checkpoint.hpp"

namespace qk::checkpoint {
namespace {

constexpr std::size_t buffered = std::size_t{1} << 20;

/// FNV-1a, 64 bits: names a part, protects nothing.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3u;
    return h;
}

std::string identity_of(const std::filesystem::path& target, const std::vector<std::filesystem::path>& inputs, const std::string& what) {
    std::string all = target.filename().string() + "\n" + what;
    for (const std::filesystem::path& p : inputs) {
        struct stat facts {};
        ::stat(p.c_str(), &facts);
        all += "\n" + std::filesystem::absolute(p).string() + " " + std::to_string(facts.st_size) + " " +
               std::to_string(facts.st_mtim.tv_sec) + "." + std::to_string(facts.st_mtim.tv_nsec);
    }
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash_of(all)));
    return text;
}

void cannot_write(const std::filesystem::path& file, const std::string& why) { throw error(file.string() + ": cannot be written: " + why); }

}  // namespace

resumed_file::resumed_file(const std::filesystem::path& target, const std::vector<std::filesystem::path>& inputs, const std::string& what)
    : file_(target, identity_of(target, inputs, what), cannot_write), size_(file_.bytes()) {}

void resumed_file::cut(std::uint64_t size) {
    buffer_.clear();
    file_.cut(size);
    size_ = size;
}
void resumed_file::flush() {
    file_.write_at(size_ - buffer_.size(), buffer_);
    buffer_.clear();
}
void resumed_file::append(std::string_view bytes) {
    if (buffer_.size() + bytes.size() > buffered) flush();
    size_ += bytes.size();
    if (bytes.size() > buffered) return file_.write_at(size_ - bytes.size(), bytes);
    buffer_ += bytes;
}
void resumed_file::write_at(std::uint64_t offset, std::string_view bytes) {
    flush();
    file_.write_at(offset, bytes);
}

void put_all(const std::vector<std::unique_ptr<resumed_file>>& files, const std::function<void()>& others) {
    for (const auto& f : files) f->flush();
    for (const auto& f : files) f->file_.sync();
    try {
        for (const auto& f : files) f->file_.put();
        if (others) others();
    } catch (const std::exception& e) {
        std::string left;
        for (auto f = files.rbegin(); f != files.rend(); ++f)
            if (!(*f)->file_.take_back()) left += (left.empty() ? "" : ", ") + (*f)->file_.target().string();
        if (left.empty()) throw;
        throw error(std::string(e.what()) + "; this is written already and cannot be taken back: " + left);
    }
    for (const auto& f : files) f->file_.sync_folder();
}

}  // namespace qk::checkpoint
