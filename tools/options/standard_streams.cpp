// SPDX-License-Identifier: Apache-2.0
#include "standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "qk/graph/error.hpp"
#include "support/processes.hpp"

namespace qk::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_input = std::uint64_t{1} << 31;  ///< as much as a model may have

fs::path stand_ins;  ///< folder of this process's temporary files; empty until it is made

fs::path stand_in(const char* name) {
    if (stand_ins.empty()) {
        std::string place = (fs::temp_directory_path() / "qk-stream-XXXXXX").string();
        if (::mkdtemp(place.data()) == nullptr)
            throw graph::error(fmt::format("cannot make the folder {} for '-': {}", place, std::strerror(errno)));
        stand_ins = place;
    }
    return stand_ins / name;
}

/// Calls `found` for each '-' among an option's values (its text, each entry of a list, the part behind "NAME="), with its position.
void each_dash(const option& o, const std::function<void(std::string&, std::size_t)>& found) {
    const auto look = [&](std::string& word) {
        if (word == "-") found(word, 0);
        else if (word.size() > 2 && word.ends_with("=-") && o.is_list()) found(word, word.size() - 1);
    };
    if (const auto* text = std::get_if<std::string*>(&o.to)) look(**text);
    if (const auto* list = std::get_if<std::vector<std::string>*>(&o.to))
        for (std::string& word : **list) look(word);
}

/// Copies everything from `from` to `to` until the end; more than `most` bytes are an error.
void copy(int from, int to, const std::string& what, std::uint64_t most = UINT64_MAX) {
    std::array<char, 1 << 16> part;
    for (std::uint64_t all = 0;;) {
        const ssize_t n = ::read(from, part.data(), part.size());
        if (n == 0) return;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw graph::error(fmt::format("cannot read {}: {}", what, std::strerror(errno)));
        all += static_cast<std::uint64_t>(n);
        if (all > most) throw graph::error(what + " has more than 2 GB: write it to a file and name that");
        for (ssize_t done = 0; done < n;) {
            const ssize_t written = ::write(to, part.data() + done, static_cast<std::size_t>(n - done));
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) throw graph::error(fmt::format("cannot write {}: {}", what, std::strerror(errno)));
            done += written;
        }
    }
}

void copy_file(const fs::path& file, bool from_file, int stream, const std::string& what) {
    std::FILE* f = std::fopen(file.c_str(), from_file ? "rb" : "wb");
    if (f == nullptr) throw graph::error(fmt::format("cannot open {} for {}: {}", file.string(), what, std::strerror(errno)));
    try {
        if (from_file) copy(::fileno(f), stream, what);
        else copy(stream, ::fileno(f), what, most_input);
    } catch (...) {
        std::fclose(f);
        throw;
    }
    if (std::fclose(f) != 0) throw graph::error(fmt::format("cannot write {}: {}", what, std::strerror(errno)));
}

bool prints_json(const option_table& verb) {
    const option* json = verb.find("--json");
    return json != nullptr && *std::get<bool*>(json->to);
}

}  // namespace

void standard_streams::replace(const option_table& verb) {
    const option* reader = nullptr;
    const option* writer = nullptr;
    const auto claim = [&](const option*& owner, const option& o, const char* stream) {
        if (owner != nullptr)
            throw graph::error(fmt::format("'-' is {} for {} and for {}: one of them needs a file", stream, owner->name, o.name));
        owner = &o;
    };
    for (const option& o : verb.options()) {
        if (o.is_input) each_dash(o, [&](std::string&, std::size_t) { claim(reader, o, "standard input"); });
        if (o.is_output) each_dash(o, [&](std::string&, std::size_t) { claim(writer, o, "standard output"); });
    }
    if ((reader != nullptr || writer != nullptr) && !processes::together().alone())
        throw graph::error(fmt::format("{} -: several processes have no {} in common: give a file", (reader ? reader : writer)->name,
                                       reader ? "standard input" : "standard output"));
    if (writer != nullptr && prints_json(verb))
        throw graph::error(fmt::format("{} - and --json would both go to standard output: give {} a file", writer->name, writer->name));
    const auto put = [](const option& o, const fs::path& file) {
        each_dash(o, [&](std::string& word, std::size_t at) { word = word.substr(0, at) + file.string(); });
    };
    if (reader != nullptr) {
        in_ = stand_in("standard-input");
        copy_file(in_, false, STDIN_FILENO, "standard input");
        put(*reader, in_);
    }
    if (writer != nullptr) {
        out_ = stand_in("standard-output");
        put(*writer, out_);
        std::fflush(stdout);
        real_output_ = ::dup(STDOUT_FILENO);
        if (real_output_ < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
            throw graph::error(fmt::format("cannot write standard output: {}", std::strerror(errno)));
    }
}

standard_streams::~standard_streams() {
    if (real_output_ >= 0) {
        std::fflush(stdout);
        ::dup2(real_output_, STDOUT_FILENO);
        ::close(real_output_);
    }
    std::error_code ignored;
    if (!in_.empty() || !out_.empty()) fs::remove_all(stand_ins, ignored);
}

bool standard_streams::fill_closed() {
    bool output = false;
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        output = output || stream == STDOUT_FILENO;
        (void)!::open("/dev/null", O_WRONLY);  // gets the lowest number that is free; reading it is an error, as for a closed one
    }
    return output;
}

void standard_streams::commit() {
    std::error_code failed;
    std::signal(SIGPIPE, SIG_IGN);  // a reader that is gone gives an error message, and the temporary files are removed
    if (!out_.empty() && fs::exists(out_, failed)) copy_file(out_, true, real_output_, "standard output");
}

std::string standard_streams::in_words(std::string sentence) {
    if (stand_ins.empty()) return sentence;
    for (const char* name : {"standard-input", "standard-output"}) {
        const std::string file = (stand_ins / name).string();
        for (std::size_t at; (at = sentence.find(file)) != std::string::npos;)
            sentence.replace(at, file.size(), std::string(name, 8) + " " + (name + 9));
    }
    return sentence;
}

}  // namespace qk::tool
