// SPDX-License-Identifier: Apache-2.0
// The command's verbs, run inside this process. A call has a thread of its own, so that Python's thread can wait for it, show its progress
// and hear Ctrl-C. Functions of the user's that measure are called from that thread, with the interpreter's lock.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "arrays.hpp"
#include "graph/model/model_bytes.hpp"
#include "graph/ops/elements.hpp"
#include "graph/pipeline/trial_scorer.hpp"
#include "interpreter_lock.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "support/caller.hpp"

namespace qk::python {
namespace {

using graph::tensor;

nb::dlpack::dtype type_of(graph::data_type t) {
    using graph::data_type;
    switch (t) {
        case data_type::float32: return nb::dtype<float>();
        case data_type::float64: return nb::dtype<double>();
        case data_type::float16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
        case data_type::int8:
        case data_type::int4:
        case data_type::int2: return nb::dtype<std::int8_t>();  // one code in a byte
        case data_type::uint8:
        case data_type::uint4:
        case data_type::uint2: return nb::dtype<std::uint8_t>();
        case data_type::int16: return nb::dtype<std::int16_t>();
        case data_type::uint16: return nb::dtype<std::uint16_t>();
        case data_type::int32: return nb::dtype<std::int32_t>();
        case data_type::uint32: return nb::dtype<std::uint32_t>();
        case data_type::int64: return nb::dtype<std::int64_t>();
        case data_type::uint64: return nb::dtype<std::uint64_t>();
        case data_type::boolean: return nb::dtype<bool>();
        default: return {0, 0, 0};
    }
}

graph::data_type type_of(nb::dlpack::dtype t) {
    using graph::data_type;
    for (int i = 1; i <= static_cast<int>(data_type::uint64); ++i)
        if (const nb::dlpack::dtype own = type_of(static_cast<data_type>(i)); own.bits != 0 && own == t) return static_cast<data_type>(i);
    throw nb::type_error("an array holds a type that no model takes; give integers, bool, float16, float32 or float64");
}

/// Is true when a vector load that begins inside the array and ends behind it touches no page but the array's own.
bool has_room_behind(const std::byte* end) {
    constexpr std::uintptr_t page = 4096, vector = 64;
    const std::uintptr_t into = reinterpret_cast<std::uintptr_t>(end) % page;
    return into != 0 && into + vector <= page;
}

/// Returns an array (contiguous, in the machine's byte order) as a tensor, without a copy where it can be read as tensors are.
tensor to_tensor(const nb::handle& given) {
    const auto array = shared_with_threads(nb::cast<nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>>(given));
    graph::dims shape;
    for (std::size_t i = 0; i < array->ndim(); ++i) shape.push_back(static_cast<std::int64_t>(array->shape(i)));
    const auto* bytes = static_cast<const std::byte*>(array->data());
    if (array->nbytes() > 0 && has_room_behind(bytes + array->nbytes()))
        return {type_of(array->dtype()), shape, std::shared_ptr<std::byte>(array, const_cast<std::byte*>(bytes))};
    tensor copy(type_of(array->dtype()), shape);
    if (array->nbytes() > 0) std::memcpy(copy.bytes(), bytes, array->nbytes());
    return copy;
}

/// Returns a list of batches, dictionaries of arrays by input.
graph::pipeline::data_source to_data(const nb::handle& batches) {
    std::vector<graph::named_tensors> all;
    for (const nb::handle batch : batches) {
        graph::named_tensors& own = all.emplace_back();
        for (const auto [name, array] : nb::cast<nb::dict>(batch)) own.emplace(nb::cast<std::string>(name), to_tensor(array));
    }
    if (all.size() == 1) return std::move(all.front());
    return [given = std::move(all), at = std::size_t{0}](graph::named_tensors& batch) mutable {
        if (at == given.size()) return false;
        batch = std::move(given[at++]);
        return true;
    };
}

/// Gives the caller what Python has in memory: {"model": bytes, "inputs" and "calibration": batches, "labels" and "vector": arrays,
/// "expected": arrays by output}.
void take_memory(tool::caller& caller, const nb::dict& memory) {
    for (const auto [key, value] : memory) {
        const std::string name = nb::cast<std::string>(key);
        if (name == "model") {
            const nb::bytes held = nb::cast<nb::bytes>(value);
            caller.model = graph::pipeline::model_source::of_bytes(std::string_view(held.c_str(), held.size()), shared_with_threads(held));
        } else if (name == "expected") {
            for (const auto [output, array] : nb::cast<nb::dict>(value))
                caller.expected.emplace(nb::cast<std::string>(output), to_tensor(array));
        } else if (name == "labels" || name == "vector") {
            (name == "labels" ? caller.labels : caller.vector) = to_tensor(value);
        } else {
            (name == "inputs" ? caller.inputs : caller.calibration) = to_data(value);
        }
    }
}

/// Returns a tensor as a numpy array that shares its memory (read-only, unless `Numpy` says otherwise). A type that numpy lacks becomes
/// float32.
template <class Numpy = nb::ndarray<nb::numpy, nb::ro>>
nb::object to_numpy(const tensor& t) {
    auto owner = std::make_unique<tensor>(t);
    nb::dlpack::dtype type = type_of(t.type());
    if (type.bits == 0) {
        auto wide = std::make_unique<tensor>(graph::data_type::float32, t.shape());
        graph::ops::read_elements(t.type(), t.bytes(), wide->as<float>());
        owner = std::move(wide);
        type = nb::dtype<float>();
    }
    std::vector<std::size_t> shape;
    for (const std::int64_t d : t.shape()) shape.push_back(static_cast<std::size_t>(d));
    std::byte* memory = owner->bytes();
    const nb::capsule keeps(owner.release(), [](void* p) noexcept { delete static_cast<tensor*>(p); });
    return nb::cast(Numpy(memory, shape.size(), shape.data(), keeps, nullptr, type));
}

/// Returns a tensor as an array that its owner may write to: one whose memory is somebody else's, too, is copied.
nb::object to_own_numpy(const tensor& t) {
    using writable = nb::ndarray<nb::numpy>;
    if (t.size() == 0 || t.buffer().use_count() == 1) return to_numpy<writable>(t);
    tensor copy(t.type(), t.shape());
    std::memcpy(copy.bytes(), t.bytes(), t.size_bytes());
    return to_numpy<writable>(copy);
}

nb::bytes to_bytes(const std::string& s) { return nb::bytes(s.data(), s.size()); }

nb::list to_list(std::span<const tensor> all) {
    nb::list list;
    for (const tensor& t : all) list.append(to_numpy(t));
    return list;
}

double to_number(const nb::object& answer) {
    const double value = or_rest([&] { return PyFloat_AsDouble(answer.ptr()); });
    if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
}

/// Returns a metric that calls a function of Python's, which must outlive it.
graph::outputs_metric outputs_metric_of(const nb::object& function, bool outputs_alone) {
    return [&function, outputs_alone](std::span<const tensor> outputs, std::span<const tensor> reference,
                                      std::span<const std::int64_t> labels) {
        return in_python([&] {
            if (outputs_alone) return to_number(called(function, to_list(outputs)));
            nb::object classes = nb::none();
            if (!labels.empty()) classes = to_numpy(graph::make_tensor<std::int64_t>({static_cast<std::int64_t>(labels.size())}, labels));
            return to_number(called(function, to_list(outputs), to_list(reference), classes));
        });
    };
}

/// What the user gave to a verb that measures, and how.
struct measures {
    nb::object metric, evaluate, elsewhere, multiply;
    bool outputs_alone = false, evaluates_file = false;
};

/// A verb that runs in a thread of its own.
class running_verb {
  public:
    running_verb(std::vector<std::string> words, std::string command, measures given, const nb::dict& memory, bool keeps_results)
        : given_(std::move(given)) {
        take_memory(caller_, memory);
        caller_.keeps_results = keeps_results;
        caller_.command = std::move(command);
        caller_.print = [this](std::FILE* to, std::string_view text) {
            const std::scoped_lock lock(mutex_);
            (to == stdout ? output_ : remarks_) += text;
        };
        caller_.progress = [this](std::string_view what, std::size_t done, std::size_t all) {
            if (caller_.interrupted && !what.starts_with("searching")) throw graph::pipeline::cancelled();
            const std::scoped_lock lock(mutex_);
            what_ = what;
            done_ = done;
            all_ = all;
        };
        for (const nb::object& function : {given_.metric, given_.evaluate})
            if (!function.is_none()) caller_.measure_name = nb::cast<std::string>(function.attr("title"));
        if (!given_.metric.is_none()) caller_.measure_outputs = outputs_metric_of(given_.metric, given_.outputs_alone);
        caller_.measures_any_samples = !given_.outputs_alone;  // a function of the outputs alone may know the labels
        if (!given_.evaluate.is_none()) caller_.measure_model = [this](const graph::model& m) { return measured(m); };
        if (!given_.elsewhere.is_none())
            caller_.elsewhere = [this](std::span<const graph::precision_plan> plans) { return measured_elsewhere(plans); };
        if (!given_.multiply.is_none())
            caller_.multiply = [this](const std::vector<graph::named_tensor>& operands) { return multiplied(operands); };
        worker_ = std::thread([this, all = std::move(words)] { run(all); });
    }
    ~running_verb() {
        interrupt();
        const without_lock others_may_run;
        worker_.join();
    }
    running_verb(const running_verb&) = delete;
    running_verb& operator=(const running_verb&) = delete;

    bool wait(double seconds) {
        const without_lock others_may_run;
        std::unique_lock lock(mutex_);
        return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return is_done_; });
    }
    void interrupt() { caller_.interrupted = true; }
    std::tuple<std::string, std::size_t, std::size_t> progress() {
        const std::scoped_lock lock(mutex_);
        return {what_, done_, all_};
    }
    /// Returns exit status, standard output, remarks; throws what the verb threw. Nothing printed: it was cancelled.
    std::tuple<int, std::string, std::string> result() {
        if (failed_) std::rethrow_exception(failed_);
        return {status_, output_, remarks_};
    }

    /// Returns what the verb made in memory, by its name; once.
    nb::dict kept() {
        tool::kept_results& from = caller_.results;
        nb::dict d;
        if (!from.model.empty()) d["model"] = to_bytes(from.model);
        if (from.underneath) d["model"] = to_bytes(graph::serialized(from.underneath->proto()));
        if (!from.statistics.empty()) d["statistics"] = to_bytes(from.statistics);
        if (!from.plan.empty()) d["plan"] = from.plan;
        nb::dict lists, arrays;
        for (const graph::named_tensor& t : from.lists) lists[t.name.c_str()] = to_own_numpy(t.value);
        for (const auto& [name, value] : from.arrays) arrays[nb::cast(name)] = to_own_numpy(value);
        if (!from.text.empty()) d["text"] = from.text;
        if (lists.size() > 0) d["lists"] = lists;
        if (arrays.size() > 0) d["arrays"] = arrays;
        from = {};
        return d;
    }

  private:
    /// Returns what the user's function says of a model: of its bytes, or of a file.
    double measured(const graph::model& m) const {
        if (!given_.evaluates_file) {
            const std::string bytes = graph::serialized(m.proto());
            return in_python([&] { return to_number(called(given_.evaluate, to_bytes(bytes))); });
        }
        const graph::temporary_folder folder("qk-eval", "eval_func", {"/dev/shm"});
        const std::string file = (folder / "model.onnx").string();
        m.save(file);
        return in_python([&] { return to_number(called(given_.evaluate, nb::cast(file))); });
    }

    std::vector<graph::score> measured_elsewhere(std::span<const graph::precision_plan> plans) const {
        std::vector<std::string> texts;
        for (const graph::precision_plan& p : plans) texts.push_back(graph::json_text(graph::to_json(p)));
        return in_python([&] {
            std::vector<graph::score> scores;
            for (const nb::handle h : called(given_.elsewhere, nb::cast(texts))) {
                const nb::tuple pair = nb::cast<nb::tuple>(h);
                scores.push_back({to_number(nb::borrow(pair[0])), to_number(nb::borrow(pair[1]))});
            }
            return scores;
        });
    }

    /// Returns what the user's device makes of operands, by their names.
    tensor multiplied(const std::vector<graph::named_tensor>& operands) const {
        return in_python([&] {
            nb::dict arrays;
            for (const graph::named_tensor& t : operands) arrays[t.name.c_str()] = to_numpy(t.value);
            return to_tensor(called(given_.multiply, arrays));
        });
    }

    void run(const std::vector<std::string>& words) {
        try {
            status_ = static_cast<int>(tool::run_for(caller_, words).status);
        } catch (const graph::pipeline::cancelled&) {
            status_ = -1;
        } catch (...) {
            failed_ = std::current_exception();
        }
        {
            const std::scoped_lock lock(mutex_);
            is_done_ = true;
        }
        ended_.notify_all();
    }

    measures given_;
    tool::caller caller_;
    std::mutex mutex_;
    std::condition_variable ended_;
    std::string output_, remarks_, what_;
    std::size_t done_ = 0, all_ = 0;
    int status_ = 0;
    bool is_done_ = false;
    std::exception_ptr failed_;
    std::thread worker_;
};

/// One run of a verb, as Python sees it. Its end waits for the verb's thread, but not where the interpreter ends: there the thread may be
/// resting for the interpreter's lock, and nobody would wake it.
class call {
  public:
    call(std::vector<std::string> words, std::string command, nb::object metric, nb::object evaluate, bool outputs_alone,
         bool evaluates_file, nb::object elsewhere, nb::object multiply, const nb::dict& memory, bool keeps_results) {
        if (Py_IsInitialized() == 0) throw nb::builtin_exception(nb::exception_type::runtime_error, "qk runs no verb while Python ends");
        verb_ = std::make_unique<running_verb>(
            std::move(words), std::move(command),
            measures{std::move(metric), std::move(evaluate), std::move(elsewhere), std::move(multiply), outputs_alone, evaluates_file}, memory,
            keeps_results);
    }
    ~call() {
        if (Py_IsInitialized() != 0) return;
        verb_->interrupt();
        static_cast<void>(verb_.release());
    }
    call(const call&) = delete;
    call& operator=(const call&) = delete;

    bool wait(double seconds) { return verb_->wait(seconds); }
    void interrupt() { verb_->interrupt(); }
    std::tuple<std::string, std::size_t, std::size_t> progress() { return verb_->progress(); }
    std::tuple<int, std::string, std::string> result() { return verb_->result(); }
    nb::dict kept() { return verb_->kept(); }

  private:
    std::unique_ptr<running_verb> verb_;
};

/// Measures trials of a search that runs in another process: prepared once for the words of its verb.
class trials {
  public:
    trials(std::vector<std::string> words, nb::object metric, bool outputs_alone) : metric_(std::move(metric)) {
        tool::caller caller;
        caller.print = [](std::FILE*, std::string_view) {};
        if (!metric_.is_none()) caller.measure_outputs = outputs_metric_of(metric_, outputs_alone);
        struct taken {};
        caller.take_settings = [this](const graph::pipeline::mix_settings& settings) {
            scorer_.emplace(settings);
            throw taken{};
        };
        const without_lock others_may_run;
        try {
            tool::run_for(caller, std::move(words));
        } catch (const taken&) {
        }
    }
    std::vector<std::tuple<double, double>> scores(const std::vector<std::string>& plans) {
        const without_lock others_may_run;
        const std::scoped_lock lock(one_);
        std::vector<std::tuple<double, double>> all;
        for (const graph::score& s : (*scorer_)(plans)) all.emplace_back(s.metric, s.error);
        return all;
    }

  private:
    nb::object metric_;
    std::optional<graph::pipeline::trial_scorer> scorer_;
    std::mutex one_;
};

nb::object default_of(const tool::destination& to) {
    return std::visit(
        [](const auto& p) -> nb::object {
            using T = std::decay_t<decltype(p)>;
            if constexpr (std::is_same_v<T, std::function<void(double)>>) {
                return nb::none();
            } else {
                return nb::cast(*p);
            }
        },
        to);
}

const char* kind_of(const tool::option& o) {
    if (o.is_flag()) return "flag";
    if (o.is_list()) return "list";
    if (!o.is_number()) return "text";
    return o.shown_value() == "N" || std::holds_alternative<int*>(o.to) || std::holds_alternative<std::uint64_t*>(o.to) ||
                   std::holds_alternative<std::optional<int>*>(o.to) || std::holds_alternative<std::optional<std::uint64_t>*>(o.to)
               ? "whole"
               : "number";
}

/// Returns every verb with its options, from the table that the command reads.
nb::dict verbs() {
    tool::verb_result result;
    tool::command app("qk", "", QK_VERSION);
    tool::add_verbs(app, result, {});
    nb::dict all;
    for (const tool::option_table& verb : app.verbs()) {
        nb::list options;
        for (const tool::option& o : verb.options()) {
            nb::dict d;
            d["name"] = o.name;
            d["short"] = o.short_name;
            d["kind"] = kind_of(o);
            d["text"] = o.text;
            d["value"] = o.shown_value();
            d["words"] = o.words;
            d["only_words"] = o.only_words;
            d["alone"] = o.value_alone;
            d["default"] = default_of(o.to);
            d["separator"] = o.separator == 0 ? std::string() : std::string(1, o.separator);
            d["single"] = o.is_single;
            d["argument"] = o.is_argument();
            d["required"] = o.is_required;
            d["reads"] = o.is_input;
            d["writes"] = o.is_output;
            options.append(d);
        }
        nb::dict entry;
        entry["summary"] = verb.summary();
        entry["footer"] = verb.footer();
        entry["options"] = options;
        all[verb.name().c_str()] = entry;
    }
    return all;
}

int run_program(std::vector<std::string> words) {
    std::vector<char*> pointers;
    for (std::string& w : words) pointers.push_back(w.data());
    pointers.push_back(nullptr);
    const without_lock others_may_run;
    return tool::run_program(static_cast<int>(words.size()), pointers.data());
}

}  // namespace

void add_verbs(nb::module_& m) {
    tool::enter_components();
    nb::class_<call>(m, "Call", nb::is_weak_referenceable())
        .def(nb::init<std::vector<std::string>, std::string, nb::object, nb::object, bool, bool, nb::object, nb::object, const nb::dict&,
                      bool>(),
             nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(),
             nb::arg())
        .def("wait", &call::wait)
        .def("interrupt", &call::interrupt)
        .def("progress", &call::progress)
        .def("result", &call::result)
        .def("kept", &call::kept);
    nb::class_<trials>(m, "Trials")
        .def(nb::init<std::vector<std::string>, nb::object, bool>(), nb::arg(), nb::arg().none(), nb::arg())
        .def("scores", &trials::scores);
    m.def("verbs", &verbs);
    m.def("run_program", &run_program);
    m.def("read_file", [](const std::string& file) { return to_bytes(graph::read_file(file)); });
    m.def("write_files", [](const std::vector<std::tuple<std::string, nb::bytes>>& all) {
        graph::output_set files;
        for (const auto& [file, content] : all) files.output("file", file);
        for (const auto& [file, content] : all) files.write(file, {content.c_str(), content.size()});
        files.commit();
    });
    m.def("files_of_model", [](const std::string& file) {
        std::vector<std::string> names;
        for (const std::filesystem::path& p : graph::files_of_model(file).all)
            if (std::ranges::find(names, p.string()) == names.end()) names.push_back(p.string());
        return names;
    });
}

}  // namespace qk::python
