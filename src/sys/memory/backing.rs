//! Shared memory that one rank creates and others open: for regions, and for the segments of further communicators.
//!
//! | kind | how other ranks open it | needs |
//! | --- | --- | --- |
//! | memfd | through the creator's descriptor: `/proc/<pid>/fd/<number>` | Linux, `/proc`, one PID namespace |
//! | named | by the name `{job}_region_{number}`, the number in hexadecimal | room in `/dev/shm` |
//!
//! A rank that opens it checks that it is the creator's file (device and inode), of the right length, and sealed if it is a
//! memfd. All memory is allocated before the first store to it, so that too little memory is an error and no SIGBUS.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::headroom::{self, Headroom, Limit};
use super::huge;
use super::mapping::Mapping;
#[cfg(target_os = "linux")]
use super::memfd;
use super::pages::page_size;
use super::rlimit;
use crate::codes::{Codes, codes};
use crate::sys::kept_file::KeptFile;
use crate::sys::shm_file::{self, CreateMode, Identity, Link, RegionFile};

codes! {
    /// How other ranks open the memory, in the order of preference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Kind: u32 {
        Memfd = 1,
        Named = 2,
    }
}

/// What other ranks need to open the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmHandle {
    kind: Kind,
    process: u32,
    descriptor: u32,
    /// A sequence number, unique within the creating process. Operations on a region identify it by this number.
    pub(crate) number: u64,
    identity: Identity,
    pub(crate) len: u64,
}

/// An encoded handle.
pub(crate) type Words = [u64; 6];

impl ShmHandle {
    pub(crate) fn encode(&self) -> Words {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Identity { device, inode } = self.identity;
        [pair(self.kind as u32, self.descriptor), self.process.into(), self.number, device, inode, self.len]
    }

    /// None: these words encode no handle.
    pub(crate) fn decode([kind, process, number, device, inode, len]: Words) -> Option<Self> {
        let (kind, descriptor) = (kind as u32, (kind >> 32) as u32);
        let process = u32::try_from(process).ok()?;
        let kind = Kind::from_code(kind)?;
        Some(ShmHandle { kind, process, descriptor, number, identity: Identity { device, inode }, len })
    }
}

/// Why memory could not be created or opened.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A limit leaves too little.
    Memory(Headroom),
    /// A system call failed.
    System(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal::System(error)
    }
}

/// Memory that this process has created.
pub(crate) struct CreatedShm {
    pub(crate) mapping: Mapping,
    pub(crate) handle: ShmHandle,
    access: Access,
}

/// What other ranks open: it exists until all have mapped the memory.
enum Access {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no memfds"))]
    Descriptor {
        _file: KeptFile,
    },
    Name {
        _link: Link,
    },
}

impl CreatedShm {
    /// Closes the descriptor or removes the name: no process can open the memory any more.
    pub(crate) fn hide(self) -> Mapping {
        let CreatedShm { mapping, access, .. } = self;
        drop(access);
        mapping
    }
}

/// How memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Whether to request huge pages.
    pub(crate) huge: bool,
    /// The alignment of the mapping in bytes, a power of two; that of a page if it is smaller.
    pub(crate) align: usize,
}

impl Pages {
    /// Aligned to a page, or to a huge one.
    pub(crate) fn huge(huge: bool) -> Self {
        Pages { huge, align: 1 }
    }

    /// The alignment of a mapping of `len` bytes; 0: that of a page.
    fn alignment(self, len: usize) -> usize {
        let huge = if self.huge && len >= huge::ALIGN { huge::ALIGN } else { 0 };
        let requested = if self.align > page_size() { self.align } else { 0 };
        huge.max(requested)
    }
}

/// Creates `len` bytes of zeros, and allocates those in `range`, after `place` has set their NUMA policy.
pub(crate) fn make(
    kind: Kind,
    job: &str,
    len: usize,
    range: Range<usize>,
    pages: Pages,
    place: impl Fn(&Mapping),
) -> Result<CreatedShm, Refusal> {
    if let Some(headroom) = headroom::min_headroom().filter(|headroom| headroom.bytes < len as u64) {
        return Err(Refusal::Memory(headroom));
    }
    check_rlimits(len, pages)?;
    let fill = |file: &File| {
        let mapping = map(file, len, pages)?;
        place(&mapping);
        allocate(file, range.clone())?;
        Ok::<_, Refusal>(mapping)
    };
    match kind {
        Kind::Memfd => create_memfd(len, fill),
        Kind::Named => create_named(job, len, fill),
    }
}

/// Whether the process's limits leave room for the mapping.
fn check_rlimits(len: usize, pages: Pages) -> Result<(), Refusal> {
    // An aligned mapping first reserves that much more.
    let reserved = len.saturating_add(pages.alignment(len));
    rlimit::refuses(reserved as u64, 0).map_or(Ok(()), |headroom| Err(Refusal::Memory(headroom)))
}

fn map(file: &File, len: usize, pages: Pages) -> io::Result<Mapping> {
    let align = pages.alignment(len);
    if align == 0 {
        return Mapping::of(file, len);
    }
    let mapping = Mapping::aligned(file, len, align)?;
    if pages.huge {
        // Huge pages are optional.
        let _ = huge::advise(&mapping);
    }
    Ok(mapping)
}

/// Sequence numbers. They have 64 bits so that they never wrap: a region that a program never drops must not share its
/// number with a new one.
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The numbers of this process.
static NUMBERS: Numbers = Numbers(AtomicU64::new(1));

#[cfg(target_os = "linux")]
fn create_memfd(len: usize, fill: impl Fn(&File) -> Result<Mapping, Refusal>) -> Result<CreatedShm, Refusal> {
    use std::os::fd::AsRawFd;
    let kept = KeptFile::not_in_children(|| memfd::make(len as u64)).map_err(too_large)?;
    let file = kept.open()?;
    let mapping = fill(file)?;
    let handle = ShmHandle {
        kind: Kind::Memfd,
        process: std::process::id(),
        descriptor: file.as_raw_fd() as u32,
        number: NUMBERS.next(),
        identity: Identity::of(file)?,
        len: len as u64,
    };
    Ok(CreatedShm { mapping, handle, access: Access::Descriptor { _file: kept } })
}

#[cfg(not(target_os = "linux"))]
fn create_memfd(_len: usize, _fill: impl Fn(&File) -> Result<Mapping, Refusal>) -> Result<CreatedShm, Refusal> {
    Err(Refusal::System(io::ErrorKind::Unsupported.into()))
}

fn create_named(
    job: &str,
    len: usize,
    fill: impl Fn(&File) -> Result<Mapping, Refusal>,
) -> Result<CreatedShm, Refusal> {
    let needed = RegionFile::file_len(len).map_err(refused)?;
    let free = RegionFile::free_space().map(|bytes| Headroom { bytes, limit: Limit::FileSystem });
    if let Some(headroom) = free.filter(|free| free.bytes < needed) {
        return Err(Refusal::Memory(headroom));
    }
    let mut last = Refusal::System(io::Error::from_raw_os_error(libc::ENOSYS));
    for mode in CreateMode::ALL {
        match try_create_named(job, len, *mode, &fill)? {
            Ok(created) => return Ok(created),
            // Not every system supports every mode.
            Err(error) => last = refused(error),
        }
    }
    Err(last)
}

/// After the inner error, the other mode may succeed.
type Attempt<T> = Result<Result<T, io::Error>, Refusal>;

fn try_create_named(
    job: &str,
    len: usize,
    mode: CreateMode,
    fill: impl Fn(&File) -> Result<Mapping, Refusal>,
) -> Attempt<CreatedShm> {
    let region = match RegionFile::new(job, len, mode) {
        Ok(region) => region,
        Err(error) => return Ok(Err(error)),
    };
    let file = region.file()?;
    let mapping = fill(file)?;
    let identity = Identity::of(file)?;
    Ok(region.publish(|| NUMBERS.next()).map(|(link, number)| {
        let process = std::process::id();
        let handle = ShmHandle { kind: Kind::Named, process, descriptor: 0, number, identity, len: len as u64 };
        CreatedShm { mapping, handle, access: Access::Name { _link: link } }
    }))
}

/// Maps the memory that another rank has created, and allocates a range of it.
pub(crate) fn find(
    job: &str,
    handle: &ShmHandle,
    range: Range<usize>,
    pages: Pages,
) -> Result<Mapping, Refusal> {
    let len = usize::try_from(handle.len).map_err(|_| too_large(io::Error::from_raw_os_error(libc::EFBIG)))?;
    check_rlimits(len, pages)?;
    let kept = match handle.kind {
        Kind::Memfd => open_memfd(handle)?,
        Kind::Named => RegionFile::open(job, handle.number, handle.identity, len)?,
    };
    let kept = kept.ok_or_else(not_the_file)?;
    let file = kept.open()?;
    let mapping = map(file, len, pages)?;
    allocate(file, range)?;
    Ok(mapping)
}

#[cfg(target_os = "linux")]
fn open_memfd(handle: &ShmHandle) -> io::Result<Option<KeptFile>> {
    let kept = KeptFile::not_in_children(|| memfd::open(handle.process, handle.descriptor as _))?;
    let file = kept.open()?;
    let matches = Identity::of(file)? == handle.identity
        && file.metadata()?.len() == handle.len
        && memfd::is_sealed(file);
    Ok(matches.then_some(kept))
}

#[cfg(not(target_os = "linux"))]
fn open_memfd(_handle: &ShmHandle) -> io::Result<Option<KeptFile>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The opened file is not the creator's, as when the creator is in another PID namespace.
fn not_the_file() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

fn allocate(file: &File, range: Range<usize>) -> Result<(), Refusal> {
    shm_file::allocate(file, range).map_err(refused)
}

/// Classifies an error of growing a file.
pub(super) fn refused(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let free = Headroom { bytes: RegionFile::free_space().unwrap_or(0), limit: Limit::FileSystem };
            let smaller = headroom::min_headroom().filter(|headroom| headroom.bytes < free.bytes);
            Refusal::Memory(smaller.unwrap_or(free))
        }
        _ => too_large(error),
    }
}

/// The largest length of any mapping.
const ADDRESS_SPACE: Headroom = Headroom { bytes: isize::MAX as u64, limit: Limit::AddressSpace };

/// A length beyond what files may have, or what the system can express, counts as a lack of memory.
pub(super) fn too_large(error: io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EFBIG) => Refusal::Memory(rlimit::file_size().unwrap_or(ADDRESS_SPACE)),
        Some(libc::EINVAL | libc::EOVERFLOW) => Refusal::Memory(ADDRESS_SPACE),
        _ => Refusal::System(error),
    }
}

/// The errno of an error, to be sent to other ranks. An error of the standard library gets the one that fits its kind.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::Unsupported => libc::ENOTSUP,
        // The file is shorter than the handle's length.
        io::ErrorKind::UnexpectedEof => libc::ESTALE,
        _ => libc::EIO,
    })
}

/// The error for a length that overflows.
pub(crate) fn too_long() -> Refusal {
    too_large(io::Error::from_raw_os_error(libc::EFBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_wrap_at_32_bits() {
        let numbers = Numbers(AtomicU64::new(1));
        let leaked = numbers.next();
        numbers.0.store(u64::from(u32::MAX) + 1, Ordering::Relaxed);
        let later = [numbers.next(), numbers.next()];
        assert_eq!((leaked, later), (1, [1 << 32, (1 << 32) + 1]));
    }

    #[test]
    fn an_error_keeps_its_errno() {
        assert_eq!(errno(&io::Error::from_raw_os_error(libc::EMFILE)), libc::EMFILE);
        assert_eq!(errno(&io::ErrorKind::OutOfMemory.into()), libc::ENOMEM);
        let short = Mapping::of(&tempfile::tempfile().unwrap(), 1).unwrap_err();
        assert_eq!(errno(&short), libc::ESTALE);
        assert_eq!(errno(&io::Error::other("something")), libc::EIO);
    }

    /// Whether this process has a file open. Async-signal-safe.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn has_open(identity: Identity) -> bool {
        (0..1024).any(|number| {
            // SAFETY: zeros are valid.
            let mut found: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: I7: a live structure.
            let is_open = unsafe { libc::fstat(number, &raw mut found) } == 0;
            is_open && identity == Identity { device: found.st_dev, inode: found.st_ino }
        })
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_child_that_is_forked_while_memory_is_made_or_found_does_not_have_its_file() {
        use std::sync::atomic::AtomicBool;

        use crate::sys::testing::in_forked_child;

        let file_of = |mapping: &Mapping| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let start = format!("{:x}-", mapping.start().addr());
            let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
            let words = line.split_whitespace().collect::<Vec<_>>();
            let (major, minor) = words[3].split_once(':').unwrap();
            let [major, minor] = [major, minor].map(|number| u32::from_str_radix(number, 16).unwrap());
            Identity { device: libc::makedev(major, minor), inode: words[4].parse().unwrap() }
        };
        let job = format!("/intranode-test-{}-forked", std::process::id());
        for kind in Kind::ALL.iter().copied() {
            let pages = Pages::huge(false);
            let while_made = |mapping: &Mapping| {
                let file = file_of(mapping);
                assert!(has_open(file) && in_forked_child(|| !has_open(file)), "{kind:?}");
            };
            let created = make(kind, &job, 4096, 0..4096, pages, while_made).unwrap();
            let file = created.handle.identity;
            assert!(in_forked_child(|| !has_open(file)), "{kind:?}");
            let done = AtomicBool::new(false);
            let inherited = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        drop(find(&job, &created.handle, 0..4096, pages).unwrap());
                    }
                });
                let children = (0..300).filter(|_| !in_forked_child(|| !has_open(file))).count();
                done.store(true, Ordering::Relaxed);
                children
            });
            assert_eq!(inherited, 0, "of 300 children, {kind:?}");
        }
    }

    #[test]
    fn a_handle_is_decoded_as_it_was_encoded() {
        let identity = Identity { device: u64::MAX, inode: 1 << 40 };
        for number in [1, (1 << 32) + 1, u64::MAX] {
            for kind in Kind::ALL.iter().copied() {
                let handle =
                    ShmHandle { kind, process: u32::MAX, descriptor: 7, number, identity, len: 1 << 35 };
                assert_eq!(ShmHandle::decode(handle.encode()), Some(handle));
            }
        }
        let words =
            ShmHandle { kind: Kind::Named, process: 1, descriptor: 0, number: 1, identity, len: 1 }.encode();
        for (word, value) in [(0, 3), (1, 1 << 32)] {
            let mut wrong = words;
            wrong[word] = value;
            assert_eq!(ShmHandle::decode(wrong), None);
        }
    }
}
