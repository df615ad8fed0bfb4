//! What a job must survive: see `linux.rs`. Elsewhere nobody notices a death yet, but by the time-out.

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
