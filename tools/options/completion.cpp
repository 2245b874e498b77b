// SPDX-License-Identifier: Apache-2.0
#include "completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace qk::tool {
namespace {

/// What an option's value may be: one of its words, a number (which no shell can complete), or a file.
enum class value_kind { words, number, file };

value_kind kind_of(const option& o) { return !o.words.empty() ? value_kind::words : o.is_number() ? value_kind::number : value_kind::file; }

std::string joined(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += (all.empty() ? "" : " ") + w;
    return all;
}

/// Returns the first clause of a help text, since a menu has one line for each word.
std::string brief(const std::string& text) {
    std::size_t end = std::min({text.find("; "), text.find(": "), text.find(" ("), text.find(", "), text.size()});
    return text.substr(0, std::min<std::size_t>(end, 70));
}

/// Puts text in single quotes for a shell.
std::string quoted(const std::string& text) {
    std::string s = "'";
    for (const char c : text) s += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return s + "'";
}

std::string with_backslashes(const std::string& text, std::string_view before) {
    std::string s;
    for (const char c : text) s += std::string(before.find(c) == std::string_view::npos ? "" : "\\") + c;
    return s;
}

std::vector<std::string> names_of(const option& o) {
    return o.short_name.empty() ? std::vector<std::string>{o.name} : std::vector<std::string>{o.short_name, o.name};
}

}  // namespace

std::string bash_completion(const command& app) {
    const std::string& program = app.name();
    std::string verbs, values, words;
    for (const option_table& verb : app.verbs()) {
        verbs += verb.name() + " ";
        std::vector<std::string> names;
        for (const option& o : verb.options()) {
            if (o.is_argument()) {
                if (!o.words.empty()) words += fmt::format("        {}) arguments={} ;;\n", verb.name(), quoted(joined(o.words)));
                continue;
            }
            std::string pattern;
            for (const std::string& n : names_of(o)) {
                names.push_back(n);
                pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : "|", verb.name(), n);
            }
            if (!o.takes_next_word() || kind_of(o) == value_kind::file) continue;
            values +=
                fmt::format("        {}) COMPREPLY=({}); return ;;\n", pattern,
                            kind_of(o) == value_kind::number ? "" : fmt::format("$(compgen -W {} -- \"$word\")", quoted(joined(o.words))));
        }
        words += fmt::format("        {}) options={} ;;\n", verb.name() + "-options", quoted(joined(names) + " --help"));
    }
    return fmt::format(R"sh(# Completion of {0} for bash. Use it: eval "$({0} completion bash)"
_{0}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} options= arguments= kind
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W '{1}help --help --version --onnxruntime-library' -- "$word")); return; fi
    if [ "$verb" = help ]; then COMPREPLY=($(compgen -W '{1}' -- "$word")); return; fi
    case "$verb $before" in
{2}    esac
    for kind in "$verb" "$verb-options"; do case "$kind" in
{3}    esac; done
    case "$word" in -*) COMPREPLY=($(compgen -W "$options" -- "$word")); return ;; esac
    if [ -n "$arguments" ]; then COMPREPLY=($(compgen -W "$arguments" -- "$word")); return; fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
}}
complete -F _{0} {0}
)sh",
                       program, verbs, values, words);
}

std::string zsh_completion(const command& app) {
    const std::string& program = app.name();
    // Brackets and colons have a special meaning in the specifications that _arguments reads.
    const auto plain = [](const std::string& text) { return with_backslashes(text, "[]:\\"); };
    const auto action = [&](const option& o) {
        const value_kind kind = kind_of(o);
        return plain(o.is_argument() ? o.name : o.shown_value()) + ":" +
               (kind == value_kind::words  ? "(" + plain(joined(o.words)) + ")"
                : kind == value_kind::file ? "_files"
                                           : " ");
    };
    std::string verbs, cases;
    for (const option_table& verb : app.verbs()) {
        verbs += "        " + quoted(plain(verb.name()) + ":" + plain(brief(verb.summary()))) + "\n";
        cases += fmt::format("        {})\n            _arguments", verb.name());
        for (const option& o : verb.options()) {
            if (o.is_argument()) {
                cases += " \\\n                " + quoted((o.is_list() ? "*:" : o.is_required ? ":" : "::") + action(o));
                continue;
            }
            for (const std::string& name : names_of(o))
                cases += " \\\n                " + quoted((o.is_list() ? "*" : "") + name + "[" + plain(brief(o.text)) + "]" +
                                                          (o.takes_next_word() ? ":" + action(o) : ""));
        }
        cases += " \\\n                '--help[this page]' ;;\n";
    }
    return fmt::format(R"sh(#compdef {0}
# Completion of {0} for zsh. Use it: eval "$({0} completion zsh)", or keep it as _{0} in a folder of $fpath.
_{0}() {{
    local -a verbs
    verbs=(
{1}    )
    if (( CURRENT == 2 )); then _describe verb verbs; return; fi
    local verb=$words[2]
    shift words
    (( CURRENT-- ))
    case $verb in
{2}        help) _describe verb verbs ;;
        *) _files ;;
    esac
}}
compdef _{0} {0}
)sh",
                       program, verbs, cases);
}

std::string fish_completion(const command& app) {
    const std::string& program = app.name();
    std::string s = fmt::format(
        "# Completion of {0} for fish. Use it: {0} completion fish | source\ncomplete -c {0} -f\ncomplete -c {0} -n __fish_use_subcommand "
        "-s h -l help -d 'the verbs'\ncomplete -c {0} -n __fish_use_subcommand -s V -l version\ncomplete -c {0} -n __fish_use_subcommand "
        "-l onnxruntime-library\n",
        program);
    const auto escaped = [](const std::string& text) { return "'" + with_backslashes(text, "'\\") + "'"; };
    for (const option_table& verb : app.verbs()) {
        s += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program, verb.name(), escaped(brief(verb.summary())));
        const std::string here = fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}'", program, verb.name());
        for (const option& o : verb.options()) {
            const std::string value = kind_of(o) == value_kind::words    ? "-x -a " + escaped(joined(o.words))
                                      : kind_of(o) == value_kind::number ? "-x"
                                                                         : "-r -F";
            if (o.is_argument()) {
                s += here + " " + (kind_of(o) == value_kind::words ? "-a " + escaped(joined(o.words)) : "-F") + "\n";
                continue;
            }
            s += here + (o.short_name.empty() ? "" : " -s " + o.short_name.substr(1)) + " -l " + o.name.substr(2) +
                 (o.takes_next_word() ? " " + value : "") + " -d " + escaped(brief(o.text)) + "\n";
        }
        s += here + " -s h -l help -d 'this page'\n";
    }
    return s;
}

}  // namespace qk::tool
