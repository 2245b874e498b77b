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
    /// one; then names are compared, and nothing is touched.
    explicit output_set(bool overwrite = false, bool writes = true) : overwrite_(overwrite), writes_(writes) {}
    output_set(const output_set&) = delete;
    output_set& operator=(const output_set&) = delete;
    ~output_set();  ///< without commit(): nothing is left

    /// `what` is how messages name a file: the option or argument. Empty paths were not given. Throws qk::graph::error when a file is
    /// already named as the other kind. A folder as input means the tensors and pictures in it.
    output_set& input(const std::string& what, const std::filesystem::path& file);
    /// Throws, too, when the file cannot be written.
    output_set& output(const std::string& what, const std::filesystem::path& file);
    /// A file that the command reads and appends to while it works, by itself; protected both ways.
    output_set& appended(const std::string& what, const std::filesystem::path& file);
    /// A folder for outputs, made by the first write() into it; its parents, too.
    output_set& folder(const std::string& what, const std::filesystem::path& folder);

    /// Content of a file that was named as output. Throws when the disk is full.
    void write(const std::filesystem::path& file, std::string_view content);
    /// The file to write to through other means, which throw for themselves.
    pending_file& begin(const std::filesystem::path& file);
    /// Of what was written to `file` so far.
    std::uintmax_t bytes(const std::filesystem::path& file) const;
    /// Throws an error that says what is left, if anything is.
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
    std::vector<std::filesystem::path> folders_, made_;  ///< those that may be made, those that were
    std::deque<written> pending_;                        // begin() gives references away
};

}  // namespace qk::graph
