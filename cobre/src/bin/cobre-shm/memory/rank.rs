//! One rank of the measurement.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use cobre_comm::{CommData, Communicator, SharedMemoryProvider, SharedRegion, per_rank_counts, prefix_displs};
use intranode::Shared;
use intranode::bytemuck::Pod;
use intranode_cobre::{ShmBackend, ShmRegion};

use super::data::{self, INDICES, NUMBERS, TREE};
use crate::failure::{Failure, Kind, Outcome, agree};

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
        let start = memory_of_all(comm)?;
        let tree = own_copy::<f64>(comm, tree)?;
        let with_tree = memory_of_all(comm)?;
        let programs = (own_copy::<f64>(comm, numbers)?, own_copy::<i32>(comm, indices)?);
        let with_all = memory_of_all(comm)?;
        Usage::new([start, with_tree, with_all], &[digest(&tree), digest(&programs.0), digest(&programs.1)])
    };
    let shared = {
        let start = memory_of_all(comm)?;
        let tree = by_all_ranks::<f64>(comm, tree)?;
        // A page counts for the ranks that have touched it.
        let tree_digest = digest(&tree);
        let with_tree = memory_of_all(comm)?;
        let programs = (by_the_leader::<f64>(comm, numbers)?, by_the_leader::<i32>(comm, indices)?);
        let digests = [tree_digest, digest(programs.0.as_slice()), digest(programs.1.as_slice())];
        let with_all = memory_of_all(comm)?;
        Usage::new([start, with_tree, with_all], &digests)
    };
    let same = if own.digests == shared.digests {
        Ok(())
    } else {
        Err(Failure::new(Kind::Internal, "the shared data differs from the files"))
    };
    agree(comm, same)?;
    if comm.rank() == 0 {
        print_table(comm.size(), sizes, &own, &shared);
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

/// The values of a file in one shared copy, into which each rank reads its block.
fn by_all_ranks<T: Pod>(comm: &ShmBackend, path: &Path) -> Outcome<Shared<T>> {
    let count = agree(comm, data::count::<T>(path))?;
    let mut region = comm.communicator().region(count)?;
    region.distribute()?;
    let first = region.parts().first().map_or(0, |block| block.start);
    agree(comm, data::read(path, first, region.as_mut_slice()))?;
    Ok(region.publish()?)
}

/// The values of a file in one shared copy, into which the leader reads all, by Cobre's trait.
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

/// The proportional set size (PSS) of all ranks, in bytes: a page that several processes map counts once in total.
fn memory_of_all(comm: &ShmBackend) -> Outcome<u64> {
    comm.barrier()?;
    let mine = agree(comm, proportional_set_size())?;
    let counts = per_rank_counts(comm.size(), comm.size());
    let mut all = vec![0; comm.size()];
    comm.allgatherv(&[mine], &mut all, &counts, &prefix_displs(&counts))?;
    Ok(all.iter().sum())
}

/// Without file pages, whose share changes as other programs start and end.
fn proportional_set_size() -> Outcome<u64> {
    let path = Path::new("/proc/self/smaps_rollup");
    let text = fs::read_to_string(path).map_err(|error| Failure::io(path, error))?;
    let of_kind = |name: &str| {
        let kilobytes = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        kilobytes.and_then(|number| number.parse::<u64>().ok())
    };
    match (of_kind("Pss_Anon:"), of_kind("Pss_Shmem:")) {
        (Some(own), Some(shared)) => Ok((own + shared) * 1_024),
        _ => Err(Failure::io(path, "it has no line Pss_Anon or Pss_Shmem; Linux 5.4 and later have both")),
    }
}

fn print_table(ranks: usize, [tree, programs]: [usize; 2], own: &Usage, shared: &Usage) {
    let size = tree + programs;
    println!("{ranks} ranks; the opening tree has {}, the linear programs have {}", mb(tree), mb(programs));
    println!();
    println!(
        "{:<24} {:>14} {:>16} {:>12} {:>12} {:>8}",
        "memory of all ranks", "opening tree", "linear programs", "in all", "saved", "copies"
    );
    for (name, held) in [("each rank its own copy", own), ("one copy, shared", shared)] {
        let copies = held.all() as f64 / size as f64;
        let saved = own.all().saturating_sub(held.all());
        println!(
            "{name:<24} {:>14} {:>16} {:>12} {:>12} {copies:>8.2}",
            mb(held.tree),
            mb(held.programs),
            mb(held.all()),
            if saved == 0 { "-".into() } else { mb(saved) },
        );
    }
    println!();
    println!("measured as PSS without files, in which a page that several processes map counts once in total");
}

/// In megabytes of 10⁶ bytes.
fn mb(bytes: impl TryInto<u64>) -> String {
    let bytes = bytes.try_into().unwrap_or(u64::MAX);
    format!("{:.2} MB", bytes as f64 / 1e6)
}
