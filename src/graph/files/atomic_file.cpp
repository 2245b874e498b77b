// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/files/atomic_file.hpp"

#include <utility>

#include "disk/output_file.hpp"
#include "qk/graph/base/error.hpp"

namespace qk::graph {
namespace {

void cannot_write(const std::filesystem::path& file, const std::string& why) { throw error("cannot write " + file.string() + ": " + why); }

}  // namespace

pending_file::pending_file(std::filesystem::path target) : file_(std::make_unique<disk::output_file>(std::move(target), cannot_write)) {}
pending_file::pending_file(pending_file&& other) noexcept = default;
pending_file::~pending_file() = default;

const std::filesystem::path& pending_file::target() const { return file_->target(); }
const std::filesystem::path& pending_file::temporary() const { return file_->part(); }
bool pending_file::is_stream() const { return file_->is_stream(); }
std::uintmax_t pending_file::bytes() const { return file_->bytes(); }
void pending_file::write(std::string_view content) { file_->append(content); }
void pending_file::sync() { file_->sync(); }
void pending_file::put() { file_->put(); }
bool pending_file::take_back() noexcept { return file_->take_back(); }
void pending_file::sync_folder() const noexcept { file_->sync_folder(); }

void pending_file::commit() {
    sync();
    put();
    sync_folder();
}

void write_file(const std::filesystem::path& path, std::string_view content) {
    pending_file file(path);
    file.write(content);
    file.commit();
}

void append_to_file(const std::filesystem::path& path, std::string_view content) { disk::append_to(path, content, cannot_write); }

}  // namespace qk::graph
