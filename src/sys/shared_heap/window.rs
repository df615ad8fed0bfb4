//! The memory of the heap: a range of addresses, over which a sealed memfd is mapped as far as it is needed.
//!
//! An offset in the file is the same in the range, so the file is as long as the range from the start: it is sparse, and nobody
//! can shorten it. A page that was given back is a hole in it: who reads there, in any process, reads zeros.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

use super::place::name;
use super::ranges::Page;
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::headroom::overcommit_is_strict;
use crate::sys::memory::huge;
use crate::sys::memory::memfd;
use crate::sys::memory::pages::{map_sparse, page_size};
use crate::sys::memory::rlimit;
use crate::sys::random;
use crate::tuning::{HEAP_GROWS_BY_BYTES, HEAP_WINDOW_BYTES, HEAP_WINDOW_MEMORIES};

/// With a limit on addresses there is no heap unless it leaves this many times the window's length.
const ADDRESSES: u64 = 4;

#[derive(Debug)]
pub(super) struct Window {
    start: *mut u8,
    /// Of the range, in bytes.
    len: usize,
    /// So many bytes from the start on are memory; those behind are only reserved.
    mapped: usize,
    /// `None`: this is a forked child, with private memory.
    file: Option<KeptFile>,
    pub(super) page: usize,
    /// In its name.
    pub(super) number: u64,
}

impl Window {
    /// Reserves a range, and zeros for its table. `None`: the system refuses, or could not give as much memory as it promises.
    pub(super) fn new() -> Option<(Self, &'static mut [Page])> {
        if size_of::<usize>() < 8 || overcommit_is_strict() {
            return None;
        }
        let page = page_size();
        let len = window_len(page)?;
        let pages = len / page;
        let table_len = pages * size_of::<Page>();
        if rlimit::refuses((len as u64).saturating_mul(ADDRESSES), table_len as u64).is_some() {
            return None;
        }
        let number = random::number();
        let file = memfd::sealed(len as u64, &CString::new(name(number)).ok()?).ok()?;
        let file = KeptFile::new(file).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        let table = map_sparse(table_len, libc::PROT_READ | libc::PROT_WRITE, flags, -1).ok()?;
        let Some(reserved) = map(ptr::null_mut(), len + huge::ALIGN, libc::PROT_NONE, flags, -1, 0) else {
            // SAFETY: I20: just mapped, and nothing refers to it.
            unsafe { libc::munmap(table.cast(), table_len) };
            return None;
        };
        // SAFETY: I20: zeros, which are valid entries; aligned to a page; never unmapped, and nothing else refers to it.
        let table = unsafe { std::slice::from_raw_parts_mut(table.cast::<Page>(), pages) };
        let start = reserved.wrapping_add(reserved.align_offset(huge::ALIGN));
        Some((Window { start, len, mapped: 0, file: Some(file), page, number }, table))
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// In bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_shared(&self) -> bool {
        self.file.is_some()
    }

    /// The file, if its descriptor still is the one that was opened: a program may have closed it, and opened another.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()?.get()
    }

    /// Makes at least `bytes` more memory, behind what is there, and reports how much. Zero: that cannot be.
    pub(super) fn extend(&mut self, bytes: usize) -> usize {
        let room = self.len - self.mapped;
        let wanted = bytes.max(HEAP_GROWS_BY_BYTES).checked_next_multiple_of(huge::ALIGN).unwrap_or(usize::MAX);
        let (more, place) = (wanted.min(room), self.start.wrapping_add(self.mapped));
        if more < bytes || more == 0 {
            return 0;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let done = match self.file.is_some() {
            true => self.file().is_some_and(|file| {
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                let mapped = map(place, more, access, flags, file.as_raw_fd(), self.mapped);
                mapped.is_some() && forks(place, more, false)
            }),
            false => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE | libc::MAP_FIXED;
                map(place, more, access, flags, -1, 0).is_some()
            }
        };
        if !done {
            return 0;
        }
        // SAFETY: I20: our own mapping; the advice does not change its contents. Huge pages are optional.
        unsafe { libc::madvise(place.cast(), more, libc::MADV_HUGEPAGE) };
        self.mapped += more;
        more
    }

    /// Gives pages back, from an offset on: they are zeros then. Reports whether the system did it.
    pub(super) fn give_back(&self, offset: usize, len: usize) -> bool {
        // By the mapping: the number of the descriptor could be another file's by now.
        let advice = if self.is_shared() { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        let place = self.start.wrapping_add(offset);
        // SAFETY: I20: a part of our own mapping that belongs to no block, so nothing refers to it.
        unsafe { libc::madvise(place.cast(), len, advice) == 0 }
    }

    /// Whether a child that is forked now has the mapping.
    pub(super) fn inherit(&self, inherited: bool) -> bool {
        self.mapped == 0 || forks(self.start, self.mapped, inherited)
    }

    /// In a forked child: replaces the parent's memory by private memory, which begins with what is at `copy`.
    pub(super) fn make_private(&mut self, copy: Option<(*mut u8, usize)>) -> Private {
        // Its descriptor would keep the parent's memory.
        self.file = None;
        let Some((from, len)) = copy else { return self.hide() };
        if len > 0 {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let to = self.start.cast::<libc::c_void>();
            // SAFETY: I20: it replaces memory that is not the child's, and that nothing of the child has used, by its copy.
            let moved = unsafe { libc::mremap(from.cast(), len, len, flags, to) };
            if moved != to {
                return self.hide();
            }
        }
        let (rest, flags) =
            (self.start.wrapping_add(len), libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        if self.mapped == len || map(rest, self.mapped - len, access, flags | libc::MAP_FIXED, -1, 0).is_some()
        {
            return Private::All;
        }
        if protect(rest, self.mapped - len) { Private::Blocks } else { Private::Shared }
    }

    /// Nobody can access what is mapped.
    fn hide(&self) -> Private {
        if self.mapped == 0 || protect(self.start, self.mapped) { Private::Nothing } else { Private::Shared }
    }
}

/// What a forked child has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Private {
    All,
    /// All blocks, but nothing between and behind them can be given out.
    Blocks,
    Nothing,
    /// It still has its parent's memory, and must not go on.
    Shared,
}

/// A part of the range cannot be accessed any more.
fn protect(place: *mut u8, len: usize) -> bool {
    // SAFETY: I20: memory that is not the child's, or that no block lies in.
    unsafe { libc::mprotect(place.cast(), len, libc::PROT_NONE) == 0 }
}

/// In a forked child the mapping is there, or it is not.
fn forks(place: *mut u8, len: usize, inherited: bool) -> bool {
    let advice = if inherited { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
    // SAFETY: I20: our own mapping; the advice concerns children only.
    unsafe { libc::madvise(place.cast(), len, advice) == 0 }
}

/// mmap. With MAP_FIXED, `place` and `len` are a part of the range.
pub(super) fn map(
    place: *mut u8,
    len: usize,
    access: libc::c_int,
    flags: libc::c_int,
    file: libc::c_int,
    offset: usize,
) -> Option<*mut u8> {
    let offset = libc::off_t::try_from(offset).ok()?;
    // SAFETY: I20: a new mapping, or one over a part of the range that no block lies in; in a forked child, over all of it, before
    // anything of the child refers to it.
    let mapped = unsafe { libc::mmap(place.cast(), len, access, flags, file, offset) };
    (mapped != libc::MAP_FAILED).then_some(mapped.cast())
}

/// The length of the range: some times the machine's memory, so that freed addresses between blocks do no harm.
fn window_len(page: usize) -> Option<usize> {
    // SAFETY: I7: touches no memory.
    let pages = usize::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).ok()?;
    let wanted = pages.checked_mul(page)?.checked_mul(HEAP_WINDOW_MEMORIES)?;
    Some(wanted.min(HEAP_WINDOW_BYTES).next_multiple_of(huge::ALIGN))
}
