//! `cobre-shm run`: runs one rank, or starts all of them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use crate::ShmBackend;
use clap::ValueEnum;
use cobre_comm::{Communicator, LocalBackend, TopologyProvider};
use cobre_sddp::setup::{PostTrainingSimulation, RunPhasePlan, signal_stop_requested};

use crate::driver::failure::{Failure, Kind, Outcome};
use crate::driver::hosts;
use crate::driver::json;
use crate::driver::launch;
use crate::driver::policy;
use crate::driver::pss::{self, mb};
use crate::driver::simulation;
use crate::driver::stop::{STOPPED_ON_REQUEST, StopRequest};
use crate::driver::study::{Session, Study};
use crate::driver::threads;
use crate::driver::training;

/// The communication backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The processes of this machine, over shared memory.
    #[value(alias = "auto")]
    Shm,
    /// Cobre's own backend of a single process.
    Local,
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The case directory.
    case: PathBuf,
    /// Where the results go [default: CASE/output]
    #[arg(long, visible_alias = "output", value_name = "DIR")]
    out: Option<PathBuf>,
    /// The number of ranks [default: 1, or that of the launcher]
    #[arg(short = 'n', long, value_name = "N")]
    ranks: Option<NonZeroUsize>,
    /// Threads of each rank [default: RAYON_NUM_THREADS, or the rank's share of the processors]
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
    /// The communication backend
    #[arg(long, value_enum, env = "COBRE_COMM_BACKEND", default_value = "shm")]
    backend: Backend,
    /// Write every rank's policy, to DIR/rank-0 and so on, so that they can be compared
    #[arg(long, value_name = "DIR")]
    policy_per_rank: Option<PathBuf>,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    /// After the training, print how much memory the ranks of each node have: their PSS without files, in which a page that several
    /// processes map counts once
    #[arg(long)]
    pss: bool,
    /// Print events on standard output, one JSON object a line: each iteration, the result, and the time and memory of each rank.
    /// The run ends with the process that has started it
    #[arg(long)]
    json: bool,
    /// End with the process that has started this one
    #[arg(long, hide = true)]
    end_with_parent: bool,
    /// Replace a setting of the case's config.json, such as training.tree_seed=7; VALUE is JSON
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = json::setting)]
    settings: Vec<(String, serde_json::Value)>,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let requested = arguments.ranks.map(NonZeroUsize::get);
    if (arguments.json || arguments.end_with_parent) && !launch::is_rank() {
        launch::end_with_parent()?;
    }
    match arguments.backend {
        Backend::Local => {
            expect_ranks(requested, 1, "the local backend")?;
            run_rank(arguments, LocalBackend, "local")
        }
        Backend::Shm if ShmBackend::is_configured() => {
            launch::end_with_launcher()?;
            let comm = ShmBackend::from_env()?;
            execute_rank(arguments, comm)
        }
        Backend::Shm => match requested.unwrap_or(1) {
            1 => {
                let alone = intranode::Config::new(launch::unique_name(), 0, 1);
                run_rank(arguments, ShmBackend::join(alone)?, "shm")
            }
            ranks => launch::start(ranks),
        },
    }
}

/// One rank of several, which are connected.
pub(crate) fn execute_rank(arguments: &Arguments, comm: ShmBackend) -> Outcome<ExitCode> {
    let requested = arguments.ranks.map(NonZeroUsize::get);
    expect_ranks(requested, comm.size(), "the environment")?;
    run_rank(arguments, comm, "shm")
}

fn expect_ranks(requested: Option<usize>, actual: usize, source: &str) -> Outcome<()> {
    match requested {
        Some(requested) if requested != actual => Err(Failure::new(
            Kind::Input,
            format_args!(
                "-n {requested} does not fit: {source} has {actual} rank(s); omit -n, or set INTRANODE_LAUNCHER=none to start \
                 ranks under a launcher"
            ),
        )),
        _ => Ok(()),
    }
}

fn run_rank<C: Communicator + TopologyProvider>(
    arguments: &Arguments,
    comm: C,
    backend: &'static str,
) -> Outcome<ExitCode> {
    let start = Instant::now();
    let hosts = hosts::layout(comm.topology());
    let threads = threads::of_a_rank(arguments.threads, hosts::ranks_beside(&hosts, comm.rank()));
    let output = arguments.out.clone().unwrap_or_else(|| arguments.case.join("output"));
    let session = Session {
        comm,
        backend,
        hostname: cobre_io::get_hostname(),
        hosts,
        case: arguments.case.clone(),
        output,
        policy_per_rank: arguments.policy_per_rank.clone(),
        threads,
        quiet: arguments.quiet,
        pss: arguments.pss,
        json: arguments.json,
        settings: arguments.settings.iter().cloned().collect(),
    };
    let outcome = phases(&session);
    if session.json && outcome.is_ok() {
        json::worker(session.comm.rank(), start.elapsed());
    }
    let ranks = session.comm.size();
    outcome.map_err(|failure| {
        if ranks == 1 {
            return failure;
        }
        let failure = failure.on_rank(session.comm.rank());
        if !failure.is_agreed() {
            // The other ranks may be waiting for this one.
            failure.print();
            session.comm.abort(i32::from(failure.code()));
        }
        failure
    })
}

/// Training, simulation and all output. Runs on every rank.
fn phases<C: Communicator>(session: &Session<C>) -> Outcome<ExitCode> {
    let stop = StopRequest::install()?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(session.threads)
        .build_global()
        .map_err(|error| Failure::new(Kind::Internal, error))?;
    if session.speaks() {
        tell!(
            "backend {}: {} rank(s) on {} node(s), {} thread(s) each",
            session.backend,
            session.comm.size(),
            session.hosts.len(),
            session.threads
        );
    }

    let mut study = Study::load(session)?;
    study.write_models(session)?;
    let scenarios = study.setup.simulation_config.n_scenarios;
    let mut result = json::RunResult::of(session, &study);
    let code = match RunPhasePlan::resolve(study.config.training.enabled, scenarios > 0) {
        RunPhasePlan::TrainedThenSimulated => train_then_simulate(session, &mut study, &stop, &mut result)?,
        RunPhasePlan::SimulateFromPolicy => {
            let loaded = policy::load_for_simulation(session, &mut study)?;
            result.simulated(simulation::simulate(session, &study, &loaded)?);
            ExitCode::SUCCESS
        }
        RunPhasePlan::Nothing => {
            if session.speaks() {
                tell!("training and simulation are both turned off: nothing to do");
            }
            ExitCode::SUCCESS
        }
    };
    if session.speaks() {
        tell!("results: {}", session.output.display());
    }
    if session.json && session.is_root() {
        result.print();
    }
    Ok(code)
}

fn train_then_simulate<C: Communicator>(
    session: &Session<C>,
    study: &mut Study,
    stop: &StopRequest,
    result: &mut json::RunResult,
) -> Outcome<ExitCode> {
    policy::prepare_training(session, study)?;
    stop.open();
    let trained = training::train(session, study, stop.flag())?;
    if session.pss {
        print_pss(session)?;
    }
    training::write(session, study, &trained)?;
    result.trained(&trained.output);
    if let Some(error) = trained.error {
        // The iterations before the error are written. Every rank has the error.
        return Err(Failure::from(error).agreed());
    }
    let level = stop.agreed_level(&session.comm)?;
    let decision = &trained.result.stop_decision;
    let stopped = signal_stop_requested(decision, level);
    if !stopped {
        stop.close();
    }

    let scenarios = study.setup.simulation_config.n_scenarios;
    match PostTrainingSimulation::resolve(scenarios > 0, decision, level) {
        PostTrainingSimulation::Run => {
            result.simulated(simulation::simulate(session, study, &trained.result)?);
        }
        PostTrainingSimulation::SkipAfterSignalStop => {
            simulation::write_skipped(session, scenarios)?;
        }
        PostTrainingSimulation::NotRequested => {}
    }
    Ok(if stopped { ExitCode::from(STOPPED_ON_REQUEST) } else { ExitCode::SUCCESS })
}

/// One line for each node, by the root.
fn print_pss<C: Communicator>(session: &Session<C>) -> Outcome<()> {
    let of_hosts = pss::of_hosts(&session.comm, &session.hosts)?;
    if session.is_root() {
        for (node, (host, bytes)) in session.hosts.iter().zip(of_hosts).enumerate() {
            show!(
                "node {node} ({}), {} rank(s): {} PSS after training",
                host.hostname,
                host.ranks.len(),
                mb(bytes)
            );
        }
    }
    Ok(())
}
