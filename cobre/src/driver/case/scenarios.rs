//! The statistics of inflow and demand, as Parquet files.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::system::River;
use crate::driver::failure::{Failure, Kind, Outcome};

/// One row: the plant or bus, the stage, the mean and the standard deviation.
type Row = (u32, u32, f64, f64);

pub(super) fn write(directory: &Path, stages: u32, river: &River) -> Outcome<()> {
    fs::create_dir_all(directory).map_err(|error| Failure::io(directory, error))?;
    let inflow = river.plants().iter().flat_map(|plant| {
        (0..stages).map(move |stage| {
            let (mean, deviation) = plant.inflow(stage);
            (plant.id(), stage, mean, deviation)
        })
    });
    write_table(
        &directory.join("inflow_seasonal_stats.parquet"),
        ["hydro_id", "stage_id", "mean_m3s", "std_m3s"],
        &inflow.collect::<Vec<Row>>(),
    )?;
    let demand = (0..stages).map(|stage| (0, stage, river.demand(stage), 0.0));
    write_table(
        &directory.join("load_seasonal_stats.parquet"),
        ["bus_id", "stage_id", "mean_mw", "std_mw"],
        &demand.collect::<Vec<Row>>(),
    )
}

fn write_table(path: &Path, columns: [&str; 4], rows: &[Row]) -> Outcome<()> {
    let integers = |of: fn(&Row) -> u32| -> Outcome<ArrayRef> {
        let values: Result<Vec<i32>, _> = rows.iter().map(|row| i32::try_from(of(row))).collect();
        let values = values.map_err(|error| Failure::new(Kind::Input, error))?;
        Ok(Arc::new(Int32Array::from(values)))
    };
    let floats = |of: fn(&Row) -> f64| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<Float64Array>()) };
    let [id, stage, mean, deviation] = columns;
    let batch = RecordBatch::try_from_iter([
        (id, integers(|row| row.0)?),
        (stage, integers(|row| row.1)?),
        (mean, floats(|row| row.2)),
        (deviation, floats(|row| row.3)),
    ])
    .map_err(|error| Failure::io(path, error))?;

    let file = File::create(path).map_err(|error| Failure::io(path, error))?;
    // Cobre's reader does not support Snappy, the default of many writers.
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))
        .map_err(|error| Failure::io(path, error))?;
    writer.write(&batch).and_then(|()| writer.close().map(drop)).map_err(|error| Failure::io(path, error))
}
