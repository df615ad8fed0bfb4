//! Messages between strangers, over real processes: see `linux.rs`. Other systems have no endpoints.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod linux;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: endpoints are there on Linux only");
}
