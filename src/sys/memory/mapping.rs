//! Shared mappings, which a forked child does not inherit.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

use super::fork::{ForkGuard, with_fork_lock};
use super::pages::{map, map_from, map_sparse, page_size, unmap};

/// A mapping, unmapped on drop.
///
/// A forked child does not inherit it (MADV_DONTFORK): it would keep the file, and the lock on it, alive after its parent's
/// death. In a child [`Mapping::forked`] is true; the memory must not be accessed, and drop unmaps nothing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut u8,
    len: usize,
    guard: ForkGuard,
}

// SAFETY: I1: a mapping belongs to the process, not to a thread. It provides a raw pointer only; the protocols decide who may
// access which bytes.
unsafe impl Send for Mapping {}
// SAFETY: I1: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, which may then be closed.
    ///
    /// If the file is truncated later, access to the missing pages raises SIGBUS. Only a sealed memfd excludes that.
    pub(crate) fn of(file: &File, len: usize) -> io::Result<Self> {
        Self::part(file, 0, len)
    }

    /// The same of a file with holes, which stay holes even if the process locks all memory that it maps. Without `writable`, a store to it
    /// is a fault.
    pub(super) fn sparse(file: &File, len: usize, writable: bool) -> io::Result<Self> {
        check_len(file, len)?;
        Self::new(len, || map_sparse(len, access(writable), libc::MAP_SHARED, file.as_raw_fd()))
    }

    /// As [`of`](Self::of), for `len` bytes from an offset on, which is a multiple of the page size.
    pub(crate) fn part(file: &File, offset: usize, len: usize) -> io::Result<Self> {
        check_len(file, offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?)?;
        Self::new(len, || map_from(offset as libc::off_t, len, libc::MAP_SHARED, file.as_raw_fd()))
    }

    /// As [`of`](Self::of), at a multiple of `align`, which is a multiple of the page size.
    pub(crate) fn aligned(file: &File, len: usize, align: usize) -> io::Result<Self> {
        check_len(file, len)?;
        Self::new(len, || map_aligned(file, len, align))
    }

    /// Zeroed private memory, for ranks that are threads.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::new(len, || map(len, libc::MAP_PRIVATE | libc::MAP_ANON, -1))
    }

    fn new(len: usize, map: impl FnOnce() -> io::Result<*mut u8>) -> io::Result<Self> {
        // The guard comes first: it also holds in a child that is forked during this call.
        let guard = ForkGuard::new()?;
        with_fork_lock(|| {
            let mapping = Mapping { start: map()?, len, guard };
            dont_fork(mapping.start, len)?;
            Ok(mapping)
        })
    }

    /// The first address: page-aligned.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the mapping writable or read-only in this process. A stray store to read-only memory is a fault.
    pub(crate) fn protect(&self, writable: bool) -> io::Result<()> {
        self.protect_range(0..self.len, writable)
    }

    /// The same for the pages of a range that begins at a page.
    ///
    /// # Panics
    /// When the range exceeds the mapping.
    pub(crate) fn protect_range(&self, range: Range<usize>, writable: bool) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.len);
        if self.guard.forked() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let start = self.start.wrapping_add(range.start);
        // SAFETY: I7: a part of our own mapping; nothing is moved. The callers see to it that no reference conflicts with
        // the new protection.
        let result = unsafe { libc::mprotect(start.cast(), range.len(), access(writable)) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Allocates the pages of a range that begins and ends at a page. Reports whether the system knows how to: before Linux 5.14 it
    /// does not, and a page is allocated when something is stored there.
    ///
    /// # Panics
    /// When the range exceeds the mapping.
    #[cfg(target_os = "linux")]
    pub(super) fn populate(&self, range: Range<usize>) -> io::Result<bool> {
        assert!(range.start <= range.end && range.end <= self.len.next_multiple_of(page_size()));
        // Miri does not know it.
        if cfg!(miri) {
            return Ok(false);
        }
        let start = self.start.wrapping_add(range.start);
        // SAFETY: I7: a part of our own mapping; its contents do not change.
        if unsafe { libc::madvise(start.cast(), range.len(), libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) { Ok(false) } else { Err(error) }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn populate(&self, _range: Range<usize>) -> io::Result<bool> {
        Ok(false)
    }

    /// Gives the pages of a range, which begins and ends at a page, back to the system, so that they are zeros. Where it cannot, they
    /// stay as they are. `has_file`: whether the mapping is of a file, in which the range becomes a hole.
    ///
    /// # Safety
    /// No reference lies in the range.
    #[cfg(target_os = "linux")]
    pub(super) unsafe fn give_back(&self, range: Range<usize>, has_file: bool) {
        assert!(range.start <= range.end && range.end <= self.len);
        if cfg!(miri) || self.guard.forked() {
            return;
        }
        let advice = if has_file { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        let start = self.start.wrapping_add(range.start);
        // SAFETY: I19: a part of our own mapping, to which nothing refers.
        let _ = unsafe { libc::madvise(start.cast(), range.len(), advice) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) unsafe fn give_back(&self, _range: Range<usize>, _has_file: bool) {}

    /// Asks for it not to be in core dumps, for which the system would allocate all of its pages.
    #[cfg(target_os = "linux")]
    pub(super) fn leave_out_of_dumps(&self) {
        // SAFETY: I7: our own mapping; the advice does not change its contents.
        let _ = unsafe { libc::madvise(self.start.cast(), self.len, libc::MADV_DONTDUMP) };
    }

    /// Whether this process is a forked child, in which the mapping does not exist.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.guard.forked()
    }

    /// The offset of bytes that lie in its first `len`.
    pub(crate) fn offset_of(&self, bytes: &[u8], len: usize) -> Option<usize> {
        let offset = bytes.as_ptr().addr().checked_sub(self.start.addr())?;
        let end = offset.checked_add(bytes.len())?;
        (end <= len).then_some(offset)
    }

    /// Whether it contains this address.
    pub(crate) fn contains(&self, address: usize) -> bool {
        let start = self.start.addr();
        (start..start + self.len).contains(&address)
    }

    /// Replaces the whole mapping by private zeroed memory, after the file was truncated. Async-signal-safe: makes system
    /// calls only. Returns false if they fail.
    pub(crate) fn replace(&self) -> bool {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
        // SAFETY: I1: it replaces all of our own mapping, which stays readable and writable.
        let replaced = unsafe { libc::mmap(self.start.cast(), self.len, access, flags, -1, 0) };
        replaced == self.start.cast() && dont_fork(self.start, self.len).is_ok()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.guard.forked() {
            // SAFETY: I1 and I5: `new` has mapped it; every user of the pointer keeps the mapping alive.
            unsafe { unmap(self.start, self.len) };
        }
    }
}

fn check_len(file: &File, len: usize) -> io::Result<()> {
    if file.metadata()?.len() < len as u64 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its mapping"));
    }
    Ok(())
}

fn access(writable: bool) -> libc::c_int {
    if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ }
}

/// Maps the first `len` bytes of a file at a multiple of `align`: reserves a larger address range, and unmaps the rest.
fn map_aligned(file: &File, len: usize, align: usize) -> io::Result<*mut u8> {
    let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
    let len = len.checked_next_multiple_of(page_size()).ok_or_else(too_large)?;
    let reserved_len = len.checked_add(align).ok_or_else(too_large)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: I7: a new mapping at an address of the kernel's choice replaces nothing.
    let reserved = unsafe { libc::mmap(ptr::null_mut(), reserved_len, libc::PROT_NONE, flags, -1, 0) };
    if reserved == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let reserved = reserved.cast::<u8>();
    let start = reserved.wrapping_add(reserved.align_offset(align));
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: I7: it replaces a part of the reserved range, to which nothing refers.
    let mapped = unsafe { libc::mmap(start.cast(), len, access, flags, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED {
        let error = io::Error::last_os_error();
        // SAFETY: I7: just reserved, and nothing refers to it.
        unsafe { unmap(reserved, reserved_len) };
        return Err(error);
    }
    let (before, after) = (start.addr() - reserved.addr(), start.wrapping_add(len));
    for (rest, len) in [(reserved, before), (after, reserved_len - before - len)] {
        if len > 0 {
            // SAFETY: I7: the unused rest of the reserved range on this side.
            unsafe { unmap(rest, len) };
        }
    }
    Ok(start)
}

fn dont_fork(start: *mut u8, len: usize) -> io::Result<()> {
    // Nothing forks there.
    if cfg!(miri) {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    // SAFETY: I7: our own mapping; the advice concerns children only.
    let result = unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTFORK) };
    #[cfg(not(target_os = "linux"))]
    // SAFETY: I7: our own mapping; the advice concerns children only.
    let result = unsafe { libc::minherit(start.cast(), len, libc::VM_INHERIT_NONE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::sys::testing::in_forked_child;

    fn word(mapping: &Mapping, offset: usize) -> &AtomicU32 {
        assert!(offset + size_of::<AtomicU32>() <= mapping.len());
        // SAFETY: inside the mapping, aligned by the callers, and accessed as an atomic only.
        unsafe { &*mapping.start().wrapping_add(offset).cast::<AtomicU32>() }
    }

    fn file(bytes: &[u8]) -> File {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mapping-{}-{number}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn two_mappings_of_a_file_are_the_same_memory() {
        let file = file(&[7; 5000]);
        let (one, other) = (Mapping::of(&file, 5000).unwrap(), Mapping::of(&file, 5000).unwrap());
        drop(file);
        assert_eq!((one.len(), other.len()), (5000, 5000));
        assert_ne!(one.start(), other.start());
        assert_eq!(word(&one, 4096).load(Ordering::Relaxed), 0x0707_0707);
        word(&one, 4096).store(42, Ordering::Relaxed);
        assert_eq!(word(&other, 4096).load(Ordering::Relaxed), 42);
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let error = Mapping::of(&file(&[7; 4096]), 4097).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_aligned_mapping_is_the_same_memory() {
        const ALIGN: usize = 2 << 20;
        let file = file(&[7; 5000]);
        let whole = Mapping::of(&file, 5000).unwrap();
        for _ in 0..100 {
            let aligned = Mapping::aligned(&file, 5000, ALIGN).unwrap();
            assert_eq!((aligned.start().align_offset(ALIGN), aligned.len()), (0, 5000));
            word(&aligned, 4996).fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(word(&whole, 4996).load(Ordering::Relaxed), 0x0707_0707 + 100);
        assert!(Mapping::aligned(&file, 5001, ALIGN).is_err());
    }

    #[test]
    fn anonymous_memory_is_zeroed_and_aligned() {
        let mapping = Mapping::anonymous(1 << 20).unwrap();
        assert_eq!(mapping.start().align_offset(4096), 0);
        assert!((0..1 << 20).step_by(4).all(|offset| word(&mapping, offset).load(Ordering::Relaxed) == 0));
        word(&mapping, (1 << 20) - 4).store(1, Ordering::Relaxed);
    }

    #[test]
    fn a_mapping_of_a_truncated_file_can_be_replaced_by_zeros() {
        let file = file(&[7; 8192]);
        let mapping = Mapping::of(&file, 8192).unwrap();
        let neighbour = Mapping::anonymous(4096).unwrap();
        file.set_len(0).unwrap();
        let start = mapping.start().addr();
        assert!(mapping.contains(start) && mapping.contains(start + 8191) && !mapping.contains(start + 8192));
        assert!(!mapping.contains(neighbour.start().addr()));
        assert!(mapping.replace());
        assert!((0..8192).step_by(4).all(|offset| word(&mapping, offset).load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn an_empty_mapping_is_refused() {
        assert!(Mapping::anonymous(0).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn drop_unmaps() {
        use std::os::unix::fs::MetadataExt;
        let file = file(&[7; 4096]);
        let inode = format!(" {} ", file.metadata().unwrap().ino());
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(&inode);
        let mapping = Mapping::of(&file, 4096).unwrap();
        assert!(mapped());
        drop(mapping);
        assert!(!mapped());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_child_inherits_a_mapping_that_is_being_made() {
        use std::os::unix::fs::MetadataExt;
        use std::sync::atomic::AtomicBool;
        let file = file(&[7; 4096]);
        let inode = format!(" {} ", file.metadata().unwrap().ino()).into_bytes();
        let done = AtomicBool::new(false);
        let inherited = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(Mapping::of(&file, 4096).unwrap());
                }
            });
            let children = (0..300).filter(|_| !in_forked_child(|| !maps_contain(&inode))).count();
            done.store(true, Ordering::Relaxed);
            children
        });
        assert_eq!(inherited, 0, "of 300 children");
    }

    /// Whether /proc/self/maps contains these bytes. Does not allocate: it runs in a forked child.
    #[cfg(target_os = "linux")]
    fn maps_contain(bytes: &[u8]) -> bool {
        const STEP: usize = 4096;
        let mut text = [0u8; 2 * STEP];
        // SAFETY: the path ends in NUL.
        let descriptor = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY) };
        let mut found = false;
        loop {
            // SAFETY: the upper half has room for the bytes.
            let read = unsafe { libc::read(descriptor, text[STEP..].as_mut_ptr().cast(), STEP) };
            if read <= 0 {
                return found;
            }
            let end = STEP + read as usize;
            found |= text[..end].windows(bytes.len()).any(|window| window == bytes);
            // A match may continue in the next part.
            text.copy_within(end - STEP..end, 0);
        }
    }

    #[test]
    fn a_forked_child_neither_inherits_nor_unmaps() {
        let mut mapping = Some(Mapping::anonymous(1 << 16).unwrap());
        let start = mapping.as_ref().unwrap().start();
        assert!(in_forked_child(|| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
            // SAFETY: without MAP_FIXED the address is a hint: no mapping is replaced.
            let place = unsafe { libc::mmap(start.cast(), 1 << 16, libc::PROT_READ, flags, -1, 0) };
            let forked = mapping.as_ref().is_some_and(Mapping::forked);
            drop(mapping.take());
            // SAFETY: the page was mapped above, and drop must not unmap it; else the child ends by a signal, which is a
            // failure too.
            let byte = unsafe { place.cast::<u8>().read_volatile() };
            forked && place.cast() == start && byte == 0
        }));
        assert_eq!(word(mapping.as_ref().unwrap(), 0).load(Ordering::Relaxed), 0);
    }
}
