//! `cobre-shm case`: a synthetic river system, as a complete case.

mod scenarios;
mod system;

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::driver::failure::{Failure, Kind, Outcome};

/// Cobre's methods of cut selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CutSelection {
    Off,
    Level1,
    Lml1,
    Domination,
    Dynamic,
}

impl CutSelection {
    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory to write; it must not hold a case yet
    directory: PathBuf,
    #[command(flatten)]
    shape: Shape,
}

/// The parameters of a synthetic case.
#[derive(clap::Args)]
pub(crate) struct Shape {
    /// Hydro plants, in cascades of three
    #[arg(long, default_value = "10", value_name = "N")]
    pub(crate) hydros: NonZeroU32,
    /// Thermal plants, each more expensive than the previous one
    #[arg(long, default_value = "5", value_name = "N")]
    pub(crate) thermals: NonZeroU32,
    /// Stages of a month each
    #[arg(long, default_value = "12", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=600))]
    pub(crate) stages: u32,
    /// Openings of each stage
    #[arg(long, default_value = "10", value_name = "N")]
    pub(crate) openings: NonZeroU32,
    /// Forward passes of each iteration
    #[arg(long, default_value = "16", value_name = "N")]
    pub(crate) forward_passes: NonZeroU32,
    /// Iterations of the training
    #[arg(long, default_value = "20", value_name = "N")]
    pub(crate) iterations: NonZeroU32,
    /// Scenarios of the simulation after it; 0 for none
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) scenarios: u32,
    /// How cuts are selected
    #[arg(long, value_enum, default_value = "off")]
    pub(crate) cut_selection: CutSelection,
    /// Iterations between two selections of cuts
    #[arg(long, default_value = "5", value_name = "N")]
    pub(crate) check_frequency: NonZeroU32,
    /// The most cuts that a stage keeps active
    #[arg(long, value_name = "K")]
    pub(crate) max_active_per_stage: Option<NonZeroU32>,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 42, value_name = "S", value_parser = clap::value_parser!(u32))]
    pub(crate) seed: u32,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    write(&arguments.directory, &arguments.shape)?;
    show!("case written to {}", arguments.directory.display());
    Ok(ExitCode::SUCCESS)
}

/// Writes the case of this shape to `directory`.
pub(crate) fn write(directory: &Path, shape: &Shape) -> Outcome<()> {
    if directory.join("config.json").exists() {
        return Err(Failure::new(Kind::Input, format_args!("{} holds a case already", directory.display())));
    }
    let river = system::River::draw(shape);
    let json_files = [
        ("config.json", config(shape)),
        ("stages.json", system::stages(shape)),
        ("penalties.json", system::penalties()),
        ("initial_conditions.json", river.initial_conditions()),
        ("system/buses.json", system::buses()),
        ("system/lines.json", json!({ "lines": [] })),
        ("system/hydros.json", river.hydros()),
        ("system/hydro_production_models.json", river.production_models()),
        ("system/thermals.json", river.thermals()),
    ];
    for (name, value) in json_files {
        write_json(&directory.join(name), &value)?;
    }
    scenarios::write(&directory.join("scenarios"), shape.stages, &river)
}

fn config(shape: &Shape) -> Value {
    let mut cuts = json!({});
    let frequency = shape.check_frequency;
    match shape.cut_selection {
        CutSelection::Off => {}
        CutSelection::Level1 => {
            cuts["selection"] = json!({ "method": "level1", "check_frequency": frequency });
        }
        CutSelection::Lml1 => {
            cuts["selection"] = json!({ "method": "lml1", "check_frequency": frequency });
        }
        CutSelection::Domination => {
            cuts["selection"] = json!({
                "method": "domination",
                "check_frequency": frequency,
                "domination_tolerance": 1e-6,
            });
        }
        CutSelection::Dynamic => cuts["selection"] = json!({ "method": "dynamic" }),
    }
    if let Some(limit) = shape.max_active_per_stage {
        cuts["max_active_per_stage"] = json!(limit);
    }
    json!({
        "training": {
            "tree_seed": shape.seed,
            "selection": { "method": "sampled", "forward_passes": shape.forward_passes },
            "stopping_rules": [{ "type": "iteration_limit", "limit": shape.iterations }],
            "cut_selection": cuts,
            "scenario_source": { "seed": shape.seed },
        },
        "simulation": if shape.scenarios == 0 {
            json!({ "enabled": false })
        } else {
            json!({
                "enabled": true,
                "selection": { "method": "sampled", "num_scenarios": shape.scenarios },
            })
        },
        "exports": { "states": true },
    })
}

fn write_json(path: &Path, value: &Value) -> Outcome<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| Failure::io(parent, error))?;
    }
    fs::write(path, format!("{value:#}\n")).map_err(|error| Failure::io(path, error))
}
