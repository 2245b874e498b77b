// SPDX-License-Identifier: Apache-2.0
// What one command reads and writes: no output takes the place of an input or of another output, and all outputs appear or none.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/files/atomic_file.hpp"

namespace qk::graph {

/// Name every input and every output first, then work, then write every output, then commit():
///
///     output_set files;
///     files.input("MODEL", "model.onnx").output("-o", "int8.onnx").output("--report", "r.html");
///     ...
///     files.write("int8.onnx", model_bytes);
///     files.write("r.html", page);
///     files.commit();
///
/// Files are compared by what they are, not by their names (links, hard links, "./"). An existing file that is none of the inputs is
/// replaced. commit() puts every file on the disk, then renames; if a rename fails, those before it are taken back. What cannot be taken
/// back (a pipe or device, a filesystem that cannot exchange two files) is named in the error. A process that is killed between two renames
/// leaves each output whole, the new or the old one.
class output_set {
  public:
    /// `overwrite`: outputs may take the place of inputs and of each other. `writes`: false in a process that leaves writing to another
    /// one; then names are only compared, and no file is touched.
    explicit output_set(bool overwrite = false, bool writes = true) : overwrite_(overwrite), writes_(writes) {}
    output_set(const output_set&) = delete;
    output_set& operator=(const output_set&) = delete;
    ~output_set();  ///< without commit(): leaves nothing behind

    /// `what` is how messages name a file: the option or argument. An empty path means that none was given. Throws qk::graph::error when a
    /// file is already named as the other kind. A folder as input stands for the tensors and pictures in it.
    output_set& input(const std::string& what, const std::filesystem::path& file);
    /// Also throws when the file cannot be written.
    output_set& output(const std::string& what, const std::filesystem::path& file);
    /// Names a file that the command reads and appends to by itself while it works; it is protected as input and as output.
    output_set& appended(const std::string& what, const std::filesystem::path& file);
    /// Names a folder for outputs. The first write() into it makes it and its parents.
    output_set& folder(const std::string& what, const std::filesystem::path& folder);

    /// Writes the content of a file that was named as output. Throws when the disk is full.
    void write(const std::filesystem::path& file, std::string_view content);
    /// Returns the file to write to through other means, which report their own errors.
    pending_file& begin(const std::filesystem::path& file);
    /// Returns the number of bytes written to `file` so far.
    std::uintmax_t bytes(const std::filesystem::path& file) const;
    /// Puts all outputs in place. On failure throws an error that says what is left behind, if anything is.
    void commit();

  private:
    struct identity {
        std::string what;
        std::filesystem::path file, place;  ///< place: absolute, links resolved
        std::uint64_t device = 0, number = 0;
        bool exists = false, stream = false;
    };
    static identity identify(const std::string& what, const std::filesystem::path& file);
    static bool same(const identity& a, const identity& b);
    void protect(identity read);
    void declare(identity made);
    bool is_new_folder(const std::filesystem::path& folder) const;
    void make_folder(const std::filesystem::path& folder);

    struct written {
        std::filesystem::path name;
        pending_file file;
    };
    bool overwrite_, writes_;
    std::vector<identity> inputs_, outputs_;
    std::vector<std::filesystem::path> folders_, made_;  ///< folders_: may be made; made_: were made
    std::deque<written> pending_;                        // begin() gives references away
};

}  // namespace qk::graph
