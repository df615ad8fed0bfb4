//! In the phase in which every rank reads, no rank writes.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let all = comm.symmetric::<f64>(10)?.into_read()?;
    all.of(0)[0] = 1.0;
    Ok(())
}
