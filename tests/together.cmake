# SPDX-License-Identifier: Apache-2.0
# cmake -D to=FILE -D sources=A,B -P: writes one source of several tests, each in a namespace of its own. All their includes come first, so
# that the tests' own #include lines add nothing inside the namespaces.
string(REPLACE "," ";" sources "${sources}")
set(includes "")
set(bodies "")
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines REGEX "^#include ")
  list(APPEND includes ${lines})
  get_filename_component(name ${source} NAME_WE)
  string(APPEND bodies "namespace of_${name} {\n#include \"${source}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(TRANSFORM includes REPLACE "#include ([<\"].*)" "#if __has_include(\\1)\n#include \\1\n#endif\n")  # some headers are for one processor
string(JOIN "" text ${includes})
file(WRITE ${to} "${text}${bodies}")
