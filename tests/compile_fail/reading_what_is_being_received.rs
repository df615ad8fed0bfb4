//! What is being received is not there before the request is complete.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut messages = comm.messages()?;
    let mut data = [0.0; 10];
    let mut receiving = messages.start_recv(&mut data, 0, 1)?;
    println!("{data:?}");
    messages.wait(&mut receiving).map(drop)
}
