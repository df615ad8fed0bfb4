//! The tests of the model in `benches/contention`: cargo runs no tests in a bench without a harness.

#[path = "../model/mod.rs"]
#[allow(dead_code, reason = "the bench uses more of it")]
mod model;
#[path = "../study.rs"]
#[allow(dead_code, reason = "as above")]
mod study;

mod barrier;
mod choice;
mod line;
mod machine;
mod simulation;
