//! `cobre-shm run --json`: events for another program, one JSON object a line. Their keys are those of cobre-python.

use std::io::Write;
use std::time::Duration;

use cobre_comm::Communicator;
use cobre_core::TrainingEvent;
use cobre_io::{SimulationOutput, TrainingOutput};
use cobre_sddp::{StochasticSource, build_hydro_model_summary, build_stochastic_summary};
use serde_json::{Value, json};

use crate::driver::study::{Session, Study};

/// `KEY=VALUE` of the option `--set`.
pub(crate) fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is needed, such as training.tree_seed=7")?;
    let value = serde_json::from_str(value).map_err(|error| format!("the value is not JSON: {error}"))?;
    Ok((key.to_owned(), value))
}

/// A line in one write, so that those of several ranks do not mix. Nobody may read them any more, which is no error.
fn print(value: &Value) {
    let _ = std::io::stdout().write_all(format!("{value}\n").as_bytes());
}

/// The end of an iteration.
pub(crate) fn iteration(event: &TrainingEvent) {
    if let TrainingEvent::IterationSummary { iteration, lower_bound, upper_bound, gap, wall_time_ms, .. } =
        event
    {
        print(&json!({
            "kind": "iteration",
            "iteration": iteration,
            "lower_bound": lower_bound,
            "upper_bound": upper_bound,
            "gap": gap,
            "wall_time_ms": wall_time_ms,
        }));
    }
}

/// The end of a rank.
pub(crate) fn worker(rank: usize, elapsed: Duration) {
    print(&json!({
        "kind": "worker",
        "rank": rank,
        "seconds": elapsed.as_secs_f64(),
        "peak_bytes": peak_bytes(),
    }));
}

/// The most memory that this process has had, with what it shares.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok().map(|kib: u64| kib * 1024)
}

/// The result of a run.
pub(crate) struct RunResult(Value);

impl RunResult {
    /// Before training.
    pub(crate) fn of<C: Communicator>(session: &Session<C>, study: &Study) -> Self {
        RunResult(json!({
            "kind": "result",
            "converged": false,
            "iterations": 0,
            "lower_bound": 0.0,
            "upper_bound": null,
            "gap_percent": null,
            "total_time_ms": 0,
            "output_dir": session.output.display().to_string(),
            "simulation": null,
            "stochastic": stochastic(study),
            "hydro_models": hydro_models(study),
        }))
    }

    /// After training.
    pub(crate) fn trained(&mut self, output: &TrainingOutput) {
        self.0["converged"] = json!(output.converged);
        self.0["iterations"] = json!(output.iterations_completed);
        self.0["lower_bound"] = json!(output.final_lower_bound);
        self.0["upper_bound"] = json!(output.final_upper_bound);
        self.0["gap_percent"] = json!(output.final_gap_percent);
        self.0["total_time_ms"] = json!(output.total_time_ms);
    }

    /// After the simulation.
    pub(crate) fn simulated(&mut self, output: SimulationOutput) {
        self.0["simulation"] = json!({"n_scenarios": output.n_scenarios, "completed": output.completed});
    }

    pub(crate) fn print(&self) {
        print(&self.0);
    }
}

fn stochastic(study: &Study) -> Value {
    let summary = build_stochastic_summary(
        &study.system,
        &study.setup.inputs.stochastic,
        study.estimation_report.as_ref(),
        study.setup.loop_params.seed,
    );
    let source = |source: &StochasticSource| match source {
        StochasticSource::Estimated => Some("estimated"),
        StochasticSource::Loaded => Some("loaded"),
        StochasticSource::None => None,
    };
    let order = summary.ar_summary.as_ref().map(|order| {
        json!({
            "method": order.method,
            "min_order": order.min_order,
            "max_order": order.max_order,
            "n_hydros": order.n_hydros,
            "order_counts": order.order_counts,
        })
    });
    json!({
        "inflow_source": source(&summary.inflow_source),
        "n_hydros": summary.n_hydros,
        "n_seasons": summary.n_seasons,
        "ar_order": order,
        "correlation_source": source(&summary.correlation_source),
        "correlation_dim": summary.correlation_dim,
        "opening_tree_source": source(&summary.opening_tree_source),
        "openings_per_stage": summary.openings_per_stage,
        "n_stages": summary.n_stages,
        "n_load_buses": summary.n_load_buses,
        "seed": summary.seed,
    })
}

fn hydro_models(study: &Study) -> Value {
    let summary = build_hydro_model_summary(&study.setup.hydro_models, &study.system);
    json!({
        "n_constant": summary.n_constant,
        "n_fpha": summary.n_fpha,
        "total_planes": summary.total_planes,
        "n_evaporation": summary.n_evaporation,
        "n_no_evaporation": summary.n_no_evaporation,
    })
}
