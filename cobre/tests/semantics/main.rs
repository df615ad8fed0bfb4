//! What `ShmBackend` does behind Cobre's traits, over real processes and over ranks as threads.
//!
//! Each row is what one rank does and checks. A test has a name such as
//! `processes::4::allgatherv_one_rank_sends_nothing`. A process is this very program again, told by its
//! environment which rank it is, so that `ShmBackend::from_env` is what joins it.

mod collectives;
mod drivers;
mod errors;
mod local;
#[cfg(feature = "shared-memory")]
mod regions;
mod types;

use std::process::ExitCode;
use std::time::Duration;

use intranode_cobre::ShmBackend;
use libtest_mimic::Arguments;

/// What a check gives.
type Outcome = anyhow::Result<()>;

/// One row of the tables.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// What each rank does.
    body: fn(&ShmBackend) -> Outcome,
    /// With how many ranks it runs.
    ranks: &'static [usize],
    /// How long its ranks wait for each other.
    timeout: Duration,
}

/// Longer than a busy machine keeps a rank waiting.
const PATIENCE: Duration = Duration::from_secs(50);

/// With the usual numbers of ranks.
const USUAL: &[usize] = &[1, 2, 4];
/// Where other ranks are needed.
const SEVERAL: &[usize] = &[2, 4];

/// Rows under their functions' names.
macro_rules! rows {
    ($ranks:expr; $($function:ident),* $(,)?) => {
        [$($crate::Row {
            name: stringify!($function),
            body: $function,
            ranks: $ranks,
            timeout: $crate::PATIENCE,
        }),*]
    };
}
use rows;

/// Fails unless the value matches the pattern, and shows the value.
macro_rules! ensure_matches {
    ($value:expr, $($pattern:tt)+) => {
        match &$value {
            $($pattern)+ => {}
            other => anyhow::bail!("expected {}, got {other:?}", stringify!($($pattern)+)),
        }
    };
}
use ensure_matches;

fn all_rows() -> Vec<Row> {
    let mut all = [collectives::rows(), types::rows(), errors::rows(), local::rows()].concat();
    #[cfg(feature = "shared-memory")]
    all.extend(regions::rows());
    all
}

fn main() -> ExitCode {
    if let Some(row) = drivers::role() {
        return drivers::run_as_rank(&row, &all_rows());
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, drivers::trials(&all_rows())).exit_code()
}
