//! `cobre-shm memory`: the memory for the data of a case in one shared copy, and in one copy for each rank.
//!
//! The data is what every rank reads and none writes: the opening tree, and the linear programs of the case. Cobre 0.18
//! keeps both in vectors, so a run does not save this memory yet; the table is what it could save.

mod data;
mod rank;

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::ShmBackend;

use crate::driver::case;
use crate::driver::failure::{Failure, Kind, Outcome};
use crate::driver::launch;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory for the case and its data, which must not exist yet
    directory: PathBuf,
    /// The number of ranks
    #[arg(short = 'n', long, default_value = "4", value_name = "N")]
    ranks: NonZeroUsize,
    #[command(flatten)]
    shape: case::Shape,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let directory = &arguments.directory;
    if launch::is_rank() {
        launch::end_with_launcher()?;
        return execute_rank(arguments, &ShmBackend::from_env()?);
    }
    if arguments.ranks.get() == 1 {
        return Err(Failure::new(Kind::Input, "one rank shares nothing: pass a larger number with -n"));
    }
    fs::create_dir(directory).map_err(|error| Failure::io(directory, error))?;
    let case = directory.join("case");
    case::write(&case, &arguments.shape)?;
    // The ranks read these files and load no case, so that only the data is measured.
    data::write(&case, directory)?;
    launch::start(arguments.ranks.get())
}

/// One rank of several, which are connected: the data is there already.
pub(crate) fn execute_rank(arguments: &Arguments, comm: &ShmBackend) -> Outcome<ExitCode> {
    rank::measure(comm, &arguments.directory)
}
