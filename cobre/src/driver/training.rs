//! Training, and its output files.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cobre_comm::Communicator;
use cobre_io::{DistributionInfo, MetadataTrainingSolveStats, OutputContext, TrainingOutput, now_iso8601};
use cobre_sddp::policy::orchestration::{CheckpointParams, write_checkpoint};
use cobre_sddp::{
    SddpError, TrainingResult, aggregate_solver_stats_log, build_deviation_summary,
    build_evaporation_model_rows, build_fixed_delivery_rows, build_generic_constraint_echo_rows,
    solver_stats_log_to_rows,
};
use cobre_solver::{ActiveSolver, active_solver_metadata_id, active_solver_version};

use crate::driver::failure::{Outcome, agree};
use crate::driver::report::{Events, seconds};
use crate::driver::study::{Session, Study};
use crate::driver::threads;

/// The results of training.
pub(crate) struct Trained {
    pub(crate) result: TrainingResult,
    /// An error in the middle of an iteration; the iterations before it are valid.
    pub(crate) error: Option<SddpError>,
    pub(crate) output: TrainingOutput,
    started_at: String,
    completed_at: String,
}

/// Trains the policy of `study` with all ranks.
pub(crate) fn train<C: Communicator>(
    session: &Session<C>,
    study: &mut Study,
    stop: &Arc<AtomicUsize>,
) -> Outcome<Trained> {
    study.setup.enable_periodic_checkpoints(&study.system, &session.output);
    let started_at = now_iso8601();
    let mut solver = agree(&session.comm, ActiveSolver::new().map_err(Into::into))?;
    let passes = study.setup.loop_params.forward_passes as usize;
    let threads = threads::for_training(passes, session.comm.size(), session.threads);
    if threads < session.threads && session.speaks() {
        tell!(
            "training uses {threads} thread(s) a rank: Cobre cannot distribute {passes} forward passes over more"
        );
    }
    let (sender, events) = Events::collect(session.speaks(), session.json && session.is_root());
    let outcome =
        study.setup.train(&mut solver, &session.comm, threads, ActiveSolver::new, Some(sender), Some(stop));
    let events = events.finish();
    let outcome = outcome?;
    let mut output = study.setup.build_training_output(&outcome.result, &events);
    output.training_solve_stats = solve_statistics(session, &outcome.result, &output);
    if session.speaks() {
        tell!(
            "training: {} iterations in {:.3} s ({}), lower {:.6e}, upper {:.6e}, {} cuts active",
            outcome.result.iterations,
            seconds(outcome.result.total_time_ms),
            outcome.result.reason,
            outcome.result.final_lb,
            outcome.result.final_ub,
            output.cut_stats.total_active,
        );
    }
    Ok(Trained {
        result: outcome.result,
        error: outcome.error,
        output,
        started_at,
        completed_at: now_iso8601(),
    })
}

/// The counters of all ranks. Needs no communication: every rank's log contains the backward passes of all ranks, and the
/// sums of their forward passes. (`cobre run` adds up the logs of all ranks, and so counts some solves once for every rank.)
fn solve_statistics<C: Communicator>(
    session: &Session<C>,
    result: &TrainingResult,
    output: &TrainingOutput,
) -> MetadataTrainingSolveStats {
    let (first_try, retried, failed, forward, backward) =
        aggregate_solver_stats_log(&result.solver_stats_log, None);
    let solves = output.convergence_records.iter().map(|record| u64::from(record.lp_solves)).sum();
    MetadataTrainingSolveStats {
        total_lp_solves: Some(solves),
        first_try: Some(first_try),
        retried: Some(retried),
        failed: Some(failed),
        forward_solve_seconds: Some(forward),
        backward_solve_seconds: Some(backward),
        parallelism: Some(parallelism(session)),
    }
}

/// Writes the policy and the training records on rank 0, and each rank's policy with `--policy-per-rank`. All ranks fail if
/// one of them cannot write.
pub(crate) fn write<C: Communicator>(session: &Session<C>, study: &Study, trained: &Trained) -> Outcome<()> {
    let policy = CheckpointParams {
        max_iterations: study.setup.loop_params.max_iterations,
        forward_passes: study.setup.loop_params.forward_passes,
        seed: study.setup.loop_params.seed,
        export_states: study.config.exports.states,
    };
    let write_policy = |directory: &std::path::Path| {
        write_checkpoint(directory, &study.setup, &study.system, &trained.result, &policy)
    };
    let mut written = Ok(());
    if let Some(directory) = &session.policy_per_rank {
        let mine = directory.join(format!("rank-{}", session.comm.rank()));
        written = write_policy(&mine).map_err(Into::into);
    }
    if session.is_root() && written.is_ok() {
        written = write_policy(&session.output.join(&study.setup.policy_path))
            .map_err(Into::into)
            .and_then(|()| write_on_root(session, study, trained));
    }
    agree(&session.comm, written)
}

fn write_on_root<C: Communicator>(session: &Session<C>, study: &Study, trained: &Trained) -> Outcome<()> {
    let Study { system, config, setup, .. } = study;
    let models = &setup.hydro_models;
    let output = &session.output;

    let context = OutputContext {
        setup: Some(study.timings.clone()),
        production_fit_deviation: build_deviation_summary(&models.fpha_fit_deviations),
        ..output_context(session, trained.started_at.clone(), trained.completed_at.clone())
    };
    cobre_io::write_training_results(output, &trained.output, system, config, &context)?;

    if !models.fpha_export_rows.is_empty() {
        let path = output.join(cobre_io::FPHA_HYPERPLANES_FILE);
        cobre_io::write_fpha_hyperplanes(&path, &models.fpha_export_rows)?;
    }
    let evaporation = build_evaporation_model_rows(models, system);
    if !evaporation.is_empty() {
        let path = output.join(cobre_io::EVAPORATION_MODELS_FILE);
        cobre_io::write_evaporation_models(&path, &evaporation)?;
    }
    if config.exports.fpha_deviation_points && !models.fpha_deviation_point_rows.is_empty() {
        let path = output.join(cobre_io::FPHA_DEVIATION_POINTS_FILE);
        cobre_io::write_fpha_deviation_points(&path, &models.fpha_deviation_point_rows)?;
    }
    if !system.generic_constraints().is_empty() {
        let path = output.join(cobre_io::GENERIC_CONSTRAINT_ECHO_FILE);
        let rows = build_generic_constraint_echo_rows(setup, system);
        cobre_io::write_generic_constraint_echo(&path, &rows)?;
    }
    cobre_io::write_fixed_delivery(output, &build_fixed_delivery_rows(setup, system))?;

    if !trained.result.solver_stats_log.is_empty() {
        let rows = solver_stats_log_to_rows(&trained.result.solver_stats_log);
        cobre_io::write_solver_stats(output, &rows)?;
    }
    if !trained.output.cut_selection_records.is_empty() {
        cobre_io::write_row_selection_records(output, &trained.output.cut_selection_records)?;
    }
    cobre_io::write_success_marker(&output.join("training"))?;
    Ok(())
}

/// The metadata of this run, for every metadata file.
pub(crate) fn output_context<C: Communicator>(
    session: &Session<C>,
    started_at: String,
    completed_at: String,
) -> OutputContext {
    let ranks = u32::try_from(session.comm.size()).unwrap_or(u32::MAX);
    OutputContext {
        hostname: session.hostname.clone(),
        solver: active_solver_metadata_id().to_string(),
        solver_version: Some(active_solver_version()),
        started_at,
        completed_at,
        distribution: DistributionInfo {
            backend: session.backend.to_string(),
            world_size: ranks,
            ranks_participated: ranks,
            num_hosts: u32::try_from(session.hosts.len()).unwrap_or(u32::MAX),
            threads_per_rank: u32::try_from(session.threads).unwrap_or(u32::MAX),
            mpi_library: None,
            mpi_standard: None,
            thread_level: None,
            slurm_job_id: None,
            hosts: session.hosts.clone(),
        },
        setup: None,
        production_fit_deviation: None,
    }
}

/// The number of threads of all ranks.
pub(crate) fn parallelism<C: Communicator>(session: &Session<C>) -> u32 {
    u32::try_from(session.comm.size() * session.threads).unwrap_or(u32::MAX)
}
