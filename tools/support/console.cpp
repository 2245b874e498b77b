// SPDX-License-Identifier: Apache-2.0
#include "support/console.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "qk/graph/error.hpp"
#include "qk/graph/files.hpp"
#include "support/caller.hpp"

namespace qk::tool {
namespace {
std::string remembered;
bool wants_json = false;
int output_problem = 0;  ///< the first errno of standard output
}  // namespace

std::string command_line() { return this_caller() != nullptr ? this_caller()->command : remembered; }

void remember_command_line(int argc, char** argv) {
    remembered = "qk";
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        wants_json = wants_json || word == "--json";
        const bool plain = word.find_first_of(" '\"*?$;|&<>()") == std::string::npos && !word.empty();
        remembered += plain ? " " + word : " '" + word + "'";
    }
}

void print_json(const nlohmann::ordered_json& object) { detail::put(stdout, graph::json_text(object, 2) + "\n"); }

void detail::put(std::FILE* to, std::string_view text) {
    std::string message;  // what is said to people, a table's rows are whole
    if (to == stderr) text = message = graph::shortened(text);
    if (const caller* by = this_caller()) return by->print(to, text);
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), to) != text.size() && to == stdout && output_problem == 0)
        output_problem = errno != 0 ? errno : EIO;
}

void print_lines(std::string_view text) { detail::put(stdout, graph::printable(text, "\n")); }

void report_failure(std::string_view sentence, int exit_status) {
    const std::string message = graph::shortened(graph::printable(sentence));
    print(stderr, "qk: {}\n", message);
    if (wants_json) print_json({{"status", "error"}, {"message", message}, {"exit", exit_status}});
    std::fflush(stdout);
}

int finish_output() {
    errno = 0;
    if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && output_problem == 0) output_problem = errno != 0 ? errno : EIO;
    return output_problem;
}

std::string time_left(std::size_t done, std::size_t total, double seconds) {
    if (done == 0 || done >= total || seconds < 1) return "";
    const double left = seconds * static_cast<double>(total - done) / static_cast<double>(done);
    if (left < 90) return fmt::format("{:.0f} s left", std::ceil(left));
    if (left < 5400) return fmt::format("{:.0f} min left", left / 60);
    return fmt::format("{:.1f} h left", left / 3600);
}

progress::progress(std::string label)
    : label_(std::move(label)), on_(::isatty(STDERR_FILENO) != 0), start_(std::chrono::steady_clock::now()), last_(start_) {}

progress::~progress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
}

void progress::show(std::size_t done, std::size_t total) {
    if (const caller* by = this_caller()) return by->progress ? by->progress(label_, done, total) : void();
    const auto now = std::chrono::steady_clock::now();
    const bool ended = total > 0 && done >= total;
    if (!on_ || (drawn_ && !ended && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    drawn_ = true;
    constexpr std::size_t width = 30, mark = 5;
    const std::size_t filled = total == 0 ? 0 : std::min(width, done * width / total);
    std::string bar = std::string(filled, '#') + std::string(width - filled, '.'), all = "/" + std::to_string(total);
    if (total == 0) {  // nobody knows how much there is: a mark that moves on with what is done
        all.clear();
        for (std::size_t i = 0; i < mark; ++i) bar[(done + i) % width] = '#';
    }
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const std::string left = time_left(done, total, seconds);
    fmt::print(stderr, "\r\033[K[{}] {}{} {}  {:.1f} s{}{}", bar, done, all, graph::printable(label_), seconds, left.empty() ? "" : ", ",
               left);
    std::fflush(stderr);
}

std::function<void(std::string_view, std::size_t, std::size_t)> progress_lines::report() {
    return [this](std::string_view what, std::size_t done, std::size_t all) {
        const std::string work(what.substr(0, what.find(',')));  // "searching, best 0.1" and "searching, best 0.2" are the same work
        if (!bar_ || work != work_) bar_ = std::make_unique<progress>(std::string(what));
        work_ = work;
        bar_->label(std::string(what));
        bar_->show(done, all);
    };
}

}  // namespace qk::tool
