//! NUMA placement of shared memory.
//!
//! The kernel places a page when it is allocated: by the memory policy, or on the node of the allocating thread (first
//! touch). The policy of shared memory belongs to the file, so one process sets it for all.

use std::fs;
use std::io;
use std::path::Path;

use super::memory::mapping::Mapping;
use super::memory::pages::page_size;

/// How pages are distributed over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Page by page, round-robin.
    Interleave,
    /// On these nodes only.
    Bind,
}

/// The nodes that have memory; empty where that is unknown.
pub(crate) fn nodes() -> Vec<u32> {
    nodes_under(Path::new("/sys/devices/system/node"))
}

fn nodes_under(folder: &Path) -> Vec<u32> {
    parse_list(&fs::read_to_string(folder.join("has_memory")).unwrap_or_default())
}

/// The numbers in a list of the kernel's format, as in `0-3,8`.
pub(super) fn parse_list(text: &str) -> Vec<u32> {
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// `3` or `0-1`.
fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (last < MAX_NUMBER).then_some(first..=last)
}

/// Above the largest number of a node or processor on any system.
const MAX_NUMBER: u32 = 1 << 12;

/// Sets the policy for the pages of a mapping that are allocated from now on.
#[cfg(target_os = "linux")]
pub(crate) fn set_policy(mapping: &Mapping, policy: Policy, nodes: &[u32]) -> io::Result<()> {
    const BITS: u32 = libc::c_ulong::BITS;
    let mut mask = vec![0 as libc::c_ulong; (MAX_NUMBER / BITS) as usize];
    for node in nodes {
        let word = mask.get_mut((node / BITS) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % BITS);
    }
    let mode = match policy {
        Policy::Interleave => libc::MPOL_INTERLEAVE,
        Policy::Bind => libc::MPOL_BIND,
    };
    // The kernel subtracts one from the number of bits.
    let bits = libc::c_ulong::from(MAX_NUMBER) + 1;
    // SAFETY: I7: our own mapping, and a live mask of the stated length.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, mapping.start(), mapping.len(), mode, mask.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn set_policy(_mapping: &Mapping, _policy: Policy, _nodes: &[u32]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `MADV_POPULATE_READ`.
#[cfg(target_os = "linux")]
const POPULATE_READ: libc::c_int = 22;

/// The node of each page of a mapping; None if it is not allocated.
#[cfg(target_os = "linux")]
pub(crate) fn locate(mapping: &Mapping) -> io::Result<Vec<Option<u32>>> {
    const BATCH: usize = 4096;
    let page = page_size();
    // move_pages reports only pages in this process's page tables. Others have allocated pages that this one never touched.
    // SAFETY: I7: our own mapping; page tables are filled, and nothing is written.
    unsafe { libc::madvise(mapping.start().cast(), mapping.len(), POPULATE_READ) };
    let all: Vec<*mut u8> =
        (0..mapping.len()).step_by(page).map(|offset| mapping.start().wrapping_add(offset)).collect();
    let mut located = Vec::with_capacity(all.len());
    for pages in all.chunks(BATCH) {
        let mut nodes = vec![0 as libc::c_int; pages.len()];
        // SAFETY: I7: live tables of the stated length; without target nodes nothing is moved.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        located.extend(nodes.into_iter().map(|node| u32::try_from(node).ok()));
    }
    Ok(located)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn locate(_mapping: &Mapping) -> io::Result<Vec<Option<u32>>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_from_ranges() {
        let folder = std::env::temp_dir().join(format!("nodes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (text, expected) in
            [("0\n", vec![0]), ("0-2,5\n", vec![0, 1, 2, 5]), ("", vec![]), ("x-,9-a\n", vec![])]
        {
            fs::write(folder.join("has_memory"), text).unwrap();
            assert_eq!(nodes_under(&folder), expected, "{text:?}");
        }
        fs::remove_dir_all(&folder).unwrap();
        assert!(nodes_under(&folder).is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_are_allocated_where_the_policy_requires() {
        let Some(node) = nodes().last().copied() else {
            eprintln!("SKIPPED: the system does not list its nodes");
            return;
        };
        let mapping = Mapping::anonymous(64 * page_size()).unwrap();
        for policy in [Policy::Interleave, Policy::Bind] {
            match set_policy(&mapping, policy, &[node]) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    eprintln!("SKIPPED: {error}");
                    return;
                }
                result => result.unwrap(),
            }
        }
        // SAFETY: the mapping is ours alone, and of that length.
        unsafe { mapping.start().write_bytes(1, mapping.len()) };
        assert_eq!(locate(&mapping).unwrap(), vec![Some(node); 64]);
        let nowhere = nodes().last().unwrap() + 1;
        assert!(set_policy(&mapping, Policy::Bind, &[nowhere]).is_err());
        assert!(set_policy(&mapping, Policy::Bind, &[u32::MAX]).is_err());
    }
}
