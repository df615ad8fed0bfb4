//! What every rank reads cannot be written.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let shared = comm.region::<f64>(10)?.publish()?;
    shared[0] = 1.0;
    Ok(())
}
