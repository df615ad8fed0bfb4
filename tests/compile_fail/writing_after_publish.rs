//! A write epoch ends for good when it is published.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut region = comm.region::<f64>(10)?;
    let shared = region.publish()?;
    region.as_mut_slice()[0] = 1.0;
    Ok(drop(shared))
}
