// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "qk/graph/error.hpp"
#include "qk/graph/pipeline/onnxruntime_time.hpp"
#include "qk/graph/report.hpp"
#include "standard_streams.hpp"
#include "support/caller.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {
bool asks_help(const std::string& word) { return word == "--help" || word == "-h"; }

/// Is true for an option that names a file which the verb writes; standard output is none.
bool names_output(const option& o, const standard_streams& streams) {
    if (!o.is_output) return false;
    const auto is_file = [&](const std::string& name) { return !name.empty() && !streams.is_output(name); };
    if (const auto* text = std::get_if<std::string*>(&o.to)) return is_file(**text);
    const auto* list = std::get_if<std::vector<std::string>*>(&o.to);
    return list != nullptr && std::ranges::any_of(**list, is_file);
}

/// Throws for a file that an option names and that is not there, whether the work would look into it or not. A value may be a word that
/// stands for no file, NAME=FILE, or several files with commas between them. What Python gives is no file.
void check_files(const std::vector<const option*>& given) {
    if (this_caller() != nullptr) return;
    const auto is_there = [](const std::string& name) {
        std::error_code ignored;
        return std::filesystem::exists(name, ignored);
    };
    const auto look = [&](const option& o, const std::string& value) {
        const std::string files = value.substr(value.find('=') + 1);  // all of it without '='
        if (is_there(value) || is_there(files) || std::ranges::find(o.words, value) != o.words.end()) return;
        for (std::size_t at = 0, end = 0; end < files.size(); at = end + 1) {
            end = std::min(files.find(',', at), files.size());
            const std::string file = files.substr(at, end - at);
            if (!file.empty() && !is_there(file))
                throw graph::error(fmt::format("cannot read '{}': {} names it, and there is no such file", file, o.name));
        }
    };
    for (const option* o : given) {
        if (!o->is_input || o->is_argument()) continue;
        if (const auto* text = std::get_if<std::string*>(&o->to)) look(*o, **text);
        if (const auto* list = std::get_if<std::vector<std::string>*>(&o->to))
            for (const std::string& value : **list) look(*o, value);
    }
}

/// Prints a page that was asked for in place of work.
bool show(const std::string& page) {
    detail::put(stdout, page);
    return false;
}
}  // namespace

bool command::run(std::vector<std::string> words) const {
    const std::string first = words.empty() ? "" : words.front();
    if (first.empty()) throw graph::error(fmt::format("say what to do: {} VERB ... (`{} --help` lists the verbs)", name_, name_));
    if (first == "--version" || first == "-V") return show(fmt::format("{} {}\n", name_, version_));
    if (first == "--onnxruntime-library") return show(graph::pipeline::onnxruntime_library(std::string()).string() + "\n");
    if (asks_help(first) || (first == "help" && words.size() == 1)) return show(help());
    if (first == "help") return show(help_of(find(words[1]), name_));
    if (first.front() == '-')
        throw graph::error(
            fmt::format("{} has no option {} before the verb (`{} --help` lists the verbs, `{} VERB --help` a verb's options)", name_,
                        first, name_, name_));
    const option_table& verb = find(first);
    words.erase(words.begin());
    const auto rest = std::find(words.begin(), words.end(), "--");
    if (std::any_of(words.begin(), rest, asks_help)) return show(help_of(verb, name_));
    if (check_) check_();
    const std::vector<const option*> given = read_options(verb, std::move(words));
    standard_streams streams;
    streams.replace(verb);
    verb.check_input(given);
    check_files(given);
    verb.work();
    const bool wrote_files = std::ranges::any_of(verb.options(), [&](const option& o) { return names_output(o, streams); });
    try {
        streams.commit();
    } catch (const graph::error& e) {
        if (!wrote_files) throw;
        throw failed_after_writing(e.what());
    }
    return wrote_files;
}

const option_table& command::find(const std::string& verb) const {
    std::vector<std::string> known;
    for (const option_table& v : verbs_) {
        if (v.name() == verb) return v;
        known.push_back(v.name());
    }
    throw graph::error(
        fmt::format("there is no verb '{}'.{} The verbs are: {}", verb, graph::did_you_mean(verb, known), graph::comma_separated(known)));
}

std::string command::help() const {
    std::string page = fmt::format("{}\n\nUsage: {} VERB [OPTIONS]\n\nVerbs:\n", summary_, name_);
    for (const option_table& v : verbs_) page += fmt::format("  {:<14}{}\n", v.name(), v.summary());
    page += fmt::format(
        "\nOptions:\n  -h, --help    this page; `{} VERB --help` is the verb's\n  -V, --version\n"
        "  --onnxruntime-library  where the operators are that a session of onnxruntime may register\n",
        name_);
    return page + (footer_.empty() ? "" : "\n" + footer_ + "\n");
}

}  // namespace qk::tool
