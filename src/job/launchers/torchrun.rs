//! `torchrun` of PyTorch.

use super::placement::{Half, Launcher, Placement, Surroundings};
use crate::error::Error;
use crate::job::settings::invalid;

const LAUNCHER: Launcher = Launcher::Torchrun;
pub(super) const RUN_ID: &str = "TORCHELASTIC_RUN_ID";

/// What a rank has besides what it is known by, and no other process.
pub(super) const HALF: Half = (LAUNCHER, "LOCAL_RANK", &[RUN_ID]);

/// Not `LOCAL_RANK` alone, which other launchers of Python programs set too.
pub(super) fn is_present(surroundings: &dyn Surroundings) -> bool {
    [RUN_ID, "LOCAL_RANK"].iter().all(|name| surroundings.variable(name).is_some())
}

pub(super) fn placement(surroundings: &dyn Surroundings) -> Result<Placement, Error> {
    let number = |name| surroundings.number(name, LAUNCHER);
    // The run's id is "none" unless it is given, and the port 29500. So the agent, of which there is one a node, identifies
    // the job, with the count of restarts, which it survives.
    let run_id = surroundings.required(RUN_ID, LAUNCHER)?;
    let port = surroundings.variable("MASTER_PORT").unwrap_or_default();
    let restarts = surroundings.variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let Some(agent) = surroundings.setter_of(RUN_ID) else {
        let allowed = "set by an agent that can be found among the ancestors of this process in /proc; set INTRANODE_NAME, \
                       INTRANODE_RANK and INTRANODE_SIZE instead";
        return Err(invalid(RUN_ID, Some(run_id), allowed));
    };
    Ok(Placement {
        rank: number("RANK")?,
        size: number("WORLD_SIZE")?,
        local_rank: number("LOCAL_RANK")?,
        local_size: number("LOCAL_WORLD_SIZE")?,
        identity: format!("{run_id} {port} {restarts} {agent}"),
    })
}
