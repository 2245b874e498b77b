// SPDX-License-Identifier: Apache-2.0
// What onnxruntime calls: RegisterCustomOps, and the operators that it registers. docs/reference/portable_functions.md.
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onnxruntime/api.hpp"
#include "onnxruntime/kernel.hpp"
#include "onnxruntime/meaning.hpp"
#include "onnxruntime/model_functions.hpp"
#include "onnxruntime/quark.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/catalogue.hpp"
#include "qk/onnxruntime.h"
#include "qk/portable/function.hpp"

namespace qk::onnxruntime {
namespace {

/// The entry of session options that says which domain they have.
constexpr const char* registered_entry = "qk.onnxruntime.registered";

/// How many functions of one format are known by name: qk numbers those that differ in semantics or in how they see blocks. A session takes
/// longer to be made with each operator that it knows.
constexpr int most_of_a_format = 4;

/// The operator that takes the place of the functions of one name.
struct operation : OrtCustomOp {
    std::string name;
    function_kind kind;

    explicit operation(std::string of);
};

/// A node's operator.
struct kernel {
    const OrtApi& api;
    std::string node;
    function_kind kind;
    call_meaning meaning;
    constant_scales scales;
};

const operation& of(const OrtCustomOp* op) { return *static_cast<const operation*>(op); }

OrtStatus* make_kernel(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** made) noexcept {
    const std::string node = node_name(*api, info);
    return as_status(*api, [&] {
        try {
            auto own = std::make_unique<kernel>(kernel{*api, node, of(op).kind, read_meaning(*api, info, of(op).kind.result), {}});
            const auto constant = [&](std::size_t i) { return constant_of(*api, info, i); };
            if (own->kind.result == portable::result_shape::shape) own->scales = look_at_constants(own->meaning, 0, constant);
            if (own->kind.result == portable::result_shape::product)
                own->scales = look_at_constants(own->meaning, own->meaning.bias ? 2 : 1, constant);
            *made = own.release();
        } catch (const refusal& e) {
            throw refusal("qk: node '" + node + "' calls function '" + of(op).name + "': " + e.what());
        }
    });
}

OrtStatus* compute(void* k, OrtKernelContext* context) noexcept {
    const kernel& own = *static_cast<const kernel*>(k);
    return as_status(own.api, [&] {
        try {
            run_context run(own.api, context);
            switch (own.kind.result) {
                case portable::result_shape::input: return quantize(own.meaning, run);
                case portable::result_shape::shape: return decode(own.meaning, own.scales, run);
                case portable::result_shape::product: return product(own.meaning, own.scales, own.kind.type, run);
                case portable::result_shape::rows: return rows(own.meaning, run);
            }
        } catch (const refusal& e) {
            throw refusal("qk: node '" + own.node + "': " + e.what());
        }
    });
}

operation::operation(std::string of_function) : OrtCustomOp{}, name(std::move(of_function)), kind(kind_of(name)) {
    fill_operation(*this);
    GetName = [](const OrtCustomOp* op) { return of(op).name.c_str(); };
    // x, scale, zero point; or codes, scales, shifts, scale, zero points, of which a call has what its format has; or x and a bias, or
    // indices, before those.
    GetInputTypeCount = [](const OrtCustomOp* op) -> std::size_t {
        switch (of(op).kind.result) {
            case portable::result_shape::input: return 3;
            case portable::result_shape::shape: return 5;
            case portable::result_shape::product: return 7;
            case portable::result_shape::rows: return 6;
        }
        return 0;
    };
    GetInputType = [](const OrtCustomOp* op, std::size_t i) {
        if (i > 0 || of(op).kind.result == portable::result_shape::rows) return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        return of(op).kind.result == portable::result_shape::shape ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 : of(op).kind.type;
    };
    GetInputCharacteristic = [](const OrtCustomOp*, std::size_t i) { return i > 0 ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED; };
    GetOutputType = [](const OrtCustomOp* op, std::size_t) { return of(op).kind.type; };
    CreateKernelV2 = make_kernel;
    KernelComputeV2 = compute;
    KernelDestroy = [](void* k) { delete static_cast<kernel*>(k); };
}

/// The names of functions that need no model: those of the catalogue's formats.
std::vector<std::string> known_functions() {
    std::vector<std::string> names;
    for (const named_format& f : catalogue) {
        if (is_identity(f.format) || f.format == qk::format(e8m0)) continue;
        const std::string format(f.name), decoder = std::string(portable::decodes).append(format).append(portable::in_each_run),
                                          product = std::string(portable::products).append(format),
                                          rows = std::string(portable::rows_of_tables).append(format);
        for (const std::string& stem : {format, decoder, product, rows, std::string(product).append(portable::of_float16),
                                        std::string(product).append(portable::of_bfloat16)}) {
            names.push_back(stem);
            for (int i = 2; i <= most_of_a_format; ++i) names.push_back(stem + "_" + std::to_string(i));
        }
    }
    return names;
}

/// Makes a domain of operators, which are still to come, and gives it to session options.
OrtCustomOpDomain* add_domain(const OrtApi& api, OrtSessionOptions* options, const char* name) {
    OrtCustomOpDomain* made = nullptr;
    expect(api, api.CreateCustomOpDomain(name, &made));
    expect(api, api.AddCustomOpDomain(options, made));
    return made;
}

/// A model of one Identity, which no session runs.
constexpr std::string_view smallest_model(
    "\x08\x08"
    ":+\n\x10\n\x01x\x12\x01y\"\x08Identity\x12\x01gZ\t\n\x01x\x12\x04\n\x02\x08\x01"
    "b\t\n\x01y\x12\x04\n\x02\x08\x01"
    "B\x02\x10\r",
    51);

/// Makes a session that has qk's domains, and lets it go. onnxruntime notes the name of a domain when the first session that has it is
/// made, and of two threads that do so at once one fails ("the domain is already exist", its issue 26366). After this session the names are
/// noted. Where Python has an environment of its own (onnxruntime 1.17) there can be no other, and nothing is made.
void note_domains(const OrtApi& api) {
    OrtEnv* env = nullptr;
    OrtSessionOptions* options = nullptr;
    OrtSession* session = nullptr;
    std::vector<OrtCustomOpDomain*> domains;
    if (!succeeded(api, api.CreateEnv(ORT_LOGGING_LEVEL_ERROR, "qk", &env))) return;
    expect(api, api.CreateSessionOptions(&options));
    expect(api, api.SetIntraOpNumThreads(options, 1));
    domains.push_back(add_domain(api, options, "qk"));
    for (const char* name : quark_domains) domains.push_back(add_domain(api, options, name));
    if (succeeded(api, api.CreateSessionFromArray(env, smallest_model.data(), smallest_model.size(), options, &session)))
        api.ReleaseSession(session);
    api.ReleaseSessionOptions(options);
    for (OrtCustomOpDomain* domain : domains) api.ReleaseCustomOpDomain(domain);
    api.ReleaseEnv(env);
}

/// The domains that session options were given, one each. They live as long as the process, since sessions may; an operator is shared.
class domains {
  public:
    /// Adds the operators of these names to those that the options have.
    void add(const OrtApi& api, OrtSessionOptions* options, const std::vector<std::string>& names) {
        const std::lock_guard lock(mutex_);
        if (!noted_by_.contains(&api)) {
            note_domains(api);
            noted_by_.insert(&api);
        }
        const std::string entry = entry_of(api, options);
        std::size_t number = entry.empty() ? given_.size() : std::stoul(entry);
        if (number >= given_.size()) {
            number = given_.size();
            given_.push_back({add_domain(api, options, "qk"), {}});
            for (const char* name : quark_domains) add_quark(api, options, name);
            expect(api, api.AddSessionConfigEntry(options, registered_entry, std::to_string(number).c_str()));
        }
        for (const std::string& name : names) {
            if (!given_[number].names.insert(name).second) continue;
            const auto op = operations_.try_emplace(name, nullptr).first;
            if (op->second == nullptr) op->second = std::make_unique<operation>(name);
            expect(api, api.CustomOpDomain_Add(given_[number].domain, op->second.get()));
        }
    }

  private:
    static void add_quark(const OrtApi& api, OrtSessionOptions* options, const char* name) {
        OrtCustomOpDomain* made = add_domain(api, options, name);
        for (const OrtCustomOp* op : quark_operations()) expect(api, api.CustomOpDomain_Add(made, op));
    }

    static std::string entry_of(const OrtApi& api, const OrtSessionOptions* options) {
        int there = 0;
        expect(api, api.HasSessionConfigEntry(options, registered_entry, &there));
        if (there == 0) return {};
        std::size_t size = 0;
        expect(api, api.GetSessionConfigEntry(options, registered_entry, nullptr, &size));
        std::string value(size, '\0');
        expect(api, api.GetSessionConfigEntry(options, registered_entry, value.data(), &size));
        value.resize(std::min(value.find_first_not_of("0123456789"), value.size()));
        return value.substr(0, 9);
    }

    struct given {
        OrtCustomOpDomain* domain;
        std::set<std::string> names;
    };
    std::mutex mutex_;
    std::set<const OrtApi*> noted_by_;
    std::vector<given> given_;
    std::map<std::string, std::unique_ptr<operation>> operations_;
};

void register_with(const OrtApi& api, OrtSessionOptions* options, const std::vector<std::string>& names) {
    if (dispatch::problem() != nullptr && std::string_view(dispatch::architecture()) == "none") throw refusal(dispatch::problem());
    static domains& all = *new domains;
    all.add(api, options, names);
}

const OrtApi& interface_of(const OrtApiBase& base) {
    const OrtApi* api = base.GetApi(interface_version);
    if (api == nullptr) throw refusal(std::string("qk's operators need onnxruntime 1.17 or later; this is ") + base.GetVersionString());
    return *api;
}

/// What went wrong for qk_onnxruntime_problem(), and the functions of the file that qk_onnxruntime_model() looked at.
thread_local std::string problem;
thread_local std::optional<std::vector<std::string>> of_model;

template <class Work>
int told(const Work& work) noexcept {
    try {
        work();
        return 0;
    } catch (const std::exception& e) {
        problem = e.what();
        return 1;
    }
}

}  // namespace
}  // namespace qk::onnxruntime

using namespace qk::onnxruntime;

extern "C" {

__attribute__((visibility("default"))) OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
    // The first members of every version are the same: what a runtime of before 17 is told goes through them.
    const OrtApi* api = base->GetApi(interface_version);
    if (api == nullptr) api = base->GetApi(1);
    return as_status(*api, [&] {
        const auto names = std::exchange(of_model, std::nullopt);
        register_with(interface_of(*base), options, names ? *names : known_functions());
    });
}

int qk_onnxruntime_register(void* session_options, const char* model) {
    return told([&] {
        if (session_options == nullptr) throw refusal("the session options are a null pointer");
        using base_of = const OrtApiBase*(ORT_API_CALL*)();
        const auto find = reinterpret_cast<base_of>(dlsym(RTLD_DEFAULT, "OrtGetApiBase"));
        if (find == nullptr)
            throw refusal(
                "this process shows no OrtGetApiBase: link onnxruntime, or register the library by its path "
                "(RegisterCustomOpsLibrary_V2)");
        const auto names = model == nullptr ? known_functions() : functions_of(model);
        register_with(interface_of(*find()), static_cast<OrtSessionOptions*>(session_options), names);
    });
}

int qk_onnxruntime_model(const char* model) {
    of_model.reset();
    return told([&] { of_model = functions_of(model == nullptr ? "" : model); });
}

const char* qk_onnxruntime_problem(void) { return problem.c_str(); }
}
