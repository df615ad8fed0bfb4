//! Calls and bulk transfers of endpoints, beside what else there is on this machine.
//!
//! ```text
//! cargo bench --bench endpoint [-- [--quick] [FILTER]]
//! ```
//!
//! Every row is measured once in each block, and the blocks alternate: what disturbs the machine for a while disturbs all rows. The
//! table has the median of the blocks, the lowest and the highest, and how many times that the machine's own figure is: for a
//! call twice the time that a line takes from one core to another, or a packet to a thread that sleeps, for bulk a copy of the same
//! bytes by `process_vm_readv`.
//!
//! * A call is a message of 8 bytes to a server in another process, and its answer. *Awake* both sides poll; *asleep* neither
//!   does, and each message wakes a process.
//! * The same between two ranks of a job, by their messages.
//! * iceoryx2's request-response is a program of its own (`benches/iceoryx2`), which is built first; `ucx_perftest` comes with
//!   `libucx-cu12` from PyPI, and is looked for at `UCX_PERFTEST`, then where `make race` has put it. UCX sends messages by
//!   tag, without a server's work between them. The three MPI libraries are those of `make race`, with its settings, and run
//!   `mpi_calls.c`: calls whose answer has the tag of the call, and long messages that go to and fro. What is not there is left out,
//!   and named.
//!
//! The two processes are bound to a core each. Those that have polled for a row sleep before the next one begins. `FILTER` is a part
//! of the names of the rows that are measured, such as `flight`.

#[cfg(target_os = "linux")]
mod block;
#[cfg(target_os = "linux")]
mod iceoryx;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod mpi;
#[cfg(target_os = "linux")]
mod ours;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod ranks;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod ucx;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    run::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: endpoints are there on Linux only");
}
