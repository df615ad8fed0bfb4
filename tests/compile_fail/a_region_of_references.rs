//! A reference means nothing in another process.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let region = comm.region::<&'static u8>(10)?;
    Ok(drop(region))
}
