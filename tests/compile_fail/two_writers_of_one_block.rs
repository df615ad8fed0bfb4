//! Nobody has the values of a part twice.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut region = comm.region::<f64>(10)?;
    let one = region.as_mut_slice();
    let other = region.as_mut_slice();
    one[0] = 1.0;
    other[0] = 2.0;
    Ok(())
}
