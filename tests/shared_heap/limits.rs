//! Where the system refuses the heap: everything is the system's allocator then.

use anyhow::{Result, ensure};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::Program;
use super::blocks::{MIB, is_shared, play};

pub(super) const PROGRAMS: &[Program] = &[
    ("without_memfds_the_system_allocates", 0, no_memfds),
    ("without_descriptors_the_system_allocates", 0, no_descriptors),
    ("with_few_addresses_the_system_allocates", 0, few_addresses),
    ("with_short_files_the_system_allocates", 0, short_files),
    ("without_more_mappings_the_system_allocates", 0, no_more_mappings),
];

/// Blocks work, and lie outside the heap.
pub(super) fn ensure_of_the_system() -> Result<()> {
    ensure!(!is_shared(vec![1u8; MIB].as_ptr())?);
    play(&mut fastrand::Rng::with_seed(1), 300)?;
    ensure!(!is_shared(vec![1u8; 100 * MIB].as_ptr())?);
    Ok(())
}

fn refuse(call: libc::c_long) -> Result<()> {
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(
        [(call, vec![])].into_iter().collect(),
        SeccompAction::Allow,
        refused,
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

fn no_memfds() -> Result<()> {
    refuse(libc::SYS_memfd_create)?;
    ensure_of_the_system()
}

/// As long as the first block is made; it is not tried again.
pub(super) fn without_heap() -> Result<()> {
    let limit = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 0, limit.1)?;
    let block = vec![1u8; MIB];
    setrlimit(Resource::RLIMIT_NOFILE, limit.0, limit.1)?;
    ensure!(!is_shared(block.as_ptr())?);
    Ok(())
}

fn no_descriptors() -> Result<()> {
    without_heap()?;
    ensure_of_the_system()
}

fn few_addresses() -> Result<()> {
    setrlimit(Resource::RLIMIT_AS, 4 << 30, 4 << 30)?;
    ensure_of_the_system()
}

fn short_files() -> Result<()> {
    setrlimit(Resource::RLIMIT_FSIZE, 1 << 30, 1 << 30)?;
    ensure_of_the_system()
}

/// The heap is there, and cannot grow.
fn no_more_mappings() -> Result<()> {
    let first = vec![1u8; MIB];
    ensure!(is_shared(first.as_ptr())?);
    let own: Vec<Vec<u8>> = (0..60).map(|_| vec![1; MIB]).collect();
    refuse(libc::SYS_madvise)?;
    let blocks: Vec<Vec<u8>> = (2..30).map(|number| vec![number; 8 * MIB]).collect();
    ensure!(!is_shared(blocks.last().expect("blocks").as_ptr())?);
    ensure!(blocks.iter().zip(2..).all(|(block, number)| block.iter().all(|byte| *byte == number)));
    drop((own, blocks));
    play(&mut fastrand::Rng::with_seed(2), 500)?;
    ensure!(first.iter().all(|byte| *byte == 1));
    Ok(())
}
