//! `cobre-shm` from the outside: the same results from any number of processes, and orderly endings.

mod bench;
mod endings;
mod memory;
mod results;
