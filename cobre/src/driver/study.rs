//! Loading a case: from its directory to a study that can be trained.
//!
//! Every rank reads the same files and computes the same study, so nothing is sent.

use std::path::{Path, PathBuf};
use std::time::Instant;

use cobre_comm::Communicator;
use cobre_core::System;
use cobre_io::{Config, HostLayout, LoadedCase, SetupTimings};
use cobre_sddp::hydro_models::prepare_hydro_models_from_artifacts;
use cobre_sddp::policy::orchestration::export_stochastic_artifacts;
use cobre_sddp::{
    EstimationPath, EstimationReport, HydroFitTimings, PrepareStochasticResult, StudyParams, StudySetup,
    build_hydro_model_summary, build_provenance_report, prepare_stochastic,
    resolve_boundary_state_requirements,
};
use cobre_stochastic::HistoricalScenarioLibrary;
use serde_json::{Map, Value};

use crate::driver::failure::{Failure, Kind, Outcome, agree};

/// One rank of a run: its communicator, paths and options.
pub(crate) struct Session<C: Communicator> {
    pub(crate) comm: C,
    /// The name of the backend in the metadata.
    pub(crate) backend: &'static str,
    pub(crate) hostname: String,
    /// Which ranks are on which host.
    pub(crate) hosts: Vec<HostLayout>,
    pub(crate) case: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) policy_per_rank: Option<PathBuf>,
    pub(crate) threads: usize,
    pub(crate) quiet: bool,
    /// Whether the memory of the ranks is printed after training.
    pub(crate) pss: bool,
    /// Whether events go to standard output.
    pub(crate) json: bool,
    /// What replaces settings of the case's configuration.
    pub(crate) settings: Map<String, Value>,
}

impl<C: Communicator> Session<C> {
    /// Rank 0 writes what is common to all ranks.
    pub(crate) fn is_root(&self) -> bool {
        self.comm.rank() == 0
    }

    /// Whether this rank prints its progress.
    pub(crate) fn speaks(&self) -> bool {
        self.is_root() && !self.quiet
    }
}

/// A loaded case, ready to be trained.
pub(crate) struct Study {
    pub(crate) system: System,
    pub(crate) config: Config,
    pub(crate) setup: StudySetup,
    pub(crate) timings: SetupTimings,
    pub(crate) estimation_report: Option<EstimationReport>,
    estimation_path: EstimationPath,
}

impl Study {
    /// Loads the case on all ranks.
    pub(crate) fn load<C: Communicator>(session: &Session<C>) -> Outcome<Self> {
        let study = agree(&session.comm, load(&session.case, &session.output, &session.settings))?;
        if session.speaks() {
            tell!(
                "case {}: {} stages, {} hydros, {} thermals, {} forward passes",
                session.case.display(),
                study.setup.num_stages(),
                study.system.n_hydros(),
                study.system.n_thermals(),
                study.setup.loop_params.forward_passes,
            );
        }
        Ok(study)
    }

    /// Removes the output of an earlier run, and writes the models and their provenance, which are known before training.
    pub(crate) fn write_models<C: Communicator>(&self, session: &Session<C>) -> Outcome<()> {
        let written = if session.is_root() { self.write_models_on_root(session) } else { Ok(()) };
        agree(&session.comm, written)
    }

    fn write_models_on_root<C: Communicator>(&self, session: &Session<C>) -> Outcome<()> {
        let output = &session.output;
        let training = output.join("training");
        if self.config.training.enabled {
            cobre_io::remove_success_marker(&training)?;
            cobre_io::remove_conditional_training_outputs(output)?;
        }
        if self.setup.simulation_config.n_scenarios > 0 {
            cobre_io::remove_success_marker(&output.join("simulation"))?;
            cobre_io::remove_simulation_outputs(output)?;
        }

        let summary = build_hydro_model_summary(&self.setup.hydro_models, &self.system);
        cobre_io::write_hydro_model_summary(&training.join("hydro_models.json"), &summary)?;

        let stochastic = &self.setup.inputs.stochastic;
        let mut provenance = build_provenance_report(
            self.estimation_path,
            self.estimation_report.as_ref(),
            stochastic.provenance(),
            self.system.hydros(),
            &self.setup.hydro_models.provenance,
        );
        let libraries = &self.setup.inputs.scenario_libraries;
        provenance.inflow.historical_library_seed_digest =
            libraries.training.historical.as_ref().map(HistoricalScenarioLibrary::seed_digest);
        cobre_io::write_provenance_report(&training.join("model_provenance.json"), &provenance)?;

        if self.config.exports.stochastic {
            export_stochastic_artifacts(
                output,
                stochastic,
                &self.system,
                self.estimation_report.as_ref(),
                &mut |warning| tell!("cobre-shm: warning: {warning}"),
            );
        }

        let scaling = &self.setup.inputs.stage_data.scaling_report;
        cobre_io::write_scaling_report(&training.join("scaling_report.json"), scaling)?;
        Ok(())
    }
}

/// Loads the case on this rank only.
pub(crate) fn load(case: &Path, output: &Path, settings: &Map<String, Value>) -> Outcome<Study> {
    if !case.is_dir() {
        return Err(Failure::io(case, "there is no such case directory"));
    }
    let mut timings = SetupTimings::default();

    let start = Instant::now();
    let LoadedCase { system, artifacts } = cobre_io::load_case_with_artifacts(case)?;
    let config_path = case.join("config.json");
    let mut config = cobre_io::parse_config(&config_path)?;
    if !settings.is_empty() {
        let text = std::fs::read_to_string(&config_path).map_err(|error| Failure::io(&config_path, error))?;
        let base = serde_json::from_str(&text).map_err(|error| Failure::new(Kind::Input, error))?;
        config = Config::with_overrides(&base, settings)?;
    }
    config.policy.check_dir(&config_path, output, config.policy_dir_intent())?;
    timings.load_seconds = start.elapsed().as_secs_f64();

    let boundary = resolve_boundary_state_requirements(case, &config)?;
    let training_source = config.training_scenario_source(&config_path)?;
    // The seed as the study resolves it, which parses the parameters again.
    let seed = StudyParams::from_config(&config, Vec::new())?.seed;

    let start = Instant::now();
    let PrepareStochasticResult { system, stochastic, estimation_report, estimation_path } =
        prepare_stochastic(system, case, &config, seed, &training_source, boundary.inflow_lag_depth())?;
    timings.stochastic_fit_seconds = start.elapsed().as_secs_f64();

    let mut fits = HydroFitTimings::default();
    let hydro_models = prepare_hydro_models_from_artifacts(
        &system,
        &artifacts,
        config.exports.fpha_deviation_points,
        Some(&mut fits),
    )?;
    timings.production_fit_seconds = fits.production_fit_seconds;
    timings.evaporation_fit_seconds = fits.evaporation_fit_seconds;

    let setup = StudySetup::new_with_boundary_requirements(
        &system,
        &config,
        stochastic,
        hydro_models,
        boundary,
        artifacts.scalar_parameters,
    )?;
    Ok(Study { system, config, setup, timings, estimation_report, estimation_path })
}
