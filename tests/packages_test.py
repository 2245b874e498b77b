# SPDX-License-Identifier: Apache-2.0
"""Packs the build for Debian and looks into the packages; runs vcpkg's port with stand-ins for vcpkg's functions; reads the other recipes.

    python tests/packages_test.py BUILD_FOLDER
"""
import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys

build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path(__file__).resolve().parents[1]
work = build / "tests" / "packages"
version = ".".join(re.findall(r"^#define QK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", (root / "include/qk/version.hpp").read_text(), re.M))
wrong = []


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(holds, text):
    if not holds:
        wrong.append(text)


def debian():
    # Fast compression: the test looks at what is inside.
    run("cpack", "-G", "DEB", "-B", work, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=build)
    packages = {p.name.split("_")[0]: p for p in work.glob("*.deb")}
    wanted = {"qk", "libqk0", "libqk-dev", "libqk-graph-dev"} | ({"libqk-onnxruntime"} if (build / "libqk_onnxruntime.so").exists() else set())
    check(set(packages) == wanted, f"packages: {sorted(packages)}")
    owner = {}
    for name, file in packages.items():
        fields = run("dpkg-deb", "--field", file)
        check(f"Version: {version}" in fields, f"{name} is not of version {version}:\n{fields}")
        for line in run("dpkg-deb", "--contents", file).splitlines():
            path = line.split()[5]
            if not path.endswith("/"):
                check(path not in owner, f"{path} is in {owner.get(path)} and in {name}")
                owner[path] = name
        run("dpkg-deb", "--extract", file, work / "root")
    needs = {name: re.search("^Depends: (.*)$", run("dpkg-deb", "--field", file), re.M) for name, file in packages.items()}
    for name, needed in (("qk", "libprotobuf"), ("libqk0", "libstdc++6"), ("libqk-dev", f"libqk0 (= {version})"), ("libqk-dev", "libxsimd-dev"), ("libqk-graph-dev", "libonnx-dev")):
        check(needs[name] and needed in needs[name][1], f"{name} does not depend on {needed}: {needs[name]}")
    if "libqk-onnxruntime" in packages:
        check(not re.search("onnx|protobuf|tbb", needs["libqk-onnxruntime"][1]), f"libqk-onnxruntime depends on {needs['libqk-onnxruntime'][1]}")
        check(any(p.endswith("/libqk_onnxruntime.so") and name == "libqk-onnxruntime" for p, name in owner.items()), "no library in libqk-onnxruntime")
    check("libonnx" not in needs["libqk-dev"][1], "libqk-dev needs onnx, which only the graph module does")
    return owner


def contents(owner):
    library = next((p for p in owner if p.endswith("/libqk.so.0")), "")
    for path, name in (("./usr/bin/qk", "qk"), (library, "libqk0"), (library.removesuffix(".0"), "libqk-dev"), ("./usr/include/qk/qk.hpp", "libqk-dev"),
                       ("./usr/include/qk/graph/plan.hpp", "libqk-graph-dev"), ("./usr/share/bash-completion/completions/qk", "qk")):
        check(owner.get(path) == name, f"{path} is in {owner.get(path)}, not in {name}")
    qk = work / "root/usr/bin/qk"
    check(run(qk, "--version").strip().endswith(version), "the packed command says another version")
    verbs = re.findall(r"^  ([a-z]+)  ", re.search(r"^Verbs:\n(.*?)\n\n", run(qk, "--help"), re.M | re.S)[1], re.M)
    for page in ["qk", *(f"qk-{v}" for v in verbs)]:
        file = work / "root/usr/share/man/man1" / f"{page}.1"
        text = file.read_text() if file.exists() else ""
        name = page.replace("-", "\\-")
        check(text.startswith(f".TH {page.upper()} 1") and f"\n.SH NAME\n{name} \\- " in text and re.search(r"\n\.SH [A-Z ]*OPTIONS\n\.nf\n", text), f"{file.name} is no manual page")


def consumer():
    """A project finds the unpacked package and compiles against it."""
    folder = work / "consumer"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(app CXX)\nfind_package(qk REQUIRED)\n"
                                           "add_executable(app app.cpp)\ntarget_link_libraries(app PRIVATE qk::qk)\n")
    (folder / "app.cpp").write_text("#include <qk/formats/catalogue.hpp>\n#include <qk/qk.hpp>\nint main() { return qk::bits(qk::int8) == 8 ? 0 : 1; }\n")
    run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={work}/root/usr")
    run("cmake", "--build", folder / "build")
    run(folder / "build/app")


def vcpkg():
    port = root / "packaging/vcpkg/qk"
    manifest = json.loads((port / "vcpkg.json").read_text())
    check(manifest["version"] == version, f"vcpkg.json is of version {manifest['version']}")
    names = set(manifest["features"])
    script = (port / "portfile.cmake").read_text()
    for feature in names:
        check(f"{feature} QK_BUILD_{feature.upper()}" in script, f"portfile.cmake does not know the feature {feature}")
    (work / "stand_ins.cmake").write_text(f"""
set(CURRENT_PACKAGES_DIR {work}/vcpkg)
function(vcpkg_check_features)
  set(options {' '.join(f'-DQK_BUILD_{n.upper()}=OFF' for n in sorted(names))} PARENT_SCOPE)
endfunction()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 given "" "SOURCE_PATH" "OPTIONS")
  execute_process(COMMAND cmake -S ${{given_SOURCE_PATH}} -B {work}/vcpkg_build -DCMAKE_INSTALL_PREFIX={work}/vcpkg -DCMAKE_INSTALL_LIBDIR=lib ${{given_OPTIONS}} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_install)
  execute_process(COMMAND cmake --install {work}/vcpkg_build COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 given "" "PACKAGE_NAME;CONFIG_PATH" "")
  if(NOT EXISTS {work}/vcpkg/${{given_CONFIG_PATH}}/qkConfig.cmake)
    message(FATAL_ERROR "no package file in ${{given_CONFIG_PATH}}")
  endif()
endfunction()
function(vcpkg_install_copyright)
endfunction()
include({port}/portfile.cmake)
""")
    run("cmake", "-P", work / "stand_ins.cmake")
    check((work / "vcpkg/include/qk/qk.hpp").exists(), "the port installs no headers")
    check("xsimd" in manifest["dependencies"], "vcpkg.json does not name xsimd, which the headers include")


def others():
    recipe = ast.parse((root / "packaging/conan/conanfile.py").read_text())
    parts = next(ast.literal_eval(s.value) for s in recipe.body if isinstance(s, ast.Assign) and s.targets[0].id == "PARTS")
    lists = (root / "CMakeLists.txt").read_text()
    for part in parts:
        check(f"option(QK_BUILD_{part.upper()} " in lists, f"conanfile.py: CMakeLists.txt has no QK_BUILD_{part.upper()}")
    check(f'version: "{version}"' in (root / "packaging/conda/recipe.yaml").read_text(), "conda's recipe is of another version")


shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)
if shutil.which("dpkg-shlibdeps") and shutil.which("file"):
    contents(debian())
    consumer()
else:
    print("no dpkg-dev here, so no Debian packages")
vcpkg()
others()
if wrong:
    sys.exit("\n".join(wrong))
