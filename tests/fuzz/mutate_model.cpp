// SPDX-License-Identifier: Apache-2.0
// Definition of mutate_model.hpp, by reflection: names of messages appear only where a field is worth more than a random change.
#include "mutate_model.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace qk_fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct place {
    Message* message;
    const FieldDescriptor* field;
};

class mutator {
  public:
    mutator(onnx::ModelProto& m, const onnx::ModelProto& donor, random_source& random, byte_mutator change_bytes)
        : random_(random), change_bytes_(change_bytes) {
        collect(m);
        collect_names(m);
        collect_donors(donor);
    }

    void change_one() {
        if (places_.empty()) return;
        // Every collected field is as likely as another; a list counts once.
        const place& p = places_[below(places_.size())];
        const Message& m = *p.message;
        const auto* r = m.GetReflection();
        if (!p.field->is_repeated()) {
            if (below(12) == 0) return r->ClearField(p.message, p.field);
            return change(p, -1);
        }
        const int n = r->FieldSize(m, p.field);
        switch (below(n == 0 ? 2 : 8)) {
            case 0: return add(p);
            case 1: return add_from_donor(p);
            case 2: return r->RemoveLast(p.message, p.field);
            case 3: return r->SwapElements(p.message, p.field, index(n), index(n));
            case 4: {
                r->SwapElements(p.message, p.field, index(n), n - 1);
                return r->RemoveLast(p.message, p.field);
            }
            default: return change(p, index(n));
        }
    }

  private:
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }
    int index(int n) { return static_cast<int>(below(static_cast<std::size_t>(n))); }

    void collect(Message& m) {
        const auto* d = m.GetDescriptor();
        const auto* r = m.GetReflection();
        for (int i = 0; i < d->field_count(); ++i) {
            const FieldDescriptor* f = d->field(i);
            if (f->name() == "doc_string" || f->name() == "metadata_props" || f->name() == "training_info") continue;
            const bool present = f->is_repeated() ? r->FieldSize(m, f) > 0 : r->HasField(m, f);
            if (present || (random_() & 7) == 0) places_.push_back({&m, f});
            if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || !present) continue;
            if (!f->is_repeated()) collect(*r->MutableMessage(&m, f));
            else
                for (int k = 0; k < r->FieldSize(m, f); ++k) collect(*r->MutableRepeatedMessage(&m, f, k));
        }
    }

    void collect_names(const onnx::ModelProto& m) {
        const auto& g = m.graph();
        names_.push_back("");
        for (const auto& v : g.input()) names_.push_back(v.name());
        for (const auto& v : g.output()) names_.push_back(v.name());
        for (const auto& t : g.initializer()) names_.push_back(t.name());
        for (const auto& n : g.node()) {
            names_.insert(names_.end(), n.output().begin(), n.output().end());
            for (const auto& a : n.attribute()) attribute_names_.push_back(a.name());
        }
    }

    void collect_donors(const Message& m) {
        const auto* d = m.GetDescriptor();
        const auto* r = m.GetReflection();
        for (int i = 0; i < d->field_count(); ++i) {
            const FieldDescriptor* f = d->field(i);
            if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
            const int n = f->is_repeated() ? r->FieldSize(m, f) : r->HasField(m, f);
            for (int k = 0; k < n; ++k) {
                const Message& inner = f->is_repeated() ? r->GetRepeatedMessage(m, f, k) : r->GetMessage(m, f);
                donors_.push_back(&inner);
                collect_donors(inner);
            }
        }
        if (const auto* n = dynamic_cast<const onnx::NodeProto*>(&m)) operators_.push_back(n->op_type());
    }

    const Message* donor_of(const google::protobuf::Descriptor* type) {
        for (int tries = 0; tries < 20 && !donors_.empty(); ++tries)
            if (const Message* d = donors_[below(donors_.size())]; d->GetDescriptor() == type) return d;
        return nullptr;
    }

    std::int64_t number() {
        static constexpr std::array<std::int64_t, 34> edges{0,
                                                            1,
                                                            2,
                                                            3,
                                                            4,
                                                            5,
                                                            7,
                                                            8,
                                                            15,
                                                            16,
                                                            17,
                                                            31,
                                                            32,
                                                            64,
                                                            127,
                                                            128,
                                                            255,
                                                            256,
                                                            1000,
                                                            65535,
                                                            65536,
                                                            1 << 20,
                                                            INT32_MAX,
                                                            std::int64_t{INT32_MAX} + 1,
                                                            std::int64_t{1} << 40,
                                                            INT64_MAX,
                                                            INT64_MIN,
                                                            INT32_MIN,
                                                            -1,
                                                            -2,
                                                            -3,
                                                            -4,
                                                            -8,
                                                            -65536};
        return edges[below(below(3) == 0 ? edges.size() : 8)];
    }
    std::int64_t changed(std::int64_t v) {
        switch (below(4)) {
            case 0: return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) + 1);
            case 1: return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) - 1);
            case 2: return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(v));
            default: return number();
        }
    }
    double real() {
        static constexpr std::array edges{0.0,
                                          -0.0,
                                          1.0,
                                          -1.0,
                                          0.5,
                                          2.0,
                                          -2.5,
                                          1e-38,
                                          1e-45,
                                          1e38,
                                          -1e38,
                                          1e10,
                                          -1e10,
                                          1e300,
                                          std::numeric_limits<double>::infinity(),
                                          -std::numeric_limits<double>::infinity(),
                                          std::numeric_limits<double>::quiet_NaN()};
        return edges[below(edges.size())];
    }
    std::string text(const place& p, const std::string& old) {
        const std::string& field = p.field->name();
        if (field == "raw_data") {
            std::string bytes = old;
            const std::size_t size = bytes.size();
            if (size == 0) return bytes;
            if (below(2) == 0) {  // one element becomes an edge of its range
                const std::int64_t v = number();
                const std::size_t width = std::min<std::size_t>(size, std::size_t{1} << below(4));
                std::copy_n(reinterpret_cast<const char*>(&v), width, bytes.data() + below(size / width) * width);
                return bytes;
            }
            bytes.resize(change_bytes_(reinterpret_cast<std::uint8_t*>(bytes.data()), size, size));
            if (below(8) != 0) bytes.resize(size);  // nearly always the size that the shape needs
            return bytes;
        }
        if (field == "op_type" && !operators_.empty()) return operators_[below(operators_.size())];
        if (field == "name" && dynamic_cast<const onnx::AttributeProto*>(p.message) && !attribute_names_.empty())
            return attribute_names_[below(attribute_names_.size())];
        if (field == "domain")
            return std::array{"", "ai.onnx", "com.microsoft", "com.amd.quark", "com.vai.quantize", "ai.onnx.ml"}[below(6)];
        if (field == "dim_param") return below(2) ? "N" : "M";
        if (field == "s" || field == "strings" || field == "location") {
            if (!old.empty() && below(2) == 0) {
                std::string bytes = old + std::string(8, '\0');
                bytes.resize(change_bytes_(reinterpret_cast<std::uint8_t*>(bytes.data()), old.size(), bytes.size()));
                return bytes;
            }
            static constexpr std::array words{"",        "SAME_UPPER", "SAME_LOWER", "VALID",         "NOTSET",        "linear",
                                              "nearest", "cubic",      "mean",       "sum",           "none",          "reflect",
                                              "edge",    "wrap",       "forward",    "reverse",       "bidirectional", "Relu",
                                              "Tanh",    "DCR",        "ii,ij->j",   "...i,i...->..."};
            return words[below(words.size())];
        }
        return names_[below(names_.size())];
    }

    /// Changes a single field (at < 0), or element `at` of a list.
    void change(const place& p, int at) {
        Message& m = *p.message;
        const auto* r = m.GetReflection();
        const FieldDescriptor* f = p.field;
        const bool list = at >= 0;
        switch (f->cpp_type()) {
            case FieldDescriptor::CPPTYPE_INT32: {
                const auto v = static_cast<std::int32_t>(changed(list ? r->GetRepeatedInt32(m, f, at) : r->GetInt32(m, f)));
                return list ? r->SetRepeatedInt32(&m, f, at, v)
                            : r->SetInt32(&m, f, f->name() == "data_type" || f->name() == "elem_type" ? index(28) : v);
            }
            case FieldDescriptor::CPPTYPE_INT64: {
                std::int64_t v = changed(list ? r->GetRepeatedInt64(m, f, at) : r->GetInt64(m, f));
                if (f->name() == "version" && below(4) != 0) v = 1 + index(28);
                return list ? r->SetRepeatedInt64(&m, f, at, v) : r->SetInt64(&m, f, v);
            }
            case FieldDescriptor::CPPTYPE_UINT64:
                return list ? r->SetRepeatedUInt64(&m, f, at, static_cast<std::uint64_t>(number()))
                            : r->SetUInt64(&m, f, static_cast<std::uint64_t>(number()));
            case FieldDescriptor::CPPTYPE_FLOAT:
                return list ? r->SetRepeatedFloat(&m, f, at, static_cast<float>(real())) : r->SetFloat(&m, f, static_cast<float>(real()));
            case FieldDescriptor::CPPTYPE_DOUBLE: return list ? r->SetRepeatedDouble(&m, f, at, real()) : r->SetDouble(&m, f, real());
            case FieldDescriptor::CPPTYPE_ENUM: {
                const auto* e = f->enum_type();
                const auto* v = e->value(index(e->value_count()));
                return list ? r->SetRepeatedEnum(&m, f, at, v) : r->SetEnum(&m, f, v);
            }
            case FieldDescriptor::CPPTYPE_STRING: {
                const std::string v = text(p, list ? r->GetRepeatedString(m, f, at) : r->GetString(m, f));
                return list ? r->SetRepeatedString(&m, f, at, v) : r->SetString(&m, f, v);
            }
            case FieldDescriptor::CPPTYPE_MESSAGE: {
                const Message* d = donor_of(f->message_type());
                if (d == nullptr) return;
                const std::string copy =
                    d->SerializePartialAsString();  // the donor may lie inside what is replaced, or be another case of its oneof
                (list ? r->MutableRepeatedMessage(&m, f, at) : r->MutableMessage(&m, f))->ParsePartialFromString(copy);
                return;
            }
            default: return;
        }
    }

    void add(const place& p) {
        Message& m = *p.message;
        const auto* r = m.GetReflection();
        switch (p.field->cpp_type()) {
            case FieldDescriptor::CPPTYPE_INT32: return r->AddInt32(&m, p.field, static_cast<std::int32_t>(number()));
            case FieldDescriptor::CPPTYPE_INT64: return r->AddInt64(&m, p.field, number());
            case FieldDescriptor::CPPTYPE_UINT64: return r->AddUInt64(&m, p.field, static_cast<std::uint64_t>(number()));
            case FieldDescriptor::CPPTYPE_FLOAT: return r->AddFloat(&m, p.field, static_cast<float>(real()));
            case FieldDescriptor::CPPTYPE_DOUBLE: return r->AddDouble(&m, p.field, real());
            case FieldDescriptor::CPPTYPE_STRING: return r->AddString(&m, p.field, text(p, {}));
            case FieldDescriptor::CPPTYPE_MESSAGE: return add_from_donor(p);
            default: return;
        }
    }
    void add_from_donor(const place& p) {
        if (p.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return add(p);
        const Message* d = donor_of(p.field->message_type());
        if (d == nullptr) return;
        const std::string copy = d->SerializePartialAsString();
        p.message->GetReflection()->AddMessage(p.message, p.field)->ParsePartialFromString(copy);
    }

    random_source& random_;
    byte_mutator change_bytes_;
    std::vector<place> places_;
    std::vector<std::string> names_, attribute_names_, operators_;
    std::vector<const Message*> donors_;
};

void import_domain(google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& all, const std::string& domain, std::int64_t version) {
    for (const auto& o : all)
        if (o.domain() == domain) return;
    auto* o = all.Add();
    o->set_domain(domain);
    o->set_version(version);
}

/// Returns a function of one input and one output: one of the model's, or a new one that a node of the model calls.
std::pair<std::string, std::string> some_function(onnx::ModelProto& m, random_source& random) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& f : m.functions())
        if (f.input_size() == 1 && f.output_size() == 1) all.emplace_back(f.domain(), f.name());
    if (!all.empty()) return all[random() / 3 % all.size()];
    for (auto& n : *m.mutable_graph()->mutable_node()) {
        if (n.input_size() != 1 || n.output_size() != 1) continue;
        auto& f = *m.add_functions();
        f.set_domain("my");
        f.set_name("F");
        f.add_input("X"), f.add_output("Y");
        *f.mutable_opset_import() = m.opset_import();
        auto& inner = *f.add_node() = n;
        inner.set_input(0, "X"), inner.set_output(0, "Y");
        n.clear_attribute();
        n.set_domain("my"), n.set_op_type("F");
        import_domain(*m.mutable_opset_import(), "my", 1);
        return {"my", "F"};
    }
    return {};
}

/// Puts a function that calls another one some times into its place. Where this happens again and again, functions call each other in
/// chains, and what few bytes expand to grows with a power of their number.
void wrap_function(onnx::ModelProto& m, random_source& random) {
    const auto [domain, name] = some_function(m, random);
    if (name.empty() || m.functions_size() > 300) return;
    const std::size_t links = random() / 5 % 4 == 0 ? 1 + random() / 3 % 40 : 1, calls = random() / 7 % 3 == 0 ? 1 + random() / 3 % 9 : 1;
    std::string last = name;
    for (std::size_t link = 0; link < links; ++link) {
        auto& f = *m.add_functions();
        f.set_domain(domain);
        f.set_name("F" + std::to_string(m.functions_size()));
        f.add_input("X"), f.add_output("Y");
        import_domain(*f.mutable_opset_import(), domain, 1);
        for (std::size_t i = 0; i < calls; ++i) {
            auto& n = *f.add_node();
            n.set_domain(domain), n.set_op_type(last);
            n.add_input(i == 0 ? "X" : "t" + std::to_string(i));
            n.add_output(i + 1 == calls ? "Y" : "t" + std::to_string(i + 1));
        }
        last = f.name();
    }
    for (auto& n : *m.mutable_graph()->mutable_node())
        if (n.domain() == domain && n.op_type() == name) n.set_op_type(last);
}

}  // namespace

void mutate_model(onnx::ModelProto& m, const onnx::ModelProto& donor, random_source& random, byte_mutator change_bytes) {
    if (random() / 5 % 40 == 0) wrap_function(m, random);
    const int changes = 1 + static_cast<int>(random() / 7 % 3);
    for (int i = 0; i < changes; ++i) mutator(m, donor, random, change_bytes).change_one();  // collects anew: messages may be gone
}

}  // namespace qk_fuzz
