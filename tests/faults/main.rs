//! The faults that a job must survive: see `linux.rs`. Other systems detect a death by the time-out only.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod linux;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: deaths are noticed on Linux only");
}
