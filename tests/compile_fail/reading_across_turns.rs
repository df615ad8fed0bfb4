//! What an exchange has brought cannot be kept across its next turn.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut exchange = comm.exchange::<f64>(&[1])?;
    let first = exchange.share()?;
    let second = exchange.share()?;
    assert_eq!(first, second);
    Ok(())
}
