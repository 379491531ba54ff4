#!/bin/sh
# Test the simulated device on the builds of torch that PyPI has for Linux x86-64: CUDA builds, here without a GPU.
#
#     scripts/torch_builds.sh [VERSION...]        # 2.11.0 2.12.1 2.13.0 2.14.1 if none is given
#
# Each gets a virtual environment of its own in build/torch-VERSION, with the versions of constraints.txt beside it:
# about 6 GB a build. What is there already is kept.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 2.11.0 2.12.1 2.13.0 2.14.1
failed=""
for version in "$@"; do
    build="build/torch-$version"
    if [ ! -e "$build/.installed" ]; then
        "${PYTHON:-python3}" -m venv "$build"
        grep -v '^torch==' constraints.txt >"$build/constraints.txt"
        # Three signs: this very version, and none with "+cpu" behind it.
        "$build/bin/python" -m pip install --quiet "torch===$version"
        "$build/bin/python" -m pip install --quiet --constraint "$build/constraints.txt" --editable '.[capture,dev]'
        touch "$build/.installed"
    fi
    "$build/bin/python" -c 'import torch; print("torch", torch.__version__, "for CUDA", torch.version.cuda)'
    "$build/bin/python" -m pytest --quiet --numprocesses 2 --dist loadfile tests/simulate \
        tests/commands/test_without_gpu.py tests/commands/test_run_simulated.py || failed="$failed $version"
done
[ -z "$failed" ] || { echo "failed with torch$failed" >&2; exit 1; }
