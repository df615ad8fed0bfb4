//! What was read in place cannot be kept when it may be written again.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let all = comm.symmetric::<f64>(10)?.into_read()?;
    let values = all.of(0);
    let object = all.open()?;
    println!("{values:?}");
    Ok(drop(object))
}
