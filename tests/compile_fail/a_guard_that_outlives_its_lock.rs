//! A lock is not dropped, and its memory not used again, while this rank holds it.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let lock = comm.lock()?;
    let guard = lock.lock()?;
    drop(lock);
    Ok(drop(guard))
}
