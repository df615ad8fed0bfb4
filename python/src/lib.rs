//! The Python wheel of intranode: what of it has to be compiled. The package `intranode` around it is in Python.

mod arguments;
mod buffer;
mod collectives;
mod comm;
mod detach;
mod errors;
mod flat;
mod foreign;
mod interpreter;
mod interrupt;
mod joined;
mod messages;
mod numbers;
mod objects;
mod plain;
mod region;
mod requests;
mod scratch;
mod started;
mod typed;
mod vectors;

use pyo3::prelude::*;

/// The compiled part of `intranode`. Programs use the package.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::is_first(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<comm::Core>()?;
    module.add_class::<joined::Joined>()?;
    module.add_class::<flat::Flat>()?;
    module.add_class::<messages::Messages>()?;
    module.add_class::<messages::Started>()?;
    module.add_class::<region::Memory>()?;
    module.add_class::<started::Begun>()?;
    module.add_function(wrap_pyfunction!(joined::from_env, module)?)?;
    module.add_function(wrap_pyfunction!(joined::join, module)?)?;
    Ok(())
}
