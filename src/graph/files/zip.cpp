// SPDX-License-Identifier: Apache-2.0
// Definitions of zip.hpp, over zlib's inflate and crc32.
#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "qk/graph/base/error.hpp"
#include "qk/graph/files/zip.hpp"

namespace qk::graph {
namespace detail {

/// Reads little-endian fields of an archive; every read is checked.
class zip_cursor {
  public:
    zip_cursor(std::string_view bytes, std::uint64_t at, const std::string& label) : bytes_(bytes), at_(at), label_(&label) {}

    [[noreturn]] void fail(const std::string& what) const { throw error(*label_ + ": " + what); }
    std::uint64_t number(int width) {
        const std::string_view s = take(static_cast<std::uint64_t>(width));
        std::uint64_t v = 0;
        for (int i = width; i-- > 0;) v = v << 8 | static_cast<unsigned char>(s[static_cast<std::size_t>(i)]);
        return v;
    }
    std::string_view take(std::uint64_t n) {
        if (at_ > bytes_.size() || n > bytes_.size() - at_) fail("truncated archive");
        const std::string_view s = bytes_.substr(at_, n);
        at_ += n;
        return s;
    }

  private:
    std::string_view bytes_;
    std::uint64_t at_;
    const std::string* label_;
};

inline std::uint32_t crc_of(std::string_view s) {
    uLong crc = ::crc32(0, nullptr, 0);
    while (!s.empty()) {
        const auto n = static_cast<uInt>(std::min<std::size_t>(s.size(), 1u << 30));
        crc = ::crc32(crc, reinterpret_cast<const Bytef*>(s.data()), n);
        s.remove_prefix(n);
    }
    return static_cast<std::uint32_t>(crc);
}

/// Inflates raw deflate data of known size.
inline std::string inflate(std::string_view in, std::uint64_t size, const std::string& where) {
    if (size / 1032 > in.size() + 64) throw error(where + ": claims to be larger than deflate can make it");
    std::string out(size, '\0');
    z_stream z{};
    if (::inflateInit2(&z, -MAX_WBITS) != Z_OK) throw error(where + ": zlib failed");
    std::size_t read = 0, written = 0;
    int status = Z_OK;
    while (status == Z_OK) {
        const std::size_t chunk = std::min<std::size_t>(in.size() - read, 1u << 30), room = std::min<std::size_t>(size - written, 1u << 30);
        z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data() + read));  // zlib's interface lacks the const
        z.avail_in = static_cast<uInt>(chunk);
        z.next_out = reinterpret_cast<Bytef*>(out.data() + written);
        z.avail_out = static_cast<uInt>(room);
        status = ::inflate(&z, Z_NO_FLUSH);
        read += chunk - z.avail_in;
        written += room - z.avail_out;
    }
    ::inflateEnd(&z);
    if (status != Z_STREAM_END || written != size) throw error(where + ": damaged deflate data");
    return out;
}

inline void put(std::string& s, std::uint64_t v, int width) {
    for (int i = 0; i < width; ++i) s.push_back(i < 8 ? static_cast<char>(v >> (8 * i)) : '\0');
}

}  // namespace detail

std::vector<zip_entry> unzip(std::string_view archive, const std::string& label) {
    using detail::zip_cursor;
    // The end record holds up to 65535 bytes of comment: look for its signature from the back.
    std::size_t end = archive.rfind(std::string_view("PK\5\6", 4));
    if (end == std::string_view::npos) throw error(label + ": not a zip archive (no end record)");
    zip_cursor record(archive, end + 10, label);
    std::uint64_t count = record.number(2);
    record.number(4);
    std::uint64_t directory = record.number(4);
    if (count == 0xffff || directory == 0xffffffff) {
        if (end < 20) throw error(label + ": damaged zip archive");
        zip_cursor locator(archive, end - 20, label);
        if (locator.number(4) != 0x07064b50) throw error(label + ": damaged zip archive (no zip64 locator)");
        locator.number(4);
        zip_cursor wide(archive, locator.number(8), label);
        if (wide.number(4) != 0x06064b50) throw error(label + ": damaged zip archive (no zip64 end record)");
        wide.take(28);
        count = wide.number(8);
        wide.number(8);
        directory = wide.number(8);
    }

    std::vector<zip_entry> entries;
    std::uint64_t total = 0;
    zip_cursor c(archive, directory, label);
    for (std::uint64_t i = 0; i < count; ++i) {
        if (c.number(4) != 0x02014b50) throw error(label + ": damaged zip directory");
        c.take(4);
        const std::uint64_t flags = c.number(2), method = c.number(2);
        c.take(4);
        const std::uint64_t crc = c.number(4);
        std::uint64_t packed = c.number(4), size = c.number(4);
        const std::uint64_t name_length = c.number(2), extra_length = c.number(2), comment_length = c.number(2);
        c.take(8);
        std::uint64_t local = c.number(4);
        const std::string name(c.take(name_length));
        const std::string_view extra = c.take(extra_length);
        c.take(comment_length);
        const std::string where = label + ": entry '" + name + "'";

        for (std::size_t at = 0; at + 4 <= extra.size();) {  // the zip64 field holds, in this order, what did not fit
            zip_cursor x(extra, at, where);
            const std::uint64_t id = x.number(2), length = x.number(2);
            if (id == 1) {
                if (size == 0xffffffff) size = x.number(8);
                if (packed == 0xffffffff) packed = x.number(8);
                if (local == 0xffffffff) local = x.number(8);
            }
            at += 4 + length;
        }
        if (flags & 1) throw error(where + " is encrypted");
        if (method != 0 && method != 8) throw error(where + " uses compression method " + std::to_string(method) + "; store or deflate it");

        zip_cursor header(archive, local, where);
        if (header.number(4) != 0x04034b50) throw error(where + ": damaged local header");
        header.take(22);
        const std::uint64_t skip_name = header.number(2), skip_extra = header.number(2);
        header.take(skip_name + skip_extra);
        const std::string_view data = header.take(packed);
        // Overlapping entries must not multiply a small file into a large one.
        total += size;
        if (total / 1032 > archive.size() + 64) throw error(where + ": the archive claims to be larger than deflate can make it");
        if (method == 0 && packed != size) throw error(where + ": sizes differ");
        entries.push_back({name, method == 0 ? std::string(data) : detail::inflate(data, size, where)});
        if (detail::crc_of(entries.back().bytes) != crc) throw error(where + ": checksum mismatch, the file is damaged");
    }
    return entries;
}

std::string zip(const std::vector<zip_entry>& entries, const std::string& label) {
    std::string out, directory;
    for (const zip_entry& e : entries) {
        if (e.bytes.size() + out.size() > 0xfffff000u || entries.size() > 0xfff0)
            throw error(label + ": too large for an .npz; write .npy files");
        const std::uint64_t offset = out.size();
        std::string common;
        detail::put(common, 20, 2);        // version needed
        detail::put(common, 0x800, 2);     // names are UTF-8
        detail::put(common, 0, 2);         // stored
        detail::put(common, 0x210000, 4);  // 1980-01-01: the same bytes on every run
        detail::put(common, detail::crc_of(e.bytes), 4);
        detail::put(common, e.bytes.size(), 4);
        detail::put(common, e.bytes.size(), 4);
        detail::put(common, e.name.size(), 2);
        detail::put(common, 0, 2);  // no extra field
        detail::put(out, 0x04034b50, 4);
        out += common + e.name + e.bytes;
        detail::put(directory, 0x02014b50, 4);
        detail::put(directory, 20, 2);
        directory += common;
        detail::put(directory, 0, 10);  // comment, disk, attributes
        detail::put(directory, offset, 4);
        directory += e.name;
    }
    const std::uint64_t start = out.size();
    out += directory;
    detail::put(out, 0x06054b50, 4);
    detail::put(out, 0, 4);
    detail::put(out, entries.size(), 2);
    detail::put(out, entries.size(), 2);
    detail::put(out, directory.size(), 4);
    detail::put(out, start, 4);
    detail::put(out, 0, 2);
    return out;
}

}  // namespace qk::graph
