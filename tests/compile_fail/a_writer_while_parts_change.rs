//! Values cannot be kept while they are given to another rank.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut region = comm.region::<f64>(10)?;
    let own = region.as_mut_slice();
    region.distribute()?;
    own[0] = 1.0;
    Ok(())
}
