//! A key-value store: see `store.rs`. Endpoints are there on Linux only.

#[cfg(target_os = "linux")]
mod on_mio;
#[cfg(all(target_os = "linux", feature = "tokio"))]
mod on_tokio;
#[cfg(all(target_os = "linux", feature = "tokio"))]
mod over_tcp;
#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "the client over TCP is for tests")]
mod protocol;
#[cfg(target_os = "linux")]
mod store;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    store::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: endpoints are there on Linux only");
}
