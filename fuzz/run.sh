#!/bin/sh
# Runs all fuzz targets, or the given ones, one after the other, each for FUZZ_SECONDS with the address sanitizer. New inputs
# are stored in fuzz/work; `cargo fuzz cmin` selects those to keep.
set -eu
cd "$(dirname "$0")"

# The sanitizer and the coverage are unstable options of a stable compiler.
export RUSTC_BOOTSTRAP=1

command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
command -v c++ >/dev/null || { echo "fuzzing needs a C++ compiler (Debian: apt-get install g++)" >&2; exit 1; }

targets=${*:-$(cargo fuzz list)}
for target in $targets; do
    mkdir -p "work/$target"
    set -- "work/$target" "corpus/$target" -- -max_total_time="${FUZZ_SECONDS:-60}" -max_len=400 -print_final_stats=1
    dictionary=dictionaries/$target.dict
    [ ! -f "$dictionary" ] || set -- "$@" -dict="$dictionary"
    cargo fuzz run --sanitizer address "$target" "$@"
done
