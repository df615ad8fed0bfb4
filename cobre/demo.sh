#!/bin/sh
# Trains one hydrothermal case with Cobre's own backend and with 1, 2 and 4 processes joined by shared memory, shows
# that every result is the same bit for bit, and how long each took. Arguments go to `cobre-shm demo`.
set -eu
cd "$(dirname "$0")/.."
command -v cmake >/dev/null && command -v c++ >/dev/null || .ci/install cmake g++

target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --package intranode-cobre
rm -rf "$target/demo"
"$target/release/cobre-shm" demo "$target/demo" --iterations 20 --cut-selection lml1 --max-active-per-stage 200 "$@"
