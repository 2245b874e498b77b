// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/files/output_set.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "disk/output_file.hpp"
#include "qk/graph/base/error.hpp"

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

/// Returns the first folder upwards that exists.
fs::path existing_above(fs::path folder) {
    std::error_code failed;
    for (folder = fs::absolute(folder, failed); !fs::exists(folder, failed) && folder.has_relative_path();) folder = folder.parent_path();
    return folder;
}

/// Is true for the files that are read from a folder of data.
bool is_data(const fs::path& file) {
    constexpr std::array<std::string_view, 6> kinds{".npy", ".npz", ".pb", ".png", ".jpg", ".jpeg"};
    std::string kind = file.extension().string();
    for (char& c : kind) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

output_set::~output_set() {
    pending_.clear();  // removes the temporary files first, so that the folders are empty
    std::error_code ignored;
    for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) fs::remove(*folder, ignored);  // only if it is empty
}

output_set::identity output_set::identify(const std::string& what, const fs::path& file) {
    identity found;
    found.what = what;
    found.file = file;
    const disk::destination to = disk::destination_of(file);
    std::error_code failed;
    found.stream = to.stream;
    found.place = fs::weakly_canonical(to.place, failed);
    struct ::stat there {};
    found.exists = ::stat(file.c_str(), &there) == 0;
    found.device = static_cast<std::uint64_t>(there.st_dev);
    found.number = static_cast<std::uint64_t>(there.st_ino);
    found.stream = found.stream && !S_ISREG(there.st_mode);  // standard output may be a file
    return found;
}

bool output_set::same(const identity& a, const identity& b) {
    if (a.stream || b.stream) return false;
    if (a.exists && b.exists) return a.device == b.device && a.number == b.number;
    return a.place == b.place;
}

void output_set::protect(identity read) {
    if (!read.exists) return;  // a name that is no file (a built-in profile), or one whose absence its reader will report
    if (!overwrite_)
        for (const identity& o : outputs_)
            if (same(read, o))
                throw error(o.what + " " + o.file.string() + " would replace " + read.what + " " + read.file.string() +
                            ", which is read: give another name, or --overwrite");
    inputs_.push_back(std::move(read));
}

void output_set::declare(identity made) {
    if (!overwrite_) {
        for (const identity& i : inputs_)
            if (same(i, made))
                throw error(made.what + " " + made.file.string() + " would replace " + i.what + " " + i.file.string() +
                            ", which is read: give another name, or --overwrite");
        for (const identity& o : outputs_)
            if (same(o, made))
                throw error("two outputs have the name '" + made.file.string() + "' (" + o.what + " and " + made.what +
                            "): give each its own, or --overwrite");
    }
    outputs_.push_back(std::move(made));
}

output_set& output_set::input(const std::string& what, const fs::path& file) {
    if (file.empty()) return *this;
    std::error_code failed;
    if (!fs::is_directory(file, failed)) {
        protect(identify(what, file));
        return *this;
    }
    for (fs::recursive_directory_iterator entry(file, fs::directory_options::skip_permission_denied, failed), end; !failed && entry != end;
         entry.increment(failed))
        if (is_data(entry->path()) && !entry->is_directory(failed)) protect(identify(what, entry->path()));
    return *this;
}

output_set& output_set::output(const std::string& what, const fs::path& file) {
    if (file.empty()) return *this;
    declare(identify(what, file));
    if (writes_ && !is_new_folder(file.parent_path())) pending_file probe(file);  // throws where the file cannot be written
    return *this;
}

output_set& output_set::appended(const std::string& what, const fs::path& file) {
    if (file.empty()) return *this;
    const identity both = identify(what, file);
    declare(both);
    inputs_.push_back(both);  // not through protect(): it is its own output
    return *this;
}

output_set& output_set::folder(const std::string& what, const fs::path& folder) {
    if (folder.empty()) return *this;
    std::error_code failed;
    if (fs::exists(folder, failed) && !fs::is_directory(folder, failed))
        throw error(what + " " + folder.string() + " is a file, not a folder: give another name");
    const fs::path above = existing_above(folder);
    if (writes_ && (!fs::is_directory(above, failed) || ::access(above.c_str(), W_OK | X_OK) != 0))
        throw error("cannot make the folder " + folder.string() + ": " +
                    (fs::is_directory(above, failed) ? std::strerror(errno) : above.string() + " is a file"));
    folders_.push_back((folder / "name").parent_path());  // without a slash at its end, as begin() will find it
    return *this;
}

bool output_set::is_new_folder(const fs::path& folder) const {
    std::error_code failed;
    return std::find(folders_.begin(), folders_.end(), folder) != folders_.end() && !fs::exists(folder, failed);
}

void output_set::make_folder(const fs::path& folder) {
    if (!is_new_folder(folder)) return;
    std::error_code failed;
    std::vector<fs::path> missing;
    for (fs::path at = fs::absolute(folder, failed).lexically_normal(); !fs::exists(at, failed) && at.has_relative_path();
         at = at.parent_path())
        missing.push_back(at);
    for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
        if (!fs::create_directory(*at, failed) && failed)
            throw error("cannot make the folder " + folder.string() + ": " + failed.message());
        if (!failed) made_.push_back(*at);
    }
}

pending_file& output_set::begin(const fs::path& file) {
    if (std::ranges::none_of(outputs_, [&](const identity& o) { return o.file == file; })) output("output", file);
    make_folder(file.parent_path());
    pending_.push_back({file, pending_file(file)});
    return pending_.back().file;
}

void output_set::write(const fs::path& file, std::string_view content) {
    try {
        begin(file).write(content);
    } catch (const error& e) {
        throw error(std::string(e.what()) + "; nothing is written");
    }
}

std::uintmax_t output_set::bytes(const fs::path& file) const {
    for (const written& w : pending_)
        if (w.name == file) return w.file.bytes();
    return 0;
}

void output_set::commit() {
    try {
        for (written& w : pending_) w.file.sync();
        for (const bool streams : {true, false})  // streams first: they fail more often than a rename, and before it nothing is changed yet
            for (written& w : pending_)
                if (w.file.is_stream() == streams) w.file.put();
    } catch (const error& e) {
        std::string left;
        for (auto w = pending_.rbegin(); w != pending_.rend(); ++w)
            if (!w->file.take_back()) left += (left.empty() ? "" : ", ") + w->name.string();
        throw error(e.what() +
                    (left.empty() ? std::string("; nothing is written") : "; this is written already and cannot be taken back: " + left));
    }
    for (const written& w : pending_) w.file.sync_folder();
    pending_.clear();
    made_.clear();
}

}  // namespace qk::graph
