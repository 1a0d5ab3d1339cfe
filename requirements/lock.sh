#!/bin/sh
# Resolve the *.in files anew into hash-locked *.txt files that agree with each other. Needs uv on PATH.
set -eu
cd "$(dirname "$0")"
lock() { uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --allow-unsafe "$@"; }
versions=$(mktemp)
trap 'rm -f "$versions"' EXIT
lock dev.in --output-file dev.txt
sed -n 's/^\([A-Za-z].*\) \\$/\1/p' dev.txt > "$versions"   # the widest set decides every version
for set in bootstrap base build; do
    lock "$set.in" --constraint "$versions" --output-file "$set.txt"
done
