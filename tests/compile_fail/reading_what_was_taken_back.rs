//! What was read in place cannot be kept across the end of the read epoch.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let shared = comm.region::<f64>(10)?.publish()?;
    let values: &[f64] = &shared;
    let region = shared.reclaim()?;
    println!("{values:?}");
    Ok(drop(region))
}
