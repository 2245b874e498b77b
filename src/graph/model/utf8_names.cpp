// SPDX-License-Identifier: Apache-2.0
// Definitions of utf8_names.hpp, by reflection: every field of type string, in whatever message it stands.
#include "graph/model/utf8_names.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <onnx/onnx_pb.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "qk/graph/base/printable.hpp"

namespace qk::graph {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Calls visit(text) for every string in `m` and in the messages inside; what visit returns replaces the string, unless it is null.
template <class Visit>
void for_each_text(Message& m, const Visit& visit) {
    const auto* reflection = m.GetReflection();
    std::vector<const FieldDescriptor*> present;
    reflection->ListFields(m, &present);
    std::string scratch;
    for (const FieldDescriptor* f : present) {
        const int count = f->is_repeated() ? reflection->FieldSize(m, f) : 1;
        if (f->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
            for (int i = 0; i < count; ++i)
                for_each_text(f->is_repeated() ? *reflection->MutableRepeatedMessage(&m, f, i) : *reflection->MutableMessage(&m, f), visit);
        } else if (f->type() == FieldDescriptor::TYPE_STRING) {  // not TYPE_BYTES: those are data
            for (int i = 0; i < count; ++i) {
                const std::string& text = f->is_repeated() ? reflection->GetRepeatedStringReference(m, f, i, &scratch)
                                                           : reflection->GetStringReference(m, f, &scratch);
                const std::string* better = visit(text);
                if (better == nullptr) continue;
                if (f->is_repeated()) reflection->SetRepeatedString(&m, f, i, *better);
                else reflection->SetString(&m, f, *better);
            }
        }
    }
}

}  // namespace

std::size_t names_to_utf8(onnx::ModelProto& m) {
    std::unordered_map<std::string, std::string> changed;
    for_each_text(m, [&](const std::string& text) -> const std::string* {
        if (!is_utf8(text)) changed.emplace(text, as_utf8(text));
        return nullptr;
    });
    if (changed.empty()) return 0;
    std::unordered_set<std::string> taken;
    for_each_text(m, [&](const std::string& text) -> const std::string* {
        taken.insert(text);
        return nullptr;
    });
    for_each_text(m,
                  [&](const std::string& text) -> const std::string* {  // in the model's order, so that the same model gets the same names
                      const auto found = changed.find(text);
                      if (found == changed.end() || !taken.contains(text)) return nullptr;
                      taken.erase(text);
                      while (!taken.insert(found->second).second) found->second += "_";
                      return nullptr;
                  });
    for_each_text(m, [&](const std::string& text) -> const std::string* {
        const auto found = changed.find(text);
        return found == changed.end() ? nullptr : &found->second;
    });
    return changed.size();
}

}  // namespace qk::graph
