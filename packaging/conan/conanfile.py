# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe of this checkout:  conan create packaging/conan --build=missing [-o "qk/*:graph=True"]"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

PARTS = {"dispatch": True, "hardware": True, "systems": True, "checkpoint": False, "graph": False}


class Qk(ConanFile):
    name = "qk"
    license = "Apache-2.0"
    description = "Number formats for neural networks: kernels, exact references, and mixed precision for ONNX models"
    settings = "os", "arch", "compiler", "build_type"
    options = {part: [True, False] for part in PARTS}
    default_options = PARTS
    no_copy_source = True

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "..", "..", "include", "qk", "version.hpp"))
        self.version = ".".join(re.findall(r"#define QK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for part in ("CMakeLists.txt", "LICENSE"):
            copy(self, part, root, self.export_sources_folder)
        for folder in ("cmake", "include", "src"):
            copy(self, "*", os.path.join(root, folder), os.path.join(self.export_sources_folder, folder))

    def requirements(self):
        self.requires("xsimd/[>=8.1]", transitive_headers=True)
        if self.options.graph or self.options.checkpoint:
            self.requires("nlohmann_json/[>=3.11 <4]", transitive_headers=True)
            self.requires("zlib/[>=1.2.13 <2]")
        if self.options.graph:
            self.requires("onnx/[>=1.12 <2]", transitive_headers=True)
            self.requires("protobuf/[>=3.21]", transitive_headers=True)
            self.requires("eigen/[>=3.4 <4]", transitive_headers=True)
            self.requires("onetbb/[>=2021.8]", transitive_headers=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in PARTS:
            toolchain.cache_variables[f"QK_BUILD_{part.upper()}"] = bool(self.options.get_safe(part))
        for part in ("TOOL", "TESTS", "BENCH", "EXAMPLES"):
            toolchain.cache_variables[f"QK_BUILD_{part}"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):  # the package file that qk installs is the one to find
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "qk")]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
