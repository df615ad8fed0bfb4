//! Simulation of the trained policy. Every rank writes its own scenarios.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use cobre_comm::{CommData, CommError, Communicator, ReduceOp, prefix_displs};
use cobre_io::output::simulation_writer::{
    ScenarioWritePayload, SimulationParquetWriter, SimulationPathRecord, write_paths, write_scenario_summary,
};
use cobre_io::{MetadataCost, MetadataSimulationSolveStats, SimulationOutput, SolverStatsRow, now_iso8601};
use cobre_sddp::{
    SOLVER_STATS_DELTA_SCALAR_FIELDS, SimulationScenarioResult, SimulationWeighting, SolverStatsDelta,
    TrainingResult, aggregate_simulation, delta_to_stats_row, pack_delta_scalars, pack_scenario_stats,
    unpack_delta_scalars, unpack_scenario_stats,
};
use cobre_solver::ActiveSolver;

use crate::driver::failure::{Failure, Kind, Outcome, agree};
use crate::driver::report::Events;
use crate::driver::study::{Session, Study};
use crate::driver::training::{output_context, parallelism};

/// Runs the configured scenarios with all ranks and writes the results. Returns those of all ranks.
pub(crate) fn simulate<C: Communicator>(
    session: &Session<C>,
    study: &Study,
    trained: &TrainingResult,
) -> Outcome<SimulationOutput> {
    let comm = &session.comm;
    let setup = &study.setup;
    let started_at = now_iso8601();
    let start = Instant::now();

    let prepared = setup
        .create_workspace_pool(comm, session.threads, ActiveSolver::new)
        .map_err(Failure::from)
        .and_then(|pool| {
            let writer = SimulationParquetWriter::new(&session.output, &study.system)?;
            Ok((pool, writer))
        });
    let (mut pool, writer) = agree(comm, prepared)?;

    // Scenarios are written while others still run, which bounds the memory.
    let (results, queue) = sync_channel(setup.simulation_config().io_channel_capacity.max(1));
    let writer = write_scenarios(writer, queue);
    let (sender, events) = Events::collect(false, false);
    let simulated = setup
        .simulate(
            &mut pool.workspaces,
            comm,
            &results,
            Some(sender),
            trained.frozen_templates.as_deref(),
            &trained.basis_cache,
        )
        .map_err(Failure::from);
    drop(results);
    drop(events.finish());
    let written = writer.join().unwrap_or_else(|_| {
        Err(Failure::new(Kind::Internal, "the thread that writes the scenarios ended in a panic"))
    });
    // A scenario that cannot be written stops the simulation too; the cause is reported first.
    let local = written.and_then(|writer| simulated.map(|run| (writer, run)));
    let (writer, run) = agree(comm, local)?;

    let elapsed = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let paths = gather_paths(comm, writer.path_rows())?;
    let mut output = merge(comm, &writer.finalize(elapsed))?;
    let (totals, per_scenario) = gather_statistics(comm, &run.solver_stats)?;
    let weighting = match run.census_weights.as_deref() {
        Some(weights) => SimulationWeighting::Census { weights },
        None => SimulationWeighting::Uniform,
    };
    let (costs, scenario_costs) = aggregate_simulation(&run.costs, setup.simulation_config(), comm, weighting)?;
    output.cost = Some(MetadataCost { mean_cost: costs.mean_cost, std_cost: costs.std_cost });
    output.solve_stats = MetadataSimulationSolveStats {
        total_lp_solves: Some(totals.lp_solves),
        first_try: Some(totals.first_try_successes),
        retried: Some(totals.lp_successes.saturating_sub(totals.first_try_successes)),
        failed: Some(totals.lp_failures),
        solve_seconds: Some(totals.solve_time_ms / 1000.0),
        parallelism: Some(parallelism(session)),
    };
    if session.speaks() {
        tell!(
            "simulation: {} scenarios in {:.3} s, mean cost {:.6e} ± {:.2e}",
            output.n_scenarios,
            crate::driver::report::seconds(output.total_time_ms),
            costs.mean_cost,
            costs.std_cost
        );
    }

    let written = if session.is_root() {
        write_on_root(session, started_at, &output, &per_scenario, paths, &scenario_costs)
    } else {
        Ok(())
    };
    agree(comm, written)?;
    Ok(output)
}

fn write_scenarios(
    mut writer: SimulationParquetWriter,
    queue: Receiver<SimulationScenarioResult>,
) -> JoinHandle<Outcome<SimulationParquetWriter>> {
    std::thread::spawn(move || {
        for scenario in queue {
            writer.write_scenario(ScenarioWritePayload::from(scenario))?;
        }
        Ok(writer)
    })
}

fn write_on_root<C: Communicator>(
    session: &Session<C>,
    started_at: String,
    output: &SimulationOutput,
    per_scenario: &[(u32, SolverStatsDelta)],
    paths: Vec<SimulationPathRecord>,
    costs: &[(u32, f64, Option<f64>)],
) -> Outcome<()> {
    let directory = &session.output;
    let context = output_context(session, started_at, now_iso8601());
    cobre_io::write_simulation_results(directory, output, &context)?;

    let rows: Vec<SolverStatsRow> = per_scenario
        .iter()
        .map(|(scenario, delta)| {
            let scenario = i32::try_from(*scenario).ok();
            delta_to_stats_row(None, scenario, "simulation", None, None, None, None, delta)
        })
        .collect();
    if !rows.is_empty() {
        cobre_io::write_simulation_solver_stats(directory, &rows)?;
    }
    write_paths(directory, paths)?;
    let summary: Vec<(u32, Option<f64>, f64)> =
        costs.iter().map(|&(scenario, cost, probability)| (scenario, probability, cost)).collect();
    write_scenario_summary(directory, &summary)?;
    cobre_io::write_success_marker(&directory.join("simulation"))?;
    Ok(())
}

/// Records in the output directory that the simulation was skipped because of a stop.
pub(crate) fn write_skipped<C: Communicator>(session: &Session<C>, scenarios: u32) -> Outcome<()> {
    let written = if session.is_root() {
        let context = output_context(session, now_iso8601(), now_iso8601());
        cobre_io::write_skipped_simulation_results(&session.output, scenarios, &context)
            .and_then(|()| cobre_io::write_success_marker(&session.output.join("simulation")))
            .map_err(Failure::from)
    } else {
        Ok(())
    };
    agree(&session.comm, written)
}

fn merge<C: Communicator>(comm: &C, local: &SimulationOutput) -> Outcome<SimulationOutput> {
    let mut counts = [0_u32; 3];
    comm.allreduce(&[local.n_scenarios, local.completed, local.failed], &mut counts, ReduceOp::Sum)?;
    // The ranks work in parallel: the time is that of the slowest.
    let mut time = [0_u64];
    comm.allreduce(&[local.total_time_ms], &mut time, ReduceOp::Max)?;
    Ok(SimulationOutput {
        n_scenarios: counts[0],
        completed: counts[1],
        failed: counts[2],
        total_time_ms: time[0],
        cost: None,
        solve_stats: MetadataSimulationSolveStats::default(),
    })
}

fn gather_paths<C: Communicator>(
    comm: &C,
    local: &[SimulationPathRecord],
) -> Outcome<Vec<SimulationPathRecord>> {
    let flat: Vec<i32> = local.iter().flat_map(|row| [row.scenario_id, row.stage_id, row.node_id]).collect();
    Ok(gather(comm, &flat)?
        .chunks_exact(3)
        .map(|row| SimulationPathRecord { scenario_id: row[0], stage_id: row[1], node_id: row[2] })
        .collect())
}

/// The solver's counters: the sum over all ranks, and those of each scenario in order.
fn gather_statistics<C: Communicator>(
    comm: &C,
    local: &[(u32, i32, SolverStatsDelta)],
) -> Outcome<(SolverStatsDelta, Vec<(u32, SolverStatsDelta)>)> {
    let sum = SolverStatsDelta::aggregate(local.iter().map(|(_, _, delta)| delta));
    let mut totals = [0.0_f64; SOLVER_STATS_DELTA_SCALAR_FIELDS];
    comm.allreduce(&pack_delta_scalars(&sum), &mut totals, ReduceOp::Sum)?;

    let scenarios: Vec<(u32, SolverStatsDelta)> =
        local.iter().map(|(scenario, _, delta)| (*scenario, delta.clone())).collect();
    let mut all = unpack_scenario_stats(&gather(comm, &pack_scenario_stats(&scenarios))?);
    all.sort_by_key(|(scenario, _)| *scenario);
    Ok((unpack_delta_scalars(&totals), all))
}

/// The values of all ranks, in rank order.
fn gather<T: CommData, C: Communicator>(comm: &C, local: &[T]) -> Result<Vec<T>, CommError> {
    let ranks: Vec<usize> = (0..comm.size()).collect();
    let mut counts = vec![0_usize; comm.size()];
    comm.allgatherv(&[local.len()], &mut counts, &vec![1; comm.size()], &ranks)?;
    let mut all = vec![T::default(); counts.iter().sum()];
    comm.allgatherv(local, &mut all, &counts, &prefix_displs(&counts))?;
    Ok(all)
}
