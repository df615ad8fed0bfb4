//! No rank reaches an instance of another one once this phase has begun.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let object = comm.symmetric::<f64>(10)?;
    let remote = object.at(0)?;
    let own = object.into_own()?;
    remote.put(0, &[1.0]);
    Ok(drop(own))
}
