//! The data of a case as plain numbers, in files.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cobre_solver::StageTemplate;
use intranode::bytemuck::{self, Pod};

use crate::driver::failure::{Failure, Outcome};
use crate::driver::study;

/// The opening tree: the noise of every opening of every stage.
pub(super) const TREE: &str = "opening-tree.f64";
/// Coefficients, bounds, costs and scales of the linear programs of all stages.
pub(super) const NUMBERS: &str = "programs.f64";
/// The indices of the coefficients.
pub(super) const INDICES: &str = "programs.i32";

/// Loads a case and writes its data to `directory`.
pub(super) fn write(case: &Path, directory: &Path) -> Outcome<()> {
    let study = study::load(case, directory, &serde_json::Map::new())?;
    let inputs = &study.setup.inputs;
    save(&directory.join(TREE), [inputs.stochastic.opening_tree().data()])?;
    let programs = &inputs.stage_data.stage_templates.templates;
    save(&directory.join(NUMBERS), programs.iter().flat_map(numbers))?;
    save(&directory.join(INDICES), programs.iter().flat_map(|p| [&p.col_starts[..], &p.row_indices]))
}

fn numbers(program: &StageTemplate) -> [&[f64]; 8] {
    [
        &program.values,
        &program.col_lower,
        &program.col_upper,
        &program.objective,
        &program.row_lower,
        &program.row_upper,
        &program.col_scale,
        &program.row_scale,
    ]
}

fn save<'a, T: Pod>(path: &Path, parts: impl IntoIterator<Item = &'a [T]>) -> Outcome<()> {
    let mut file = File::create(path).map_err(|error| Failure::io(path, error))?;
    for part in parts {
        file.write_all(bytemuck::cast_slice(part)).map_err(|error| Failure::io(path, error))?;
    }
    Ok(())
}

/// The number of values in a file.
pub(super) fn count<T: Pod>(path: &Path) -> Outcome<usize> {
    let bytes = path.metadata().map_err(|error| Failure::io(path, error))?.len();
    usize::try_from(bytes).map(|bytes| bytes / size_of::<T>()).map_err(|error| Failure::io(path, error))
}

/// Reads values from index `first` on directly into `values`.
pub(super) fn read<T: Pod>(path: &Path, first: usize, values: &mut [T]) -> Outcome<()> {
    let offset = (first * size_of::<T>()) as u64;
    let read = File::open(path).and_then(|file| file.read_exact_at(bytemuck::cast_slice_mut(values), offset));
    read.map_err(|error| Failure::io(path, error))
}
