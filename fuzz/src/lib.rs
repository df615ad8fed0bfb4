//! The bodies of the fuzz targets. A body checks properties that hold for every input, and panics if one does not. It returns
//! whether the input was accepted.
//!
//! `cargo fuzz run` calls them with libFuzzer's inputs, `tests/fuzz_corpus.rs` of the main package with the corpora and
//! their mutations on stable Rust.

#[cfg(target_os = "linux")]
pub mod address;
pub mod blocks;
#[cfg(target_os = "linux")]
pub mod endpoint;
pub mod environment;
pub mod header;
pub mod input;
#[cfg(target_os = "linux")]
pub mod join;
pub mod layout;
pub mod model;
