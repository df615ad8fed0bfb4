# Two commands for a fresh machine: `make demo` runs the main job on real input, `make test` passes all the tests.

# FUZZ_SECONDS=600 make fuzz: each fuzz target for so long, with the address sanitizer.

.PHONY: demo test lint package install-check msrv dependencies fuzz tsan miri aarch64 check-macos chaos race instructions cobre-matrix memory cmake

# One hydrothermal case by Cobre's own backend and by 1, 2 and 4 processes: every result is the same, bit for bit.
demo: cmake
	cobre/run.sh demo --iterations 20 --cut-selection lml1 --max-active-per-stage 200

# Cobre's crates bring a solver in C++, so that package is built once only: in release, for lint and tests alike. Both model
# checkers are built with one library, and by the same selection of packages as the rest: with another, dependencies would get
# other features, and be compiled again.
test: cmake
	cargo test --locked --workspace --exclude intranode-cobre
	cargo test --locked --workspace --exclude intranode-cobre --all-features --test loom --test shuttle
	cargo test --locked --release --package intranode-cobre

lint: cmake
	cargo fmt --all --check
	cargo clippy --locked --workspace --exclude intranode-cobre --all-targets --all-features -- --deny warnings
	cargo clippy --locked --release --package intranode-cobre --all-targets --all-features -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --package intranode-cli --bin intranode --no-deps --document-private-items
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --exclude intranode-cobre --no-deps --document-private-items
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --release --package intranode-cobre --no-deps

# The packages as they would be published, each built from its own files; `make package PACKAGE=--allow-dirty` before a commit.
package:
	.ci/package $(PACKAGE)

# The launcher as it is installed: it runs a job, and its manual can be read.
install-check:
	.ci/install-check

# The oldest Rust that is promised, and what the dependencies ask for.
msrv:
	.ci/msrv

# Licences, sources and duplicates of the dependencies. It compiles two tools first.
dependencies:
	.ci/dependencies

fuzz:
	fuzz/run.sh

# Everything that ranks do together, over threads, under the thread sanitizer.
tsan:
	.ci/tsan

# The tests that Miri can run, where it is installed.
miri:
	.ci/miri

# The tests for another architecture, under an emulator.
aarch64:
	.ci/aarch64

# Compiles for macOS, if the toolchain can.
check-macos:
	.ci/check-macos

# Kills ranks at random, and counts what their survivors see.
chaos:
	cargo run --locked --release --example chaos -- --kills 100000 --seconds 60

# Fails where a small collective takes more instructions than its limit.
instructions:
	@command -v valgrind >/dev/null || .ci/install valgrind
	cargo bench --locked --bench instructions

# Beside Open MPI, MPICH and Intel MPI from PyPI; `make race RACE=--quick` takes some minutes.
race:
	benches/race/race.py $(RACE)

# Every way in which Cobre selects cuts, with 1 to 8 ranks of 1 or 2 threads, compared with Cobre's own backend bit for bit.
cobre-matrix: cmake
	cobre/run.sh matrix

# What it takes to hold a large case's data once for 4 ranks, and once for each.
memory: cmake
	cobre/run.sh memory --hydros 180 --thermals 140 --stages 120 --openings 5

# The solver's build needs cmake and a C++ compiler.
cmake:
	@command -v cmake >/dev/null && command -v c++ >/dev/null || .ci/install cmake g++
