//! A handle of the open phase ends with that phase.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let object = comm.symmetric::<f64>(10)?;
    let own = object.into_own()?;
    println!("{}", object.len());
    Ok(drop(own))
}
