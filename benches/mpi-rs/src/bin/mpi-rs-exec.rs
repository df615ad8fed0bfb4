//! The launcher of mpi-rs: `mpi-rs-exec -n RANKS PROGRAM...`.

fn main() {
    mpi::launcher::run();
}
