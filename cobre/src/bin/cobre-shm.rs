//! Train and simulate a Cobre case over the processes of one machine.

use std::process::ExitCode;

/// What ranks send from long vectors is read where it lies.
#[global_allocator]
static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();

fn main() -> ExitCode {
    intranode_cobre::driver::program()
}
