// SPDX-License-Identifier: Apache-2.0
// Writes floats into a .npz while they are decoded: stored entries, zip64 where a size asks for it (PKWARE APPNOTE 6.3, 4.3 and 4.5.3).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lost_numbers.hpp"
#include "parts.hpp"
#include "resumed_file.hpp"

namespace qk::checkpoint {
namespace {

void put_number(std::string& s, std::uint64_t v, int width) {
    for (int i = 0; i < width; ++i) s += static_cast<char>(v >> (8 * i) & 255);
}

std::string npy_header(const std::vector<std::uint64_t>& shape) {
    std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    for (std::size_t k = 0; k < shape.size(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
    text += shape.size() == 1 ? ",), }" : "), }";
    const std::size_t whole = (10 + text.size() + 1 + 63) / 64 * 64;
    text.append(whole - 10 - text.size() - 1, ' ');
    text += '\n';
    std::string head("\x93NUMPY\x01\x00", 8);
    put_number(head, text.size(), 2);
    return head + text;
}

struct entry {
    std::string name, head;
    std::uint64_t size = 0, offset = 0;  ///< of the entry with its head; of its local header
    std::uint32_t crc = 0;
    bool large() const { return size >= 0xffffffffu; }
    std::uint64_t local_bytes() const { return 30 + name.size() + (large() ? 20 : 0); }
    std::uint64_t end() const { return offset + local_bytes() + size; }

    std::string local() const {
        std::string s("PK\x03\x04", 4);
        put_number(s, large() ? 45 : 20, 2), put_number(s, 0x800, 2), put_number(s, 0, 2);  // version, names in UTF-8, stored
        put_number(s, 0, 2), put_number(s, 0x21, 2), put_number(s, crc, 4);                 // 1 January 1980
        put_number(s, large() ? 0xffffffffu : size, 4), put_number(s, large() ? 0xffffffffu : size, 4);
        put_number(s, name.size(), 2), put_number(s, large() ? 20 : 0, 2);
        s += name;
        if (large()) put_number(s, 1, 2), put_number(s, 16, 2), put_number(s, size, 8), put_number(s, size, 8);
        return s;
    }
    std::string central() const {
        std::string extra;
        if (large()) put_number(extra, size, 8), put_number(extra, size, 8);
        if (offset >= 0xffffffffu) put_number(extra, offset, 8);
        std::string s("PK\x01\x02", 4);
        put_number(s, 45, 2), put_number(s, extra.empty() ? 20 : 45, 2), put_number(s, 0x800, 2), put_number(s, 0, 2);
        put_number(s, 0, 2), put_number(s, 0x21, 2), put_number(s, crc, 4);
        put_number(s, large() ? 0xffffffffu : size, 4), put_number(s, large() ? 0xffffffffu : size, 4);
        put_number(s, name.size(), 2), put_number(s, extra.empty() ? 0 : extra.size() + 4, 2);
        put_number(s, 0, 2), put_number(s, 0, 2), put_number(s, 0, 2), put_number(s, 0, 4);
        put_number(s, std::min<std::uint64_t>(offset, 0xffffffffu), 4);
        s += name;
        if (!extra.empty()) put_number(s, 1, 2), put_number(s, extra.size(), 2), s += extra;
        return s;
    }
};

std::string end_of_archive(std::uint64_t count, std::uint64_t size, std::uint64_t offset) {
    std::string s;
    const bool large = count >= 0xffff || size >= 0xffffffffu || offset >= 0xffffffffu;
    if (large) {
        s.append("PK\x06\x06", 4), put_number(s, 44, 8), put_number(s, 45, 2), put_number(s, 45, 2), put_number(s, 0, 4),
            put_number(s, 0, 4);
        put_number(s, count, 8), put_number(s, count, 8), put_number(s, size, 8), put_number(s, offset, 8);
        s.append("PK\x06\x07", 4), put_number(s, 0, 4), put_number(s, offset + size, 8), put_number(s, 1, 4);
    }
    s.append("PK\x05\x06", 4), put_number(s, 0, 2), put_number(s, 0, 2);
    put_number(s, std::min<std::uint64_t>(count, 0xffff), 2), put_number(s, std::min<std::uint64_t>(count, 0xffff), 2);
    put_number(s, std::min<std::uint64_t>(size, 0xffffffffu), 4), put_number(s, std::min<std::uint64_t>(offset, 0xffffffffu), 4),
        put_number(s, 0, 2);
    return s;
}

std::uint32_t crc_add(std::uint32_t crc, std::span<const std::byte> bytes) {
    uLong sum = crc;
    while (!bytes.empty()) {
        const std::size_t n = std::min<std::size_t>(bytes.size(), 1u << 30);
        sum = ::crc32(sum, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(n));
        bytes = bytes.subspan(n);
    }
    return static_cast<std::uint32_t>(sum);
}

/// Finds the entries that an earlier run has finished: the whole of each is there, and its checksum stands in its header. A header is
/// written without the checksum first, so an entry that was cut off is done again.
std::size_t finished(const resumed_file& file, std::vector<entry>& entries) {
    std::size_t n = 0;
    for (entry& e : entries) {
        if (e.end() > file.size()) break;
        std::string head(30, '\0');
        if (!file.read_at(e.offset, head.data(), head.size())) break;
        std::uint32_t crc = 0;
        std::memcpy(&crc, head.data() + 14, 4);
        e.crc = crc;
        if (crc == 0 || head != e.local().substr(0, 30)) break;
        ++n;
    }
    return n;
}

}  // namespace

std::size_t write_npz(const checkpoint& c, const std::filesystem::path& target, const progress& told, std::vector<std::string>* notes,
                      std::vector<weight_change>* changes) {
    std::vector<entry> entries;
    std::uint64_t offset = 0, total = 0;
    for (const weight& w : c.weights) {
        if (w.problem) throw error(c.path.string() + ": " + w.problem->sentence);
        entry e{.name = w.name + ".npy", .head = npy_header(w.shape)};
        if (e.name.size() > 0xffff) throw error(c.path.string() + ": the name " + shown(w.name) + " is too long for a .npz");
        e.size = e.head.size() + 4 * w.elements(), e.offset = offset;
        offset = e.end(), total += e.size;
        entries.push_back(std::move(e));
    }
    resumed_file file(target, c.paths, "npz");
    const std::size_t done = finished(file, entries);
    std::uint64_t written = 0;
    for (std::size_t k = 0; k < done; ++k) written += entries[k].size;
    file.cut(done == 0 ? 0 : entries[done - 1].end());
    for (std::size_t k = done; k < entries.size(); ++k) {
        entry& e = entries[k];
        e.crc = 0;
        file.append(e.local());
        file.append(e.head);
        std::uint32_t crc = crc_add(0, std::as_bytes(std::span(e.head)));
        c.decode(c.weights[k], [&](std::span<const float> part) {
            const std::span<const std::byte> bytes = std::as_bytes(part);
            crc = crc_add(crc, bytes);
            file.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
            written += bytes.size();
            if (told) told(written, total);
        });
        e.crc = crc;
        file.write_at(e.offset, e.local());
        const weight& w = c.weights[k];
        lost_numbers lost;
        lost.add_beyond_float32(beyond_float32(c.tensors[static_cast<std::size_t>(w.codes)]));
        if (notes != nullptr) lost.say(w.name, w.elements(), "f32", "a .npz has no other type here", *notes);
    }
    std::string directory;
    for (const entry& e : entries) directory += e.central();
    file.append(directory + end_of_archive(entries.size(), directory.size(), offset));
    file.put();
    if (changes != nullptr)
        for (const weight& w : c.weights)
            changes->push_back({.name = w.name,
                                .from = w.format,
                                .to = "f32",
                                .how = w.format == "f32" ? weight_change::kind::kept : weight_change::kind::moved});
    return done;
}

}  // namespace qk::checkpoint
