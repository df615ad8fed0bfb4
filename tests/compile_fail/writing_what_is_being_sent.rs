//! What is being sent stays as it is until the request is complete.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let mut messages = comm.messages()?;
    let mut data = [1.0; 10];
    let mut sending = messages.start_send(&data, 0, 1)?;
    data[0] = 2.0;
    messages.wait(&mut sending).map(drop)
}
