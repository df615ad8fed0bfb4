//! `SharedHeap` as the global allocator of real processes. Each test runs in processes of its own, which run this same program: alone,
//! or as the ranks of a job. Every test has a time limit, and what it has started is killed then.
//!
//! `INTRANODE_HEAP_STRESS=3600` lets the stress tests run that many seconds; `INTRANODE_HEAP_SEED=7` lets those of threads choose the same
//! as before; `INTRANODE_HEAP_LARGE=1` runs what takes some GiB.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod linux;

#[global_allocator]
static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    let zeros = vec![0u8; 1 << 20];
    assert!(zeros.iter().all(|byte| *byte == 0));
    println!("SKIPPED: the heap is the system's allocator here");
}
