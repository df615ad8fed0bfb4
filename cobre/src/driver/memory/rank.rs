//! One rank of the measurement.

use std::path::Path;
use std::process::ExitCode;

use crate::{ShmBackend, ShmRegion};
use cobre_comm::{CommData, Communicator, SharedMemoryProvider, SharedRegion};
use intranode::Shared;
use intranode::bytemuck::Pod;

use super::data::{self, INDICES, NUMBERS, TREE};
use crate::driver::failure::{Failure, Kind, Outcome, agree};
use crate::driver::pss::{self, mb};

/// Measures the memory of both kinds of copies, and prints the table.
pub(super) fn measure(comm: &ShmBackend, directory: &Path) -> Outcome<ExitCode> {
    let paths = [TREE, NUMBERS, INDICES].map(|name| directory.join(name));
    let [tree, numbers, indices] = &paths;
    let mut sizes = [0; 3];
    for (size, path) in sizes.iter_mut().zip(&paths) {
        *size = data::count::<u8>(path)?;
    }
    let sizes = [sizes[0], sizes[1] + sizes[2]];

    let own = {
        let start = pss::of_all(comm)?;
        let tree = own_copy::<f64>(comm, tree)?;
        let with_tree = pss::of_all(comm)?;
        let programs = (own_copy::<f64>(comm, numbers)?, own_copy::<i32>(comm, indices)?);
        let with_all = pss::of_all(comm)?;
        Usage::new([start, with_tree, with_all], &[digest(&tree), digest(&programs.0), digest(&programs.1)])
    };
    let shared = {
        let start = pss::of_all(comm)?;
        let tree = by_all_ranks::<f64>(comm, tree)?;
        // A page counts for the ranks that have touched it.
        let tree_digest = digest(&tree);
        let with_tree = pss::of_all(comm)?;
        let programs = (by_the_leader::<f64>(comm, numbers)?, by_the_leader::<i32>(comm, indices)?);
        let digests = [tree_digest, digest(programs.0.as_slice()), digest(programs.1.as_slice())];
        let with_all = pss::of_all(comm)?;
        Usage::new([start, with_tree, with_all], &digests)
    };
    let same = if own.digests == shared.digests {
        Ok(())
    } else {
        Err(Failure::new(Kind::Internal, "the shared data differs from the files"))
    };
    agree(comm, same)?;
    if comm.rank() == 0 {
        print_table(comm, sizes, &own, &shared);
    }
    Ok(ExitCode::SUCCESS)
}

/// The memory of one kind of copies, in bytes over all ranks.
struct Usage {
    tree: u64,
    programs: u64,
    /// Of the data, which is thereby read.
    digests: Vec<u64>,
}

impl Usage {
    fn new([start, with_tree, with_all]: [u64; 3], digests: &[u64]) -> Self {
        Usage {
            tree: with_tree.saturating_sub(start),
            programs: with_all.saturating_sub(with_tree),
            digests: digests.to_vec(),
        }
    }

    fn all(&self) -> u64 {
        self.tree + self.programs
    }
}

/// The values of a file in this rank's private memory.
fn own_copy<T: Pod>(comm: &ShmBackend, path: &Path) -> Outcome<Vec<T>> {
    let read = data::count::<T>(path).and_then(|count| {
        let mut values = vec![T::zeroed(); count];
        data::read(path, 0, &mut values)?;
        Ok(values)
    });
    agree(comm, read)
}

/// The values of a file in one shared copy on each node, into which each of its ranks reads its block.
fn by_all_ranks<T: Pod>(comm: &ShmBackend, path: &Path) -> Outcome<Shared<T>> {
    let count = agree(comm, data::count::<T>(path))?;
    let mut region = comm.nodes().region(count)?;
    region.distribute()?;
    let first = region.parts().first().map_or(0, |block| block.start);
    agree(comm, data::read(path, first, region.as_mut_slice()))?;
    Ok(region.publish()?)
}

/// The values of a file in one shared copy on each node, into which its leader reads all, by Cobre's trait.
fn by_the_leader<T: CommData + Pod>(comm: &ShmBackend, path: &Path) -> Outcome<ShmRegion<T>> {
    let count = agree(comm, data::count::<T>(path))?;
    let mut region = comm.create_shared_region(count)?;
    // Empty on the other ranks.
    agree(comm, data::read(path, 0, region.as_mut_slice()))?;
    region.fence()?;
    Ok(region)
}

/// A checksum over all bytes, which reads everything.
fn digest<T: Pod>(values: &[T]) -> u64 {
    let bytes: &[u8] = intranode::bytemuck::cast_slice(values);
    bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn print_table(comm: &ShmBackend, [tree, programs]: [usize; 2], own: &Usage, shared: &Usage) {
    let size = tree + programs;
    let (ranks, nodes) = (comm.size(), comm.nodes().map().nodes());
    let ranks = if nodes == 1 { format!("{ranks} ranks") } else { format!("{ranks} ranks on {nodes} nodes") };
    show!("{ranks}; the opening tree has {}, the linear programs have {}", mb(tree), mb(programs));
    show!();
    show!(
        "{:<24} {:>14} {:>16} {:>12} {:>12} {:>8}",
        "memory of all ranks",
        "opening tree",
        "linear programs",
        "in all",
        "saved",
        "copies"
    );
    let of_node = if nodes == 1 { "one copy, shared" } else { "one copy a node, shared" };
    for (name, held) in [("each rank its own copy", own), (of_node, shared)] {
        let copies = held.all() as f64 / size as f64;
        let saved = own.all().saturating_sub(held.all());
        show!(
            "{name:<24} {:>14} {:>16} {:>12} {:>12} {copies:>8.2}",
            mb(held.tree),
            mb(held.programs),
            mb(held.all()),
            if saved == 0 { "-".into() } else { mb(saved) },
        );
    }
    show!();
    show!("measured as PSS without files, in which a page that several processes map counts once in total");
}
