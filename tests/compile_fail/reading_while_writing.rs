//! Values cannot be read before they are published.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let region = comm.region::<f64>(10)?;
    let first: f64 = region[0];
    region.publish()?;
    Ok(drop(first))
}
