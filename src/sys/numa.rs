//! NUMA placement of shared memory.
//!
//! The kernel places a page when it is allocated: by the memory policy, or on the node of the allocating thread (first
//! touch). The policy of shared memory belongs to the file, so one process sets it for all.

use std::fs;
use std::io;
use std::path::Path;

use super::memory::mapping::Mapping;

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

/// Interleaves the pages of a mapping that are allocated from now on over these nodes: page by page, round-robin.
#[cfg(target_os = "linux")]
pub(crate) fn interleave(mapping: &Mapping, nodes: &[u32]) -> io::Result<()> {
    const BITS: u32 = libc::c_ulong::BITS;
    let mut mask = vec![0 as libc::c_ulong; (MAX_NUMBER / BITS) as usize];
    for node in nodes {
        let word = mask.get_mut((node / BITS) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % BITS);
    }
    // The kernel subtracts one from the number of bits.
    let bits = libc::c_ulong::from(MAX_NUMBER) + 1;
    let (start, len, mode) = (mapping.start(), mapping.len(), libc::MPOL_INTERLEAVE);
    // SAFETY: I7: our own mapping, and a live mask of the stated length.
    let result = unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn interleave(_mapping: &Mapping, _nodes: &[u32]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::sys::testing::skipped;

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
    fn a_mapping_gets_the_policy() {
        let Some(node) = nodes().last().copied() else {
            skipped("the system does not list its nodes");
            return;
        };
        let mapping = Mapping::anonymous(64 * crate::sys::memory::pages::page_size()).unwrap();
        match interleave(&mapping, &[node]) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                skipped(error);
                return;
            }
            result => result.unwrap(),
        }
        let (mut mode, none) = (-1, std::ptr::null::<libc::c_ulong>());
        // MPOL_F_ADDR: the policy of an address.
        let (start, flags) = (mapping.start(), 1 << 1);
        // SAFETY: I7: a live integer, no mask, and an address of our own mapping.
        let result = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, 0, start, flags) };
        assert_eq!((result, mode), (0, libc::MPOL_INTERLEAVE));
        assert!(interleave(&mapping, &[node + 1]).is_err());
        assert!(interleave(&mapping, &[u32::MAX]).is_err());
    }
}
