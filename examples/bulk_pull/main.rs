//! A bulk pull: see `pull.rs`. Endpoints are there on Linux only.

#[cfg(target_os = "linux")]
mod pull;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    pull::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: endpoints are there on Linux only");
}
