#!/bin/sh
# Resolve the *.in files anew into hash-locked *.txt files that agree with each other. Needs uv on PATH.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
    --allow-unsafe "$@"; }
# The versions of a locked file, without its hashes.
pinned() { sed -n 's/^\([A-Za-z].*\) \\$/\1/p' "$1"; }
versions=$(mktemp)
trap 'rm -f "$versions" "$versions.26"' EXIT
lock dev.in --output-file dev.txt
pinned dev.txt > "$versions"   # the widest set decides every version
# Paddle 2.6 needs other versions of what belongs to Paddle; protobuf differs on a system that it is not for.
grep -v -e '^paddle' -e '^onnx==' "$versions" | sed "s/^protobuf==.*/&; sys_platform != 'win32'/" > "$versions.26"
lock paddle26.in --constraint "$versions.26" --output-file paddle26.txt
for set in bootstrap base build; do
    lock "$set.in" --constraint "$versions" --output-file "$set.txt"
done
# Who installs with pip, without this repository, gets the same versions from a file in the package.
{
    echo "# Versions of requirements/build.txt, written by requirements/lock.sh: pip install -c THIS_FILE 'edgepack[paddle]'"
    pinned build.txt
} > ../packager/edgepack/training/constraints.txt
lock clients.in --output-file clients.txt   # an environment of its own, with other versions
# The peers have versions of their own, and torch's wheel without CUDA is not on the public index: peers.in says more.
uv pip compile --quiet --python-version 3.11 --python-platform x86_64-unknown-linux-gnu --generate-hashes --no-header \
    --no-annotate --allow-unsafe peers.in --output-file peers.txt
