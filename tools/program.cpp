// SPDX-License-Identifier: Apache-2.0
// Runs the command `qk`: parses the command line, runs one verb, and turns every error into one sentence and exit status 2.
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "options/standard_streams.hpp"
#include "qk/dispatch.hpp"
#include "qk/graph/error.hpp"
#include "support/caller.hpp"
#include "support/console.hpp"
#include "support/processes.hpp"
#include "verbs.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace qk::tool {

int run_program(int argc, char** argv) {
    remember_command_line(argc, argv);
    enter_components();
#if defined(__GLIBC__)
    // Returns blocks of half a megabyte and more to the system when they are freed. By default the C library would keep ever larger blocks.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 19);
#endif
    std::signal(SIGXFSZ, SIG_IGN);  // reaching a file-size limit is an error like a full disk, not the end of the process
    const bool is_closed = standard_streams::fill_closed();
    const processes all;
    const auto fails = [&](std::string sentence, status why) {
        const int exit_status = static_cast<int>(why);
        sentence = standard_streams::in_words(std::move(sentence));
        all.fail(sentence, exit_status);
        report_failure(sentence, exit_status);
        return exit_status;
    };
    const auto bad_use = [&](std::string sentence) { return fails(std::move(sentence), status::bad_use); };
    const auto not_printed = [&](const std::string& sentence) {
        return fails(sentence + "; the files that were asked for are written", status::not_printed);
    };
    if (is_closed) return bad_use("standard output is closed: give it a place, such as /dev/null");
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (!processes::together().alone() && word != "search" && word != "sensitivity")
        return bad_use("only search and sensitivity run as several processes");
    command app("qk", "Number formats for neural networks: kernels' reference, hardware validation, and mixed precision for ONNX models.",
                QK_VERSION);
    app.footer(
        "Exit status: 0 done; 1 a comparison or target failed (results are written); 2 wrong use or bad input (nothing is written); "
        "3 standard output did not take everything (files are written).\n"
        "`-` as the name of a file is standard input or standard output. `qk VERB --help` shows the verb's options and examples.");
    app.before_work([] {
        if (const char* problem = dispatch::problem()) throw graph::error(problem);
    });
    verb_result result;
    try {
        add_verbs(app, result, word);
        const bool wrote_files = app.run({argv + 1, argv + argc});
        const int problem = finish_output();
        if (problem != 0 && problem != EPIPE) {  // a reader that has seen enough, as `head` has, is no failure
            const std::string sentence = fmt::format("cannot write to standard output: {}", std::strerror(problem));
            return wrote_files ? not_printed(sentence) : bad_use(sentence);
        }
        return static_cast<int>(result.status);
    } catch (const failed_after_writing& e) {
        return not_printed(e.what());
    } catch (const graph::error& e) {
        return bad_use(e.what());
    } catch (const std::bad_alloc&) {
        return bad_use("out of memory; give less at once (a smaller batch, fewer threads)");
    } catch (const std::system_error& e) {  // from fmt, when standard output takes no more
        if (e.code().value() == EPIPE) return static_cast<int>(result.status);
        return bad_use(e.what());
    } catch (const std::exception& e) {
        return bad_use(fmt::format("unexpected error: {}", e.what()));
    }
}

}  // namespace qk::tool
