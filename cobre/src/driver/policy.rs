//! The initial policy of a run: none, a warm start, or one to resume.

use cobre_comm::Communicator;
use cobre_io::PolicyMode;
use cobre_sddp::policy::full_fcf_load::{
    CheckedFullFcfLoad, FullFcfLoadKind, check_full_fcf_load, locate_policy_dir,
};
use cobre_sddp::{TrainingResult, inject_boundary_cuts, reconcile_boundary_policy};

use crate::driver::failure::{Outcome, agree};
use crate::driver::study::{Session, Study};

/// Loads the initial policy of the configuration into `study`.
///
/// Every rank reads the files itself. If one fails, all do.
pub(crate) fn prepare_training<C: Communicator>(session: &Session<C>, study: &mut Study) -> Outcome<()> {
    let prepared = apply_stored_policy(session, study).and_then(|()| apply_boundary(session, study));
    agree(&session.comm, prepared)
}

/// Loads a stored policy instead of training one.
pub(crate) fn load_for_simulation<C: Communicator>(
    session: &Session<C>,
    study: &mut Study,
) -> Outcome<TrainingResult> {
    let checked = agree(&session.comm, load(session, study, FullFcfLoadKind::SimulationOnly))?;
    let (costs, result) = checked.into_simulation_policy();
    study.setup.replace_fcf(costs);
    Ok(result)
}

fn apply_stored_policy<C: Communicator>(session: &Session<C>, study: &mut Study) -> Outcome<()> {
    let kind = match study.config.policy.mode {
        PolicyMode::Fresh => return Ok(()),
        PolicyMode::WarmStart => FullFcfLoadKind::WarmStart,
        PolicyMode::Resume => FullFcfLoadKind::Resume,
    };
    let checked = load(session, study, kind)?;
    if session.speaks() {
        tell!("starting from a policy of {} iterations", checked.completed_iterations());
    }
    checked.apply_to_training(&mut study.setup);
    Ok(())
}

/// Applied after the stored policy, which replaces every pool: the boundary replaces the last one.
fn apply_boundary<C: Communicator>(session: &Session<C>, study: &mut Study) -> Outcome<()> {
    let Some(boundary) = &study.config.policy.boundary else {
        return Ok(());
    };
    let reconciled = reconcile_boundary_policy(&study.setup, &study.system, boundary, &session.case)?;
    inject_boundary_cuts(&mut study.setup, &reconciled.cuts)?;
    Ok(())
}

fn load<C: Communicator>(
    session: &Session<C>,
    study: &Study,
    kind: FullFcfLoadKind,
) -> Outcome<CheckedFullFcfLoad> {
    let directory = locate_policy_dir(kind, &session.output, &study.setup)?;
    let mut warn = |warning: &str| {
        if session.speaks() {
            tell!("cobre-shm: warning: {warning}");
        }
    };
    Ok(check_full_fcf_load(kind, &directory, &study.system, &study.setup, &mut warn)?)
}
