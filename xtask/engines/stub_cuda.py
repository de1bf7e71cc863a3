#!/usr/bin/env python3
"""Let PyPI's CUDA build of torch run where there is no CUDA, without the 2.8 GB of CUDA libraries.

torch's own libraries are linked to libcudart, libcublas and so on, and do not load without them. For each one that is
missing this writes a small library of that name with the same (versioned) symbols. Every function in it returns 100,
cudaErrorNoDevice, so torch finds no device and works on the CPU.

Usage: stub_cuda.py SITE_PACKAGES      (needs readelf and cc)
"""
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# What NVIDIA's libraries are called, and how the functions that carry no version are named.
CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_FUNCTION = re.compile(r"(cu[A-Z]|cuda|cudnn|cublas|cufft|cufile|cuFile|curand|cusolver|cusparse|cupti|nccl|nv)")


def readelf(flag, path):
    run = subprocess.run(["readelf", "-W", flag, str(path)], check=True, capture_output=True, text=True)
    return run.stdout.splitlines()


def missing_libraries(path, present):
    for line in readelf("-d", path):
        found = re.search(r"\(NEEDED\).*\[(.+)\]", line)
        if found and found[1] not in present and CUDA_LIBRARY.match(found[1]):
            yield found[1]


def version_owners(path):
    """Symbol version -> the library that it is asked of."""
    owner, library = {}, None
    for line in readelf("-V", path):
        if found := re.search(r"\bFile: (\S+)", line):
            library = found[1]
        elif library and (found := re.search(r"\bName: (\S+)\s+Flags:", line)):
            owner[found[1]] = library
    return owner


def undefined_symbols(path):
    """(name, version or None) of what the file takes from others."""
    for line in readelf("--dyn-syms", path):
        columns = line.split()
        if len(columns) >= 8 and columns[6] == "UND":
            name, _, version = columns[7].replace("@@", "@").partition("@")
            yield name, version or None


def gather(libraries, present):
    """Missing library -> version or None -> symbols."""
    missing, versioned, plain = set(), defaultdict(lambda: defaultdict(set)), set()
    for path in libraries:
        missing.update(missing_libraries(path, present))
        owner = version_owners(path)
        for name, version in undefined_symbols(path):
            if version:
                versioned[owner.get(version)][version].add(name)
            elif CUDA_FUNCTION.match(name):
                plain.add(name)
    stubs = {library: dict(versioned[library]) for library in sorted(missing)}
    # A symbol without version may be found in any loaded library: the first stub carries them all.
    for library in list(stubs)[:1]:
        stubs[library][None] = plain
    return stubs


def write(folder, library, versions):
    names = sorted(set().union(*versions.values())) if versions else []
    source = "int no_device(void) { return 100; }\n" + "".join(
        f'__asm__(".globl {n}\\n.type {n}, @function\\n.set {n}, no_device\\n");\n' for n in names)
    with tempfile.TemporaryDirectory() as scratch:
        c, script = Path(scratch, "stub.c"), Path(scratch, "versions.map")
        c.write_text(source)
        command = ["cc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library}", "-o", str(folder / library), str(c)]
        named = {version: symbols for version, symbols in versions.items() if version}
        if named:
            script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(s))}; }};\n" for v, s in named.items()))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
    return len(names)


def main():
    torch = Path(sys.argv[1]) / "torch"
    folder = torch / "lib"
    libraries = [p for p in [*folder.glob("*.so"), *torch.glob("_C*.so")] if not p.is_symlink()]
    stubs = gather(libraries, {p.name for p in folder.iterdir()})
    symbols = sum(write(folder, library, versions) for library, versions in stubs.items())
    print(f"{len(stubs)} stub libraries with {symbols} symbols")


if __name__ == "__main__":
    main()
