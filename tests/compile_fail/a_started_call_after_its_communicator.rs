//! A call that was started does not outlive its communicator.

fn main() -> Result<(), intranode::Error> {
    let comm = intranode::Communicator::from_env()?;
    let pending = comm.start_barrier()?;
    drop(comm);
    pending.wait()
}
