//! A reference means nothing in another process.

fn main() {
    let comm = intranode::Communicator::from_env().expect("a job");
    let _ = comm.symmetric::<&'static u8>(10);
}
