//! `srun` of Slurm.

use super::placement::{Launcher, Placement, Surroundings};
use crate::error::Error;
use crate::job::settings::invalid;

const LAUNCHER: Launcher = Launcher::Slurm;
pub(super) const STEP: &str = "SLURM_STEP_ID";

/// The steps that are not tasks of `srun`, but a batch script, the shell of an interactive allocation and the like: Slurm
/// numbers them from here on (`slurm.h`).
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Whether `srun` has started this process. The script of `sbatch` has `SLURM_NTASKS` and `SLURM_LOCALID` as well, and is no
/// task: it has no step.
pub(super) fn is_present(surroundings: &dyn Surroundings) -> bool {
    let step = surroundings.variable(STEP).and_then(|step| step.parse::<u32>().ok());
    step.is_some_and(|step| step < FIRST_SPECIAL_STEP) && surroundings.variable("SLURM_LOCALID").is_some()
}

pub(super) fn placement(surroundings: &dyn Surroundings) -> Result<Placement, Error> {
    let number = |name| surroundings.number(name, LAUNCHER);
    let required = |name| surroundings.required(name, LAUNCHER);
    // The global numbers of the tasks on this node, separated by commas.
    let tasks = required("SLURM_GTIDS")?;
    let optional = |name| surroundings.variable(name).unwrap_or_default();
    let placement = Placement {
        rank: number("SLURM_PROCID")?,
        // Not SLURM_NTASKS, which is that of the job where another launcher starts its processes through a step.
        size: number("SLURM_STEP_NUM_TASKS")?,
        local_rank: number("SLURM_LOCALID")?,
        local_size: tasks.split(',').count(),
        identity: format!(
            "{} {}.{}.{}-{}",
            optional("SLURM_CLUSTER_NAME"),
            required("SLURM_JOB_ID")?,
            required(STEP)?,
            optional("SLURM_RESTART_COUNT"),
            required("SLURM_NODEID")?,
        ),
    };
    if tasks.split(',').nth(placement.local_rank) != Some(placement.rank.to_string().as_str()) {
        let allowed = format!("a list in which number {} is {}", placement.local_rank, placement.rank);
        return Err(invalid("SLURM_GTIDS", Some(tasks), &allowed));
    }
    Ok(placement)
}
