# Two commands for a new machine: `make demo` runs the main job on real input, `make test` runs all tests.

# FUZZ_SECONDS=600 make fuzz: each fuzz target for 600 seconds, with the address sanitizer.

.PHONY: demo test lint package install-check msrv dependencies fuzz tsan heap miri aarch64 check-macos chaos race launchers instructions cobre-matrix memory cmake python nodes python-bench cobre-python wheel cobre-nodes nodes-bench

# How the solver of Cobre's crates is compiled.
export CMAKE_TOOLCHAIN_FILE ?= $(CURDIR)/cobre/solver.cmake

# One hydrothermal case with Cobre's own backend and with 1, 2 and 4 processes: all results are equal bit for bit.
demo: cmake
	cobre/run.sh demo --iterations 20 --cut-selection lml1 --max-active-per-stage 200

# Cobre's crates bring a solver in C++, so that package is built once only: in release, for lint and tests alike. Both model
# checkers are built with one library, and by the same selection of packages as the rest: with another, dependencies would get
# other features, and be compiled again.
test: cmake
	cargo test --locked --workspace --exclude intranode-cobre --exclude intranode-mpi --exclude intranode-python --features intranode/serde,intranode/num-complex,intranode/tokio
	cargo test --locked --workspace --exclude intranode-cobre --exclude intranode-mpi --exclude intranode-python --all-features --test loom --test shuttle
	cargo test --locked --release --package intranode-cobre

lint: cmake
	cargo fmt --all --check
	cargo clippy --locked --workspace --exclude intranode-cobre --exclude intranode-mpi --exclude intranode-python --all-targets --all-features -- --deny warnings
	cargo clippy --locked --release --package intranode-cobre --all-targets --all-features -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --package intranode-cli --bin intranode --no-deps --document-private-items
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --exclude intranode-cobre --exclude intranode-mpi --exclude intranode-python --no-deps --document-private-items
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --release --package intranode-cobre --no-deps

# The packages as they would be published, each built from its own files; `make package PACKAGE=--allow-dirty` before a commit.
package:
	.ci/package $(PACKAGE)

# The launcher as it is installed: it runs a job, and its manual can be read.
install-check:
	.ci/install-check

# The minimum supported Rust version, also of the dependencies.
msrv:
	.ci/msrv

# Licences, sources and duplicates of the dependencies. Compiles two tools first.
dependencies:
	.ci/dependencies

# The Python wheel, built into a virtual environment under target/, and its tests there.
python:
	.ci/python $(PYTHON)

# The wheel for any Linux with glibc 2.17, installed into an empty virtual environment without Rust.
wheel:
	.ci/wheel

# The wheel beside mpi4py over Open MPI, MPICH and Intel MPI from PyPI; BENCH=--write puts the table into docs/python.md.
python-bench:
	python/bench/bench.py $(BENCH)

# Cobre's Python package over `cobre-shm`, and its tests. The solver takes minutes to build.
cobre-python: cmake
	.ci/cobre-python $(PYTHON)

fuzz:
	fuzz/run.sh

# All collective operations, over threads, under the thread sanitizer.
tsan:
	.ci/tsan

# The conformance suite with the shared heap as the global allocator; `make heap HEAP=allgather` runs some rows.
heap:
	.ci/heap $(HEAP)

# The tests that Miri can run, if it is installed.
miri:
	.ci/miri

# The tests for another architecture, under an emulator.
aarch64:
	.ci/aarch64

# Compiles for macOS, if the toolchain can.
check-macos:
	.ci/check-macos

# Kills ranks at random, and counts the survivors' errors.
chaos:
	cargo run --locked --release --example chaos -- --kills 100000 --seconds 60

# Fails if a small collective takes more instructions than its limit.
instructions:
	@command -v valgrind >/dev/null || .ci/install valgrind
	cargo bench --locked --bench instructions

# The comparison with Open MPI, MPICH and Intel MPI from PyPI, and OpenSHMEM from Debian; `make race RACE=--quick` takes some minutes.
race:
	benches/race/race.py $(RACE)

# Ranks started by the real launchers: mpiexec of three MPI libraries from PyPI, and a Slurm from Debian, unpacked. Some minutes.
launchers:
	tests/launchers/launchers.py $(LAUNCHERS)

# Several nodes over MPI, simulated on this machine: MPICH's mpiexec, and a Slurm of two nodes. Lints and builds that package first,
# which needs an MPI. `make nodes NODES='--without openmpi slurm'` takes a minute.
nodes:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/install python3 python3-venv
	mpi/tests/nodes.py $(NODES)

# The same calls over intranode and MPICH, and by MPICH alone, with 2 and 4 ranks on each of two simulated nodes. Some minutes.
nodes-bench:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/install python3 python3-venv
	mpi/tests/nodes.py --bench

# Cobre's training on simulated hosts under MPICH's mpiexec, compared bit for bit with one process. It uses the solver that `make test`
# has built.
cobre-nodes: cmake
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/install python3 python3-venv
	mpi/tests/cobre.py $(NODES)

# All of Cobre's cut-selection methods with 1 to 8 ranks of 1 or 2 threads, compared with Cobre's own backend bit for bit.
cobre-matrix: cmake
	cobre/run.sh matrix

# The memory of a large case's data, shared by 4 ranks, and once for each rank.
memory: cmake
	cobre/run.sh memory --hydros 180 --thermals 140 --stages 120 --openings 5

# The solver's build needs cmake and a C++ compiler.
cmake:
	@command -v cmake >/dev/null && command -v c++ >/dev/null || .ci/install cmake g++
