//! Launcher.
fn main() {}
