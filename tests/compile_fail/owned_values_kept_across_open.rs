//! The own values cannot be kept when others may put there again.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut own = comm.symmetric::<f64>(10)?.into_own()?;
    let values: &mut [f64] = &mut own;
    let object = own.open()?;
    values[0] = 1.0;
    Ok(drop(object))
}
