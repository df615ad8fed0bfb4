//! Memory that one rank makes and others find: for regions, and for the segments of further communicators.
//!
//! | kind | who finds it how | what it needs |
//! | --- | --- | --- |
//! | sealed | through the descriptor of its maker: `/proc/<process>/fd/<number>` | Linux, `/proc`, one space of processes |
//! | named | by the name `{job}_region_{number}`, the number in hexadecimal | room in `/dev/shm` |
//!
//! Nothing of what is found is believed: it must be the very file that its maker has made, and as long, and sealed if it
//! is said to be. All memory is allocated before anybody stores into it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::headroom::{self, Headroom, Limit};
use super::huge;
use super::mapping::Mapping;
#[cfg(target_os = "linux")]
use super::memfd;
use super::rlimit;
use crate::codes::{Codes, codes};
use crate::sys::shm_file::{self, CreateMode, Identity, Link, Part};

codes! {
    /// How memory is found, in the order in which they are tried.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Kind: u32 {
        Memfd = 1,
        Named = 2,
    }
}

/// What others need to know to find memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmHandle {
    kind: Kind,
    process: u32,
    descriptor: u32,
    /// The sequence number of this memory among all that its maker has made. No two of them have the same, as long as
    /// the process lives: an operation on a region names it by this number.
    pub(crate) number: u64,
    identity: Identity,
    pub(crate) len: u64,
}

/// A handle as words.
pub(crate) type Words = [u64; 6];

impl ShmHandle {
    pub(crate) fn encode(&self) -> Words {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Identity { device, inode } = self.identity;
        [pair(self.kind as u32, self.descriptor), self.process.into(), self.number, device, inode, self.len]
    }

    /// The handle in these words, if it is one.
    pub(crate) fn decode([kind, process, number, device, inode, len]: Words) -> Option<Self> {
        let (kind, descriptor) = (kind as u32, (kind >> 32) as u32);
        let process = u32::try_from(process).ok()?;
        let kind = Kind::of_code(kind)?;
        Some(ShmHandle { kind, process, descriptor, number, identity: Identity { device, inode }, len })
    }
}

/// Why there is no memory.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is not enough.
    Memory(Headroom),
    /// The system says no.
    System(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal::System(error)
    }
}

/// Memory that this process has made.
pub(crate) struct CreatedShm {
    pub(crate) mapping: Mapping,
    pub(crate) handle: ShmHandle,
    held: Held,
}

/// What keeps memory findable.
enum Held {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no such memory"))]
    Open {
        _file: File,
    },
    Named {
        _link: Link,
    },
}

impl CreatedShm {
    /// Nobody can find the memory any more.
    pub(crate) fn hide(self) -> Mapping {
        let CreatedShm { mapping, held, .. } = self;
        drop(held);
        mapping
    }
}

/// Makes `len` bytes of zeros, and allocates those in `part`. `place` is called in between. `huge`: the memory may come
/// to have huge pages.
pub(crate) fn make(
    kind: Kind,
    job: &str,
    len: usize,
    part: Range<usize>,
    huge: bool,
    place: impl Fn(&Mapping),
) -> Result<CreatedShm, Refusal> {
    if let Some(left) = headroom::min_headroom().filter(|left| left.bytes < len as u64) {
        return Err(Refusal::Memory(left));
    }
    check_room(len, huge)?;
    let fill = |file: &File| {
        let mapping = map(file, len, huge)?;
        place(&mapping);
        allocate(file, part.clone())?;
        Ok::<_, Refusal>(mapping)
    };
    match kind {
        Kind::Memfd => make_sealed(len, fill),
        Kind::Named => make_named(job, len, fill),
    }
}

/// Refuses what a limit of this process leaves no room for. Before anything is made: whatever is made for it needs some
/// room too.
fn check_room(len: usize, huge: bool) -> Result<(), Refusal> {
    // An aligned mapping is made in a place that is so much larger.
    let place = len.saturating_add(alignment(len, huge));
    rlimit::refuses(place as u64, 0).map_or(Ok(()), |left| Err(Refusal::Memory(left)))
}

/// What the mapping's start is a multiple of; 0: nothing but a page's size.
fn alignment(len: usize, huge: bool) -> usize {
    if huge && len >= huge::ALIGN { huge::ALIGN } else { 0 }
}

fn map(file: &File, len: usize, huge: bool) -> io::Result<Mapping> {
    let align = alignment(len, huge);
    if align == 0 {
        return Mapping::of(file, len);
    }
    let mapping = Mapping::aligned(file, len, align)?;
    // A wish.
    let _ = huge::advise(&mapping);
    Ok(mapping)
}

/// Hands out sequence numbers. They have 64 bits, so that they never begin again: a region that a program keeps for ever
/// must not come to share its number with a new one.
struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The numbers of what this process makes.
static NUMBERS: Numbers = Numbers(AtomicU64::new(1));

#[cfg(target_os = "linux")]
fn make_sealed(len: usize, fill: impl Fn(&File) -> Result<Mapping, Refusal>) -> Result<CreatedShm, Refusal> {
    use std::os::fd::AsRawFd;
    let file = memfd::make(len as u64).map_err(too_large)?;
    let mapping = fill(&file)?;
    let handle = ShmHandle {
        kind: Kind::Memfd,
        process: std::process::id(),
        descriptor: file.as_raw_fd() as u32,
        number: NUMBERS.next(),
        identity: Identity::of(&file)?,
        len: len as u64,
    };
    Ok(CreatedShm { mapping, handle, held: Held::Open { _file: file } })
}

#[cfg(not(target_os = "linux"))]
fn make_sealed(_len: usize, _fill: impl Fn(&File) -> Result<Mapping, Refusal>) -> Result<CreatedShm, Refusal> {
    Err(Refusal::System(io::ErrorKind::Unsupported.into()))
}

fn make_named(
    job: &str,
    len: usize,
    fill: impl Fn(&File) -> Result<Mapping, Refusal>,
) -> Result<CreatedShm, Refusal> {
    let needed = Part::file_len(len).map_err(refused)?;
    let room = Part::room().map(|bytes| Headroom { bytes, limit: Limit::FileSystem });
    if let Some(left) = room.filter(|left| left.bytes < needed) {
        return Err(Refusal::Memory(left));
    }
    let mut last = Refusal::System(io::Error::from_raw_os_error(libc::ENOSYS));
    for way in CreateMode::ALL.iter().copied() {
        match try_named(job, len, way, &fill)? {
            Ok(made) => return Ok(made),
            // Not every step is possible in every way.
            Err(error) => last = refused(error),
        }
    }
    Err(last)
}

/// The inner error is one after which the other way may succeed.
type Tried<T> = Result<Result<T, io::Error>, Refusal>;

fn try_named(
    job: &str,
    len: usize,
    way: CreateMode,
    fill: impl Fn(&File) -> Result<Mapping, Refusal>,
) -> Tried<CreatedShm> {
    let part = match Part::new(job, len, way) {
        Ok(part) => part,
        Err(error) => return Ok(Err(error)),
    };
    let mapping = fill(part.file())?;
    let identity = Identity::of(part.file())?;
    Ok(part.show(|| NUMBERS.next()).map(|(link, number)| {
        let process = std::process::id();
        let handle = ShmHandle { kind: Kind::Named, process, descriptor: 0, number, identity, len: len as u64 };
        CreatedShm { mapping, handle, held: Held::Named { _link: link } }
    }))
}

/// Maps the memory that another rank has made, and allocates a part of it.
pub(crate) fn find(job: &str, handle: &ShmHandle, part: Range<usize>, huge: bool) -> Result<Mapping, Refusal> {
    let len = usize::try_from(handle.len).map_err(|_| too_large(io::Error::from_raw_os_error(libc::EFBIG)))?;
    check_room(len, huge)?;
    let file = match handle.kind {
        Kind::Memfd => find_sealed(handle)?,
        Kind::Named => Part::find(job, handle.number, handle.identity, len)?,
    };
    let file = file.ok_or_else(not_it)?;
    let mapping = map(&file, len, huge)?;
    allocate(&file, part)?;
    Ok(mapping)
}

#[cfg(target_os = "linux")]
fn find_sealed(handle: &ShmHandle) -> io::Result<Option<File>> {
    let file = memfd::open(handle.process, handle.descriptor as _)?;
    let is_it = Identity::of(&file)? == handle.identity
        && file.metadata()?.len() == handle.len
        && memfd::is_sealed(&file);
    Ok(is_it.then_some(file))
}

#[cfg(not(target_os = "linux"))]
fn find_sealed(_ticket: &ShmHandle) -> io::Result<Option<File>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What is there is not what its maker has described: its process has another number here, for example.
fn not_it() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

fn allocate(file: &File, part: Range<usize>) -> Result<(), Refusal> {
    shm_file::allocate(file, part).map_err(refused)
}

/// What it means that a file could not grow.
fn refused(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let room = Headroom { bytes: Part::room().unwrap_or(0), limit: Limit::FileSystem };
            Refusal::Memory(headroom::min_headroom().filter(|left| left.bytes < room.bytes).unwrap_or(room))
        }
        _ => too_large(error),
    }
}

/// What no process can go beyond.
const ADDRESS_SPACE: Headroom = Headroom { bytes: isize::MAX as u64, limit: Limit::AddressSpace };

/// A length that files may not have, or that the system can not even express, is a lack of memory.
fn too_large(error: io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EFBIG) => Refusal::Memory(rlimit::file_size().unwrap_or(ADDRESS_SPACE)),
        Some(libc::EINVAL | libc::EOVERFLOW) => Refusal::Memory(ADDRESS_SPACE),
        _ => Refusal::System(error),
    }
}

/// The number of an error, for other ranks: that of the system, or what the system would say.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::Unsupported => libc::ENOTSUP,
        // The file is shorter than its maker has said.
        io::ErrorKind::UnexpectedEof => libc::ESTALE,
        _ => libc::EIO,
    })
}

/// What to say of a length that is no number.
pub(crate) fn too_long() -> Refusal {
    too_large(io::Error::from_raw_os_error(libc::EFBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_begin_again_after_32_bits() {
        let numbers = Numbers(AtomicU64::new(1));
        let leaked = numbers.next();
        numbers.0.store(u64::from(u32::MAX) + 1, Ordering::Relaxed);
        let later = [numbers.next(), numbers.next()];
        assert_eq!((leaked, later), (1, [1 << 32, (1 << 32) + 1]));
    }

    #[test]
    fn an_error_keeps_its_number() {
        assert_eq!(errno(&io::Error::from_raw_os_error(libc::EMFILE)), libc::EMFILE);
        assert_eq!(errno(&io::ErrorKind::OutOfMemory.into()), libc::ENOMEM);
        let short = Mapping::of(&tempfile::tempfile().unwrap(), 1).unwrap_err();
        assert_eq!(errno(&short), libc::ESTALE);
        assert_eq!(errno(&io::Error::other("something")), libc::EIO);
    }

    #[test]
    fn a_ticket_is_understood_whatever_its_number() {
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
