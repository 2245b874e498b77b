// SPDX-License-Identifier: Apache-2.0
#include "console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace qk::tool {

void print_json(const nlohmann::ordered_json& object) {
    // Names in models need not be UTF-8; a replacement character beats an exception at the very end.
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

progress::progress(std::string label, std::size_t total)
    : label_(std::move(label)), total_(total), on_(::isatty(STDERR_FILENO) != 0), start_(std::chrono::steady_clock::now()), last_(start_) {}

progress::~progress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
}

void progress::show(std::size_t done) { show(done, total_); }

void progress::show(std::size_t done, std::size_t total) {
    total_ = total;
    const auto now = std::chrono::steady_clock::now();
    if (!on_ || (drawn_ && done < total && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    drawn_ = true;
    constexpr std::size_t width = 30;
    const std::size_t filled = total == 0 ? 0 : std::min(width, done * width / total);
    fmt::print(stderr, "\r\033[K[{}{}] {}/{} {}  {:.1f} s", std::string(filled, '#'), std::string(width - filled, '.'), done, total, label_,
               std::chrono::duration<double>(now - start_).count());
    std::fflush(stderr);
}

}  // namespace qk::tool
