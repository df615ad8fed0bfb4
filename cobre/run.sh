#!/bin/sh
# Builds cobre-shm and runs a subcommand of it, with further arguments, in a new directory under the build's.
set -eu
cd "$(dirname "$0")/.."
what=$1
shift

target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --package intranode-cobre
rm -rf "$target/cobre-$what"
exec "$target/release/cobre-shm" "$what" "$target/cobre-$what" "$@"
