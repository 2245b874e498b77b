// SPDX-License-Identifier: Apache-2.0
// The command `qk`: parse, run one verb, and turn every error into one sentence and exit status 2.
#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "support/console.hpp"
#include "qk/dispatch.hpp"
#include "qk/graph/base/error.hpp"
#include "support/processes.hpp"
#include "verbs.hpp"

namespace {

int bad_use(const qk::tool::processes& all, std::string_view sentence) {
    all.fail(sentence, static_cast<int>(qk::tool::status::bad_use));
    fmt::print(stderr, "qk: {}\n", sentence);
    return static_cast<int>(qk::tool::status::bad_use);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace qk::tool;
    remember_command_line(argc, argv);
    const processes all;
    const auto bad_use = [&](std::string_view sentence) { return ::bad_use(all, sentence); };
    const std::string_view word = argc > 1 ? argv[1] : "";
    if (!processes::together().alone() && word != "search" && word != "sensitivity") return bad_use("only search and sensitivity run as several processes");
    if (const char* problem = qk::dispatch::problem()) return bad_use(problem);
    CLI::App app("Number formats for neural networks: kernels' reference, hardware validation, and mixed precision for ONNX models.", "qk");
    app.footer(
        "Exit status: 0 done; 1 a comparison or target failed (results are written); 2 wrong use or bad input (nothing is written).\n"
        "`qk VERB --help` shows the verb's options and examples.");
    app.set_version_flag("--version", std::string("qk ") + QK_VERSION);
    app.require_subcommand(1);
    verb_result result;
    try {
#define QK_VERB(name) add_##name(app, result);
#include "verbs.inc"
#undef QK_VERB
        app.parse(argc, argv);
        return static_cast<int>(result.status);
    } catch (const CLI::Success& help) {  // --help, --version
        return app.exit(help);
    } catch (const CLI::ParseError& e) {
        const auto verbs = app.get_subcommands();
        if (verbs.empty() && argc > 1) {
            std::string known;
            for (const CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; }))
                known += (known.empty() ? "" : ", ") + verb->get_name();
            return bad_use(fmt::format("there is no verb '{}'; the verbs are: {}", argv[1], known));
        }
        return bad_use(fmt::format("{} (see `qk {}--help`)", e.what(), verbs.empty() ? "" : verbs.front()->get_name() + " "));
    } catch (const qk::graph::error& e) {
        return bad_use(e.what());
    } catch (const std::bad_alloc&) {
        return bad_use("out of memory; give less at once (a smaller batch, fewer threads)");
    } catch (const std::exception& e) {
        return bad_use(fmt::format("unexpected error: {}", e.what()));
    }
}
