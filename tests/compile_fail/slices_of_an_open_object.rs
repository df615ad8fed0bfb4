//! While any rank may write, there is no slice.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let object = comm.symmetric::<f64>(10)?;
    let first: f64 = object[0];
    Ok(drop(first))
}
