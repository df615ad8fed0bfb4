//! A plug-in that uses this library: see `row_31` of `tests/faults`.

use intranode::{Config, Error};

fn run() -> Result<(), Error> {
    let comm = Config::from_env()?.state_reports(true).fatal_signals(true).join()?;
    comm.barrier()?;
    comm.leave()
}

/// Joins, runs and leaves as a rank. Returns whether all calls succeeded.
// SAFETY: no other symbol of the program has this name.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_is_a_rank() -> bool {
    run().is_ok()
}
