// SPDX-License-Identifier: Apache-2.0
// The verbs that this build has, and what those say that need a component which it leaves out.
#include <string>
#include <string_view>

#include "qk/graph/error.hpp"
#include "verbs.hpp"

#ifdef QK_HAVE_HARDWARE
#include "qk/graph/hardware.hpp"
#endif
#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

namespace qk::tool {
namespace {

[[noreturn, maybe_unused]] void left_out(const std::string& what, const char* component, const char* option) {
    throw graph::error(what + " needs the component " + component + ", which this build leaves out; configure qk with -D" + option + "=ON");
}

}  // namespace

void need_hardware([[maybe_unused]] const std::string& what) {
#ifndef QK_HAVE_HARDWARE
    left_out(what, "hardware", "QK_BUILD_HARDWARE");
#endif
}
void need_learn([[maybe_unused]] const std::string& what) {
#ifndef QK_HAVE_LEARN
    left_out(what, "learn", "QK_BUILD_LEARN");
#endif
}

void enter_components() {
#ifdef QK_HAVE_HARDWARE
    hardware::enter();
#endif
#ifdef QK_HAVE_LEARN
    learn::enter();
#endif
}

void add_verbs(command& app, verb_result& result, [[maybe_unused]] std::string_view word) {
#define QK_VERB(name) add_##name(app, result);
#ifdef QK_HAVE_HARDWARE
#define QK_HARDWARE_VERB(name) QK_VERB(name)
#else
#define QK_HARDWARE_VERB(name) \
    if (word == #name) need_hardware("`qk " #name "`");
#endif
#ifdef QK_HAVE_LEARN
#define QK_LEARN_VERB(name) QK_VERB(name)
#else
#define QK_LEARN_VERB(name) \
    if (word == #name) need_learn("`qk " #name "`");
#endif
#include "verbs.inc"
#undef QK_VERB
#undef QK_HARDWARE_VERB
#undef QK_LEARN_VERB
}

}  // namespace qk::tool
