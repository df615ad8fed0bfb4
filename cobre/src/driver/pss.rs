//! The memory of the ranks, as the system counts it.

use std::fs;
use std::path::Path;

use cobre_comm::{Communicator, per_rank_counts, prefix_displs};
use cobre_io::HostLayout;

use crate::driver::failure::{Failure, Outcome, agree};

/// The proportional set size (PSS) of all ranks, in bytes: a page that several processes map counts once in total. Collective.
pub(crate) fn of_all<C: Communicator>(comm: &C) -> Outcome<u64> {
    Ok(by_rank(comm)?.iter().sum())
}

/// By host the PSS of its ranks. Collective.
pub(crate) fn of_hosts<C: Communicator>(comm: &C, hosts: &[HostLayout]) -> Outcome<Vec<u64>> {
    let by_rank = by_rank(comm)?;
    let of_host = |host: &HostLayout| host.ranks.iter().map(|rank| by_rank[*rank as usize]).sum();
    Ok(hosts.iter().map(of_host).collect())
}

fn by_rank<C: Communicator>(comm: &C) -> Outcome<Vec<u64>> {
    comm.barrier()?;
    let mine = agree(comm, of_this_process())?;
    let counts = per_rank_counts(comm.size(), comm.size());
    let mut all = vec![0; comm.size()];
    comm.allgatherv(&[mine], &mut all, &counts, &prefix_displs(&counts))?;
    Ok(all)
}

/// Without file pages, whose share changes as other programs start and end.
fn of_this_process() -> Outcome<u64> {
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

/// In megabytes of 10⁶ bytes.
pub(crate) fn mb(bytes: impl TryInto<u64>) -> String {
    let bytes = bytes.try_into().unwrap_or(u64::MAX);
    format!("{:.2} MB", bytes as f64 / 1e6)
}
