// SPDX-License-Identifier: Apache-2.0
// Definitions of parts.hpp that touch the system: mapping files, reading small ones.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "parts.hpp"

namespace qk::checkpoint {

mapped_file::mapped_file(const std::filesystem::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw error(file.string() + ": " + std::strerror(errno));
    struct stat facts {};
    const auto fail = [&](const std::string& why) {
        ::close(descriptor);
        throw error(file.string() + ": " + why);
    };
    if (::fstat(descriptor, &facts) != 0) fail(std::strerror(errno));
    if (S_ISDIR(facts.st_mode)) fail("is a folder; name its .safetensors, the index of its shards, or a .gguf");
    if (!S_ISREG(facts.st_mode)) fail("is no ordinary file; a checkpoint is mapped, not read through a pipe");
    size_ = static_cast<std::size_t>(facts.st_size);
    if (size_ != 0) {
        void* place = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (place == MAP_FAILED) fail(std::string("cannot be mapped: ") + std::strerror(errno));
        data_ = static_cast<const std::byte*>(place);
    }
    ::close(descriptor);
}

mapped_file::~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);  // munmap lacks the const
}

void mapped_file::release(std::span<const std::byte> part) const noexcept {
    if (data_ == nullptr || part.empty() || part.data() < data_ || part.data() + part.size() > data_ + size_) return;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto first = static_cast<std::size_t>(part.data() - data_) / page * page;
    const auto last = (static_cast<std::size_t>(part.data() - data_) + part.size()) / page * page;
    if (last > first) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

std::string read_text(const std::filesystem::path& file, std::uint64_t most) {
    std::error_code problem;
    const std::uint64_t size = std::filesystem::file_size(file, problem);
    if (problem) throw error(file.string() + ": " + problem.message());
    if (size > most) throw error(file.string() + ": " + std::to_string(size) + " bytes are too many for a config");
    std::ifstream in(file, std::ios::binary);
    std::string text(size, '\0');
    in.read(text.data(), static_cast<std::streamsize>(size));
    if (static_cast<std::uint64_t>(in.gcount()) != size) throw error(file.string() + ": cannot be read");
    return text;
}

std::string text_of(const std::vector<std::uint64_t>& shape) {
    std::string s = "[";
    for (std::size_t k = 0; k < shape.size(); ++k) s += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
    return s + "]";
}

std::string shown(std::string_view name) {
    std::string s;
    for (const char ch : name.substr(0, 200)) {
        const auto u = static_cast<unsigned char>(ch);
        if (u < 0x20 || u == 0x7f) s += '?';
        else s += ch;
    }
    return name.size() > 200 ? s + "..." : s;
}

std::optional<std::uint64_t> product_of(const std::vector<std::uint64_t>& shape) {
    std::uint64_t n = 1;
    for (const std::uint64_t d : shape)
        if (__builtin_mul_overflow(n, d, &n) || n >> 62 != 0) {
            for (const std::uint64_t other : shape)
                if (other == 0) return 0;
            return std::nullopt;
        }
    return n;
}

bool fits(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
    while (n < name.size()) {
        if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') ++p, ++n;
        else if (p < pattern.size() && pattern[p] == '*') star = p++, mark = n;
        else if (star != std::string_view::npos) p = star + 1, n = ++mark;
        else return false;
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

}  // namespace qk::checkpoint
