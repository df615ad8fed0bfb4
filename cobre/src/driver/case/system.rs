//! The plants, the demand and the calendar of a synthetic river system.
//!
//! Every plant receives 40 m³/s on average and all the water of the plants above it. The demand exceeds the rivers'
//! generation, and the thermal plants can barely cover the rest. So water has a value in every stage, storing it pays, and
//! the cost depends on the inflow.

use serde_json::{Value, json};

use super::Shape;

/// Mean natural inflow of a plant in m³/s.
const MEAN_INFLOW: f64 = 40.0;
/// The number of plants in a cascade.
const CASCADE: u32 = 3;
/// The generation of a plant from 1 m³/s.
const MW_PER_M3S: f64 = 0.9;
/// The amplitude of demand and inflow over the year.
const SEASONAL_AMPLITUDE: f64 = 0.15;
/// The start of operation of every plant.
const BUILT: &str = "2020-01-01";

/// One hydro plant.
pub(super) struct Hydro {
    id: u32,
    downstream: Option<u32>,
    /// The number of plants whose water passes, including this one.
    upstream: u32,
    max_storage: f64,
    initial_storage: f64,
    /// Standard deviation of the natural inflow in m³/s. Far above 10 an inflow may be so negative
    /// that a stage has no solution.
    deviation: f64,
}

impl Hydro {
    /// Mean and deviation of the inflow in a stage.
    pub(super) fn inflow(&self, stage: u32) -> (f64, f64) {
        (MEAN_INFLOW * season(stage, 0.0), self.deviation)
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn max_turbined(&self) -> f64 {
        f64::from(self.upstream) * MEAN_INFLOW * 1.6
    }
}

/// The plants, with their random parameters.
pub(super) struct River {
    hydros: Vec<Hydro>,
    thermals: u32,
}

impl River {
    pub(super) fn draw(shape: &Shape) -> Self {
        let count = shape.hydros.get();
        let mut random = Random(u64::from(shape.seed));
        let hydros = (0..count)
            .map(|id| {
                let max_storage = random.between(150.0, 450.0);
                Hydro {
                    id,
                    downstream: ((id + 1) % CASCADE != 0 && id + 1 < count).then_some(id + 1),
                    upstream: id % CASCADE + 1,
                    max_storage,
                    initial_storage: max_storage * random.between(0.4, 0.7),
                    deviation: random.between(4.5, 10.0),
                }
            })
            .collect();
        Self { hydros, thermals: shape.thermals.get() }
    }

    /// Mean generation of the rivers in MW.
    fn mean_generation(&self) -> f64 {
        let water: u32 = self.hydros.iter().map(|hydro| hydro.upstream).sum();
        f64::from(water) * MEAN_INFLOW * MW_PER_M3S
    }

    /// Mean demand in a stage in MW.
    pub(super) fn demand(&self, stage: u32) -> f64 {
        1.4 * self.mean_generation() * season(stage, 0.5)
    }

    pub(super) fn plants(&self) -> &[Hydro] {
        &self.hydros
    }

    pub(super) fn hydros(&self) -> Value {
        let plants: Vec<Value> = self
            .hydros
            .iter()
            .map(|hydro| {
                let turbined = hydro.max_turbined();
                let generation = turbined * MW_PER_M3S;
                let name = format!("H{}", hydro.id);
                json!({
                    "id": hydro.id,
                    "name": name,
                    "operational_start_date": BUILT,
                    "downstream_id": hydro.downstream,
                    "reservoir": { "min_storage_hm3": 0.0, "max_storage_hm3": hydro.max_storage },
                    "outflow": { "min_outflow_m3s": 0.0, "max_outflow_m3s": null },
                    "generation": {
                        "model": "constant_productivity",
                        "min_turbined_m3s": 0.0,
                        "max_turbined_m3s": turbined,
                        "min_generation_mw": 0.0,
                        "max_generation_mw": generation,
                    },
                    "unit_groups": [{
                        "id": 0,
                        "name": name,
                        "bus_id": 0,
                        "min_generation_mw": 0.0,
                        "max_generation_mw": generation,
                        "min_turbined_m3s": 0.0,
                        "max_turbined_m3s": turbined,
                    }],
                })
            })
            .collect();
        json!({ "hydros": plants })
    }

    pub(super) fn production_models(&self) -> Value {
        let models: Vec<Value> = self
            .hydros
            .iter()
            .map(|hydro| {
                json!({
                    "hydro_id": hydro.id,
                    "selection_mode": "stage_ranges",
                    "stage_ranges": [{
                        "start_stage_id": 0,
                        "end_stage_id": null,
                        "model": "constant_productivity",
                        "productivity_mw_per_m3s": MW_PER_M3S,
                    }],
                })
            })
            .collect();
        json!({ "production_models": models })
    }

    pub(super) fn initial_conditions(&self) -> Value {
        let storage: Vec<Value> = self
            .hydros
            .iter()
            .map(|hydro| json!({ "hydro_id": hydro.id, "value_hm3": hydro.initial_storage }))
            .collect();
        json!({ "storage": storage, "filling_storage": [] })
    }

    pub(super) fn thermals(&self) -> Value {
        let capacity = self.mean_generation() * 0.6 / f64::from(self.thermals);
        let plants: Vec<Value> = (0..self.thermals)
            .map(|id| {
                json!({
                    "id": id,
                    "name": format!("T{id}"),
                    "operational_start_date": BUILT,
                    "bus_id": 0,
                    "generation": { "min_mw": 0.0, "max_mw": capacity },
                    "cost_per_mwh": 40.0 * 1.5_f64.powi(i32::try_from(id).unwrap_or(i32::MAX)),
                })
            })
            .collect();
        json!({ "thermals": plants })
    }
}

pub(super) fn buses() -> Value {
    json!({ "buses": [{
        "id": 0,
        "name": "B0",
        "operational_start_date": BUILT,
        "deficit_segments": [{ "depth_mw": null, "cost": 5000.0 }],
    }] })
}

pub(super) fn penalties() -> Value {
    json!({
        "bus": { "deficit_segments": [{ "depth_mw": null, "cost": 5000.0 }], "excess_cost": 100.0 },
        "line": { "exchange_cost": 2.0 },
        "hydro": {
            "spillage_cost": 0.01,
            "turbined_cost": 0.05,
            "diversion_cost": 0.1,
            "storage_violation_below_cost": 20000.0,
            "filling_target_violation_cost": 10000.0,
            "turbined_violation_below_cost": 1000.0,
            "outflow_violation_below_cost": 1000.0,
            "outflow_violation_above_cost": 1000.0,
            "generation_violation_below_cost": 2000.0,
            "evaporation_violation_cost": 5000.0,
            "water_withdrawal_violation_cost": 5000.0,
        },
        "non_controllable_source": { "curtailment_cost": 0.005 },
    })
}

pub(super) fn stages(shape: &Shape) -> Value {
    let stages: Vec<Value> = (0..shape.stages)
        .map(|id| {
            json!({
                "id": id,
                "start_date": first_day(id),
                "end_date": first_day(id + 1),
                "blocks": [{ "id": 0, "name": "ALL", "hours": days(id) * 24 }],
                "num_openings": shape.openings,
            })
        })
        .collect();
    json!({
        "policy_graph": { "type": "finite_horizon", "annual_discount_rate": 0.08 },
        "stages": stages,
    })
}

/// The first day of the month of a stage; stage 0 is January 2024.
fn first_day(stage: u32) -> String {
    format!("{}-{:02}-01", 2024 + stage / 12, stage % 12 + 1)
}

/// The days of the month of a stage.
fn days(stage: u32) -> u32 {
    let year = 2024 + stage / 12;
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match stage % 12 {
        1 if leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// A factor around 1 with a period of a year, shifted by `shift` years.
fn season(stage: u32, shift: f64) -> f64 {
    let year = f64::from(stage % 12) / 12.0 - shift;
    1.0 + SEASONAL_AMPLITUDE * (std::f64::consts::TAU * year).cos()
}

/// The generator splitmix64: the same numbers on every system.
struct Random(u64);

impl Random {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // 32 bits are exact in an f64.
        let unit = f64::from((bits >> 32) as u32) / f64::from(u32::MAX);
        low + (high - low) * unit
    }
}
