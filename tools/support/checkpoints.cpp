// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoints.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <thread>

#include "qk/checkpoint.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/quantize.hpp"
#include "qk/systems.hpp"
#include "qk/systems/ggml.hpp"
#include "support/console.hpp"
#include "support/importance.hpp"
#include "support/row_formats.hpp"
#include "support/system_rules.hpp"

namespace qk::tool {
namespace {

/// Runs work on checkpoints; their errors become the tool's.
template <class Work>
auto in_words(Work work) {
    try {
        return work();
    } catch (const checkpoint::error& e) {
        throw graph::error(e.what());
    }
}

std::string shape_words(const std::vector<std::uint64_t>& shape) {
    std::string s = "[";
    for (std::size_t k = 0; k < shape.size(); ++k) s += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
    return s + "]";
}

std::uint64_t stored_bytes(const checkpoint::checkpoint& c, const checkpoint::weight& w) {
    std::uint64_t n = 0;
    for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of})
        if (part != checkpoint::weight::none) n += c.tensors[static_cast<std::size_t>(part)].data.size();
    return n;
}

std::string decibel_words(double db) { return std::isinf(db) ? "" : fmt::format("{:.2f} dB", db); }

/// Reads the requests of a plan file that name tensors or layers and a weight's format.
void add_plan(const std::string& file, checkpoint::requests& asked) {
    const graph::json_cursor read = graph::json_cursor::load(file);
    const nlohmann::json& plan = read.value();
    const auto list = plan.is_object() ? plan.find("requests") : plan.end();
    if (!plan.is_object() || list == plan.end() || !list->is_array()) throw graph::error(file + ": has no list \"requests\"");
    for (const auto& r : *list) {
        const auto word = [&](const char* key) {
            return r.is_object() && r.contains(key) && r[key].is_string() ? r[key].get<std::string>() : std::string();
        };
        const std::string glob = word("tensor").empty() ? word("layer") : word("tensor"),
                          format = word("weight").empty() ? word("format") : word("weight");
        if (format.empty())
            throw graph::error(file + ": a request for a checkpoint has a \"weight\", its format, and a \"tensor\" or \"layer\" it is for");
        if (glob.empty()) asked.format = format;
        else asked.rules.emplace_back(glob, format);
    }
}

/// The rule of qk::systems that makes what a weight of a checkpoint is; null if there is none. Integers and FP8 of any width and groups are
/// the library's own.
const systems::rule* rule_for(std::string_view system, const checkpoint::weight& w) {
    const std::string bits = std::to_string(w.how.bits), group = std::to_string(w.how.group_columns);
    std::string name(system);
    if (system == "compressed-tensors") name = "compressed_tensors";
    if (system == "gpt-oss") return systems::find("torchao.mxfp4_e2m1.floor");
    if (system == "mlx" && w.format.starts_with("int")) return systems::find("mlx.affine" + bits + "_g" + group);
    if (w.format == "mxfp8_e4m3") return systems::find(name + ".mxfp8");
    return systems::find(name + "." + w.format);
}

/// Stores floats as scales of a type.
std::vector<std::byte> as_scales(scale_type type, std::span<const float> x) {
    const auto width = static_cast<std::size_t>(bits_of(type) / 8);
    std::vector<std::byte> out(x.size() * width);
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::uint32_t bits = layout_parts::store_scale(type, x[i]).bits;
        std::memcpy(out.data() + i * width, &bits, width);
    }
    return out;
}

/// Quantizes a matrix by the rule of a system, and takes its planes for the parts of the file.
std::optional<checkpoint::quantized_parts> quantize_matrix(std::string_view system, const checkpoint::weight& w,
                                                           std::span<const float> values) {
    const systems::rule* rule = rule_for(system, w);
    if (rule == nullptr || w.matrix.columns % rule->multiple != 0) return std::nullopt;
    std::vector<float> rounded;  // MLX's weights have the type of their scales
    if (w.how.zero == zero_type::bias) {
        for (const float v : values) rounded.push_back(scale_value(w.how.scale, layout_parts::store_scale(w.how.scale, v).bits));
        values = rounded;
    }
    const systems::result made = rule->convert({.values = values, .rows = w.matrix.rows, .columns = w.matrix.columns});
    checkpoint::quantized_parts parts;
    const auto floats = [](const systems::plane& p) {
        return std::span(reinterpret_cast<const float*>(p.bytes.data()), p.bytes.size() / 4);
    };
    if (const systems::plane* p = made.find("codes")) parts.codes = p->bytes;
    if (const systems::plane* p = made.find("scales")) {
        if (p->kind != systems::plane::type::float32) parts.scales = p->bytes;
        else if (w.how.zero == zero_type::bias) {
            const std::size_t half = p->bytes.size() / 8;
            parts.scales = as_scales(w.how.scale, floats(*p).first(half)), parts.zeros = as_scales(w.how.scale, floats(*p).subspan(half));
        } else parts.scales = as_scales(w.how.scale, floats(*p));
    }
    if (const systems::plane* p = made.find("global"); p != nullptr && p->bytes.size() == 4) std::memcpy(&parts.global, p->bytes.data(), 4);
    if (const systems::plane* p = made.find("zeros")) parts.zeros = p->bytes;
    return parts;
}

/// Gives the library the quantizers of qk::systems.
void use_systems() {
    checkpoint::use_block_quantizers([](ggml_type type) {
        const auto* known = systems::ggml::find(static_cast<int>(type));
        return known == nullptr ? checkpoint::block_quantizer() : checkpoint::block_quantizer(known->quantize);
    });
    checkpoint::use_matrix_quantizer(quantize_matrix);
    checkpoint::use_row_formats(row_format_named);
}

/// The format of every matrix that --format or --system names.
std::string format_asked(const checkpoint_conversion& given) {
    if (given.system.empty()) return given.format;
    if (!given.format.empty()) throw graph::error("--system " + given.system + " names a format, too; leave --format out");
    const systems::rule& rule = system_rule(given.system);
    std::string format(rule.format);
    std::ranges::transform(format, format.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    if (rule.system != "ggml")
        throw graph::error("--system " + given.system +
                           " is for arrays; a checkpoint takes ggml's rules by it, and another system's layout "
                           "and rule by --like FILE");
    return format;
}

/// Reads the importance for a run, and has the library ask it.
void add_importance(const std::string& file, importance_file& importance, const checkpoint::checkpoint& c, checkpoint::requests& asked) {
    if (file.empty()) return;
    importance = importance_file(file, c);
    asked.importance = [&importance](const checkpoint::weight& w, ggml_type type) { return importance.of(w, type); };
    asked.importance_file = file;
}

int threads_of(int asked) { return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

/// Measures formats, with the weights of columns that an importance gives.
std::vector<checkpoint::format_error> measured_formats(const checkpoint::checkpoint& c, const std::vector<std::string>& formats,
                                                       const importance_file& importance, int threads) {
    progress bar("quantizing");
    const auto told = [&](std::uint64_t done, std::uint64_t total) {
        bar.show(static_cast<std::size_t>(done >> 10), static_cast<std::size_t>(std::max<std::uint64_t>(total >> 10, 1)));
    };
    const auto columns = [&](const checkpoint::weight& w) { return importance.of(w); };
    std::vector<checkpoint::format_error> all = checkpoint::measure_formats(c, formats, columns, told, threads_of(threads));
    bool any = false;
    for (const checkpoint::weight& w : c.weights) {
        if (w.shape.size() < 2 || w.problem || w.elements() == 0) continue;
        any = true;
        if (std::ranges::find(all, w.name, &checkpoint::format_error::tensor) == all.end())
            print(stderr, "{}: rows of {} values are no whole blocks of these formats; it stays as it is, {} bytes\n", w.name,
                  w.shape.back(), stored_bytes(c, w));
    }
    if (all.empty())
        throw graph::error(c.path.string() + (any ? " has no matrix whose rows are whole blocks of these formats" : " has no matrices"));
    return all;
}

double decibels_of(const checkpoint::format_error& e) {
    return e.error == 0 ? std::numeric_limits<double>::infinity() : -10 * std::log10(e.relative());
}

nlohmann::ordered_json row_of(const checkpoint::format_error& e) {
    return {{"tensor", e.tensor},
            {"format", e.format},
            {"bytes", e.bytes},
            {"db", e.error == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(decibels_of(e))},
            {"relative_error", e.relative()}};
}

/// Parses "5GB", "500MB" or a number of bytes, as transformers' save_pretrained takes them.
std::uint64_t bytes_of(const std::string& text) {
    const auto wrong = [&] { return graph::error("--shard-size '" + text + "' is not a size above 0, such as 5GB, 500MB or 1000000"); };
    std::size_t end = 0;
    double number = 0;
    try {
        number = std::stod(text, &end);
    } catch (const std::exception&) {
        throw wrong();
    }
    const std::string unit = text.substr(end);
    const double factor = unit.empty() || unit == "B" ? 1 : unit == "KB" ? 1e3 : unit == "MB" ? 1e6 : unit == "GB" ? 1e9 : 0;
    const double bytes = number * factor;
    if (!(bytes >= 1 && bytes < 1e18)) throw wrong();
    return static_cast<std::uint64_t>(bytes);
}

const char* word_of(checkpoint::weight_change::kind k) {
    using enum checkpoint::weight_change::kind;
    return k == kept ? "kept" : k == moved ? "moved" : k == rounded ? "rounded" : "quantized";
}

/// A number that JSON has, or null.
nlohmann::ordered_json finite(double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr); }

/// The line that ends a conversion, on standard error, after whatever else is to be said of it.
void print_changes(const std::string& output, const std::vector<std::string>& notes,
                   const std::vector<checkpoint::weight_change>& changes) {
    for (const std::string& n : notes) print(stderr, "{}\n", n);
    print(stderr, "{}: {}\n", output, checkpoint::words_of(checkpoint::summary_of(changes)));
}

nlohmann::ordered_json json_of(const std::vector<std::string>& notes, const std::vector<checkpoint::weight_change>& changes) {
    const checkpoint::change_summary s = checkpoint::summary_of(changes);
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const checkpoint::weight_change& c : changes) {
        rows.push_back({{"tensor", c.name}, {"from", c.from}, {"to", c.to}, {"how", c.measured ? word_of(c.how) : "unmeasured"}});
        rows.back()["without_loss"] = c.measured && c.without_loss(), rows.back()["db"] = finite(c.decibels());
    }
    const bool differ = s.differing != 0;
    return {{"weights", s.weights},
            {"without_loss", s.without_loss},
            {"rounded", s.rounded},
            {"quantized_anew", s.quantized},
            {"unmeasured", s.unmeasured},
            {"not_finite", s.not_finite},
            {"worst", differ ? nlohmann::ordered_json(s.worst) : nlohmann::ordered_json(nullptr)},
            {"worst_db", differ ? finite(s.worst_decibels) : nlohmann::ordered_json(nullptr)},
            {"mean_db", differ ? finite(s.mean_decibels) : nlohmann::ordered_json(nullptr)},
            {"notes", notes},
            {"rows", rows}};
}

}  // namespace

bool is_checkpoint(const std::string& file) {
    const std::string ending = std::filesystem::path(file).extension().string();
    return ending == ".safetensors" || ending == ".gguf" || file.ends_with(".safetensors.index.json") || file.ends_with("index.json");
}

given_input checkpoint_or(input_kind other, const std::string& file, const std::string& words) {
    if (is_checkpoint(file)) return {input_kind::checkpoint, file + " is a checkpoint"};
    return {other, file + " is " + words};
}

void takes_models(option_table& verb, std::shared_ptr<const std::string> file) {
    verb.takes(input_kind::model, [file = std::move(file)] { return checkpoint_or(input_kind::model, *file, "a model"); });
}
std::vector<std::string> scheme_words() { return checkpoint::scheme_words(); }

void convert_checkpoint(const checkpoint_conversion& given) {
    use_systems();
    in_words([&] {
        checkpoint::requests asked;
        if (!given.plan.empty()) add_plan(given.plan, asked);
        if (const std::string format = format_asked(given); !format.empty()) asked.format = format;
        asked.threads = threads_of(given.threads);
        asked.names_as_they_are = given.names_as_they_are;
        for (const std::string& t : given.tensors) {
            const auto at = t.rfind('=');
            if (at == std::string::npos || at == 0 || at + 1 == t.size())
                throw graph::error("--tensor '" + t + "' is not GLOB=FORMAT, as in '*.mlp.*=q4_k'");
            asked.rules.emplace_back(t.substr(0, at), t.substr(at + 1));
        }
        if (!given.like.empty()) asked.like = given.like;
        if (given.lossless && given.requantize) throw graph::error("--lossless refuses what --requantize asks for; give one of them");
        asked.lossless = given.lossless, asked.requantize = given.requantize;
        asked.to = given.to;
        const checkpoint::checkpoint c = checkpoint::open(given.input);
        graph::output_set files(given.overwrite, false);  // compares names; the library writes
        for (const auto& p : c.paths) files.input("INPUT", p);
        files.input("--like", given.like).input("--plan", given.plan).input("--importance", given.importance);
        const bool npz = given.output.ends_with(".npz");
        if (npz) files.output("OUTPUT", given.output);
        asked.check_output = [&](const std::filesystem::path& p) { files.output("OUTPUT", p); };
        if (!given.shard_size.empty()) {
            if (npz) throw graph::error(given.output + " is one file; --shard-size is for .safetensors and .gguf");
            asked.shard_bytes = bytes_of(given.shard_size);
        }
        if (npz && (!given.like.empty() || !given.to.empty() || !asked.format.empty() || !asked.rules.empty() ||
                    !given.importance.empty() || !given.plan.empty() || given.names_as_they_are))
            throw graph::error(
                given.output +
                " holds float32; --format, --system, --tensor, --plan, --like, --to, --importance and --names-as-they-are are for "
                ".safetensors and .gguf");
        if (!npz && !given.output.ends_with(".safetensors") && !given.output.ends_with(".gguf"))
            throw graph::error(given.output + " ends in none of .npz, .safetensors, .gguf; a checkpoint becomes one of these");
        importance_file importance;
        add_importance(given.importance, importance, c, asked);
        std::vector<std::string> notes = checkpoint::remarks_of(c);
        std::vector<checkpoint::weight_change> changes;
        std::size_t resumed = 0;
        {
            progress bar("converting");
            const auto told = [&](std::uint64_t done, std::uint64_t total) {
                bar.show(static_cast<std::size_t>(done >> 20), static_cast<std::size_t>(std::max<std::uint64_t>(total >> 20, 1)));
            };
            resumed = npz ? checkpoint::write_npz(c, given.output, told, &notes, &changes)
                          : checkpoint::write(c, given.output, asked, notes, told, &changes);
        }
        if (resumed != 0) print(stderr, "{} tensors were there from a run that was stopped\n", resumed);
        importance.say_if_unused();
        print_changes(given.output, notes, changes);
        if (given.json) {
            nlohmann::ordered_json all = {{"checkpoint", given.input}, {"output", given.output}};
            all.update(json_of(notes, changes));
            print_json(all);
        }
        return 0;
    });
}

void inspect_checkpoint(const std::string& file, bool json) {
    in_words([&] {
        const checkpoint::checkpoint c = checkpoint::open(file);
        std::uint64_t values = 0, bytes = 0;
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        std::map<std::string, std::uint64_t> formats;
        for (const checkpoint::weight& w : c.weights) {
            const std::uint64_t n = w.elements(), b = stored_bytes(c, w);
            values += n, bytes += b, ++formats[w.format];
            if (!json) continue;
            rows.push_back(
                {{"name", w.name}, {"format", w.format}, {"shape", w.shape}, {"values", n}, {"bytes", b}, {"quantized", w.quantized}});
            if (w.problem) rows.back()["problem"] = w.problem->sentence;
        }
        if (json) {
            nlohmann::ordered_json all = {{"checkpoint", file}, {"system", c.system}, {"files", nlohmann::ordered_json::array()},
                                          {"values", values},   {"bytes", bytes},     {"formats", formats},
                                          {"weights", rows}};
            for (const auto& p : c.paths) all["files"].push_back(p.string());
            if (!c.config.method.empty())
                all["config"] = {{"file", c.config.file.string()}, {"method", c.config.method}, {"algorithm", c.config.algorithm}};
            print_json(all);
            return 0;
        }
        print("{}: {}, {} tensors in {} file{}, {} weights of {} values in {} bytes", file, c.system, c.tensors.size(), c.paths.size(),
              c.paths.size() == 1 ? "" : "s", c.weights.size(), values, bytes);
        if (values != 0) print(" ({:.2f} bits each)", 8.0 * static_cast<double>(bytes) / static_cast<double>(values));
        print("\nformats");
        for (const auto& [format, count] : formats) print("  {} x {}", count, format);
        if (!c.config.method.empty())
            print("\nconfig   {}: {}{}{}", c.config.file.filename().string(), c.config.method, c.config.algorithm.empty() ? "" : " ",
                  c.config.algorithm);
        print("\n\n{:<60} {:<12} {:<20} {:>14}\n", "weight", "format", "shape", "bytes");
        for (const checkpoint::weight& w : c.weights)
            print("{:<60} {:<12} {:<20} {:>14}{}\n", w.name, w.format, shape_words(w.shape), stored_bytes(c, w),
                  w.problem ? "  " + w.problem->sentence : std::string());
        return 0;
    });
}

bool compare_checkpoints(const std::string& first, const std::string& second, bool json) {
    return in_words([&] {
        const checkpoint::checkpoint a = checkpoint::open(first), b = checkpoint::open(second);
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        std::size_t same = 0, all = 0;
        bool equal = true;
        checkpoint::compare(a, b, [&](const checkpoint::difference& d) {
            ++all;
            const bool values_equal = d.same_bits || (d.problem.empty() && !d.only_first && !d.only_second && d.values_differ == 0);
            same += d.same_bits;
            equal = equal && values_equal;
            std::string what;
            if (d.only_first) what = "only in " + first;
            else if (d.only_second) what = "only in " + second;
            else if (!d.problem.empty()) what = (d.shapes_differ ? "shapes differ: " : "") + d.problem;
            else if (d.same_bits) what = "equal bits";
            else if (d.values_differ == 0) what = "equal values in other layouts";
            else
                what = fmt::format("{} of {} codes and {} values differ, {}", d.codes_differ, d.values, d.values_differ,
                                   std::isinf(d.decibels) ? "only in zeros, NaN or Inf" : decibel_words(d.decibels));
            if (json) {
                rows.push_back({{"tensor", d.name},
                                {"formats", d.formats},
                                {"equal_bits", d.same_bits},
                                {"equal_values", values_equal},
                                {"values", d.values},
                                {"codes_differ", d.codes_differ},
                                {"values_differ", d.values_differ},
                                {"db", std::isfinite(d.decibels) ? nlohmann::ordered_json(d.decibels) : nlohmann::ordered_json(nullptr)},
                                {"says", what}});
            } else print("{:<60} {:<18} {}\n", d.name, d.formats, what);
        });
        if (json)
            print_json({{"first", first}, {"second", second}, {"equal", equal}, {"weights", all}, {"equal_bits", same}, {"tensors", rows}});
        else print("{} of {} weights have equal bits\n", same, all);
        return equal;
    });
}

void rank_formats(const std::string& file, const std::vector<std::string>& formats, const std::string& importance, int threads, bool json) {
    in_words([&] {
        use_systems();
        const checkpoint::checkpoint c = checkpoint::open(file);
        const importance_file columns = importance.empty() ? importance_file() : importance_file(importance, c);
        std::vector<checkpoint::format_error> all = measured_formats(c, formats, columns, threads);
        std::ranges::stable_sort(all, std::greater(), &checkpoint::format_error::relative);
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        if (!json) print("{:<60} {:<10} {:>14} {:>10}\n", "weight", "format", "bytes", "dB");
        for (const auto& e : all) {
            if (json) rows.push_back(row_of(e));
            else print("{:<60} {:<10} {:>14} {:>10.2f}\n", e.tensor, e.format, e.bytes, decibels_of(e));
        }
        if (json) print_json({{"checkpoint", file}, {"rows", rows}});
        return 0;
    });
}

namespace {

/// Prints the choice, and returns its requests as --save-plan writes them.
nlohmann::ordered_json show_choice(const size_search& given, const std::vector<checkpoint::format_error>& all,
                                   const std::vector<std::size_t>& chosen, double budget) {
    std::uint64_t bytes = 0, values = 0;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array(), requests = nlohmann::ordered_json::array();
    for (const std::size_t i : chosen) {
        bytes += all[i].bytes, values += all[i].values;
        rows.push_back(row_of(all[i]));
        requests.push_back({{"tensor", all[i].tensor}, {"weight", all[i].format}});
        if (!given.json) print("{:<60} {:<10} {:>14} {:>10.2f}\n", all[i].tensor, all[i].format, all[i].bytes, decibels_of(all[i]));
    }
    const double bits = values == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(values);
    if (given.json)
        print_json({{"checkpoint", given.input},
                    {"met", !chosen.empty() || all.empty()},
                    {"bytes", bytes},
                    {"budget", budget},
                    {"bits_per_weight", bits},
                    {"rows", rows}});
    else if (chosen.empty()) print("even the smallest of these formats takes more than {:.0f} bytes\n", budget);
    else print("{} bytes of {:.0f}, {:.3f} bits a weight\n", bytes, budget, bits);
    return requests;
}

/// The groups that --share makes of what was measured; a glob that joins nothing is said.
std::vector<std::vector<std::string>> shared_groups(const size_search& given, const checkpoint::checkpoint& c) {
    std::vector<std::vector<std::string>> groups;
    for (const std::string& together : given.share) {
        bool any = false;
        std::vector<std::string> globs(1);
        for (const char ch : together) {
            if (ch == ',') globs.emplace_back();
            else globs.back() += ch;
        }
        for (auto& group : checkpoint::groups_by_layer(c, globs)) any |= group.size() > 1, groups.push_back(std::move(group));
        if (!any) print(stderr, "unused: --share {}: no layer has two weights that fit it\n", together);
    }
    return groups;
}

}  // namespace

bool search_formats(const size_search& given) {
    return in_words([&] {
        use_systems();
        const checkpoint::checkpoint c = checkpoint::open(given.input);
        graph::output_set files(given.overwrite);
        for (const auto& p : c.paths) files.input("MODEL", p);
        files.input("--importance", given.importance).output("--save-plan", given.save_plan).output("-o", given.output);
        if (!given.output.empty() && !given.output.ends_with(".gguf"))
            throw graph::error(given.output + " does not end in .gguf, and ggml's formats have no other place");
        if (!given.output.empty())
            for (const std::string& f : given.formats)
                if (!is_ggml_format(f))
                    throw graph::error("--formats " + f +
                                       " is measured here, and a .gguf has no place for it: leave -o out, and give the choice "
                                       "(--save-plan) to what writes that layout, as qk convert --like FILE does");
        if (!given.output.empty() && !given.names_as_they_are) checkpoint::check_names(c);
        checkpoint::requests asked;
        importance_file importance;
        add_importance(given.importance, importance, c, asked);
        const auto groups = shared_groups(given, c);
        const std::vector<checkpoint::format_error> all = measured_formats(c, given.formats, importance, given.threads);
        std::map<std::string, std::uint64_t> values;
        for (const checkpoint::format_error& e : all) values[e.tensor] = e.values;
        double budget = given.budget;
        if (given.budget_is_bits) {
            budget = 0;
            for (const auto& [tensor, n] : values) budget += static_cast<double>(n);
            budget = std::floor(budget * given.budget / 8);
        }
        const std::vector<std::size_t> chosen = checkpoint::choose_formats(all, static_cast<std::uint64_t>(std::min(budget, 9e18)), groups);
        const nlohmann::ordered_json requests = show_choice(given, all, chosen, budget);
        if (chosen.empty()) return false;
        if (!given.save_plan.empty()) files.write(given.save_plan, nlohmann::ordered_json({{"requests", requests}}).dump(1) + "\n");
        if (given.output.empty()) files.commit();
        else {
            asked.put_others = [&] { files.commit(); };
            for (const std::size_t i : chosen) asked.rules.emplace_back(all[i].tensor, all[i].format);
            asked.threads = threads_of(given.threads);
            asked.names_as_they_are = given.names_as_they_are;
            std::vector<std::string> notes = checkpoint::remarks_of(c);
            std::vector<checkpoint::weight_change> changes;
            checkpoint::write(c, given.output, asked, notes, {}, &changes);
            print_changes(given.output, notes, changes);
        }
        return true;
    });
}

bool lint_checkpoint(const std::string& file, bool json) {
    return in_words([&] {
        const checkpoint::checkpoint c = checkpoint::open(file);
        const std::vector<checkpoint::finding> found = checkpoint::lint(c);
        if (json) {
            nlohmann::ordered_json list = nlohmann::ordered_json::array();
            for (const auto& f : found) list.push_back({{"tensor", f.tensor}, {"kind", f.kind}, {"sentence", f.sentence}});
            print_json({{"checkpoint", file}, {"system", c.system}, {"tensors", c.tensors.size()}, {"findings", list}});
        } else {
            for (const auto& f : found) print("{}: {}: {}\n", f.tensor, f.kind, f.sentence);
            if (found.empty()) print("{}: {} tensors, nothing found\n", file, c.tensors.size());
        }
        return found.empty();
    });
}

}  // namespace qk::tool
