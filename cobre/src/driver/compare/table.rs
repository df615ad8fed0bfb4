//! The columns of two Parquet files.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::driver::failure::{Failure, Outcome};

/// The columns that differ, except those `ignored`, with the first row that does.
pub(super) fn differences(a: &Path, b: &Path, ignored: &[&str]) -> Outcome<Vec<String>> {
    let [left, right] = [read(a)?, read(b)?];
    if left.schema() != right.schema() {
        return Ok(vec!["the columns are not the same".to_string()]);
    }
    if left.num_rows() != right.num_rows() {
        return Ok(vec![format!("{} and {} rows", left.num_rows(), right.num_rows())]);
    }
    let schema = left.schema();
    let columns = schema.fields().iter().zip(left.columns().iter().zip(right.columns()));
    Ok(columns
        .filter(|(field, _)| !ignored.contains(&field.name().as_str()))
        .filter_map(|(field, (a, b))| {
            let row = (0..a.len()).find(|&row| !same_value(a, b, row))?;
            Some(format!("column {} differs in row {row}", field.name()))
        })
        .collect())
}

/// Whether two values are the same, floating-point numbers by their bits.
fn same_value(a: &ArrayRef, b: &ArrayRef, row: usize) -> bool {
    if a.is_null(row) || b.is_null(row) {
        return a.is_null(row) && b.is_null(row);
    }
    match a.data_type() {
        DataType::Float64 => {
            let bits = |array: &ArrayRef| array.as_primitive::<Float64Type>().value(row).to_bits();
            bits(a) == bits(b)
        }
        DataType::Float32 => {
            let bits = |array: &ArrayRef| array.as_primitive::<Float32Type>().value(row).to_bits();
            bits(a) == bits(b)
        }
        _ => a.slice(row, 1) == b.slice(row, 1),
    }
}

fn read(path: &Path) -> Outcome<RecordBatch> {
    let file = File::open(path).map_err(|error| Failure::io(path, error))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| Failure::io(path, error))?;
    let schema = reader.schema().clone();
    let batches = reader
        .build()
        .map_err(|error| Failure::io(path, error))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::io(path, error))?;
    concat_batches(&schema, &batches).map_err(|error| Failure::io(path, error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int32Array, StringArray};

    use super::*;

    #[test]
    fn floats_are_compared_by_bits() {
        let quiet = f64::NAN;
        let other = f64::from_bits(f64::NAN.to_bits() ^ 1);
        let a: ArrayRef = Arc::new(Float64Array::from(vec![0.0, quiet, quiet, 1.0]));
        let b: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, quiet, other, 1.0]));
        let same: Vec<bool> = (0..4).map(|row| same_value(&a, &b, row)).collect();
        assert_eq!(same, [false, true, false, true]);
    }

    #[test]
    fn missing_values_equal_each_other_only() {
        let a: ArrayRef = Arc::new(Int32Array::from(vec![None, None, Some(1)]));
        let b: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(0), Some(1)]));
        let same: Vec<bool> = (0..3).map(|row| same_value(&a, &b, row)).collect();
        assert_eq!(same, [true, false, true]);
    }

    #[test]
    fn strings_are_compared_by_value() {
        let a: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "z"]));
        assert!(same_value(&a, &b, 0));
        assert!(!same_value(&a, &b, 1));
    }
}
