//! `cobre-shm memory`: what it takes to hold the data of a case once for all ranks, and once for each.
//!
//! The data is what every rank of a run reads and none writes: the opening tree, and the linear programs that the case
//! was made into. Cobre 0.18 keeps both in vectors of its own, so a run does not gain from this yet; the table says
//! how much it could.

mod data;
mod rank;

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use intranode_cobre::ShmBackend;

use crate::case;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the case and its data go; a directory that does not exist yet
    directory: PathBuf,
    /// How many processes hold it
    #[arg(short = 'n', long, default_value = "4", value_name = "N")]
    ranks: NonZeroUsize,
    #[command(flatten)]
    shape: case::Shape,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let directory = &arguments.directory;
    if launch::is_rank() {
        launch::end_with_launcher()?;
        return rank::measure(&ShmBackend::from_env()?, directory);
    }
    if arguments.ranks.get() == 1 {
        return Err(Failure::new(Kind::Input, "one rank has nobody to share with: ask for several with -n"));
    }
    fs::create_dir(directory).map_err(|error| Failure::io(directory, error))?;
    let case = directory.join("case");
    case::write(&case, &arguments.shape)?;
    // Ranks that have loaded no case have nothing in memory but what is measured.
    data::write(&case, directory)?;
    launch::start(arguments.ranks.get())
}
