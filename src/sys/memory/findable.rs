//! Memory of one process that others of the same user find by its name, when they need it: nobody waits for them.
//!
//! It is a sealed memfd whose descriptor stays open. Its name is in the links of `/proc/<pid>/fd`, and nobody can change it. Where
//! the system has no memfds, nobody finds anything.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::backing::{Refusal, refused, too_large};
use super::headroom;
use super::mapping::Mapping;
#[cfg(target_os = "linux")]
use super::memfd;
use super::pages::page_size;
use super::rlimit;
use crate::sys::kept_file::KeptFile;
use crate::sys::shm_file;

/// Makes `len` bytes of zeros, of which none is allocated.
pub(crate) fn make(name: &str, len: usize) -> Result<(KeptFile, Mapping), Refusal> {
    rlimit::refuses(len as u64, 0).map_or(Ok(()), |headroom| Err(Refusal::Memory(headroom)))?;
    let kept = KeptFile::not_in_children(|| create(name, len as u64)).map_err(too_large)?;
    let mapping = Mapping::sparse(kept.open()?, len, true)?;
    Ok((kept, mapping))
}

/// As [`make`], but of private memory, which nobody finds.
pub(crate) fn make_private(len: usize) -> Result<Mapping, Refusal> {
    rlimit::refuses(0, len as u64).map_or(Ok(()), |headroom| Err(Refusal::Memory(headroom)))?;
    Ok(Mapping::anonymous(len)?)
}

/// Whether there is room for `len` bytes more.
pub(crate) fn check_room(len: usize) -> Result<(), Refusal> {
    let too_small = headroom::min_headroom().filter(|headroom| headroom.bytes < len as u64);
    too_small.map_or(Ok(()), |headroom| Err(Refusal::Memory(headroom)))
}

/// Allocates the pages of a range, before anything is stored there. `file`: that of the mapping, unless it is private. Reports whether
/// the system did it: private memory it may only allocate when something is stored there.
pub(crate) fn allocate(
    file: Option<&KeptFile>,
    mapping: &Mapping,
    range: Range<usize>,
) -> Result<bool, Refusal> {
    let page = page_size();
    let pages = range.start / page * page..range.end.next_multiple_of(page);
    let Some(file) = file else { return Ok(mapping.populate(pages)?) };
    shm_file::allocate(file.open()?, pages).map_err(refused)?;
    Ok(true)
}

/// Gives the whole pages of a range back to the system. Where it cannot, they stay as they are; else they are zeros. `file` as above.
///
/// # Safety
/// No reference lies in the range.
pub(crate) unsafe fn give_back(file: Option<&KeptFile>, mapping: &Mapping, range: Range<usize>) {
    let page = page_size();
    let pages = range.start.next_multiple_of(page)..range.end / page * page;
    // By the file where that is open, since locked pages of a mapping stay.
    if pages.is_empty() || file.is_some_and(|file| file.get().is_some_and(|file| punch(file, &pages))) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { mapping.give_back(pages, file.is_some()) };
}

/// Makes a hole in a file. Reports whether the system did it.
#[cfg(target_os = "linux")]
fn punch(file: &File, range: &Range<usize>) -> bool {
    use std::os::fd::AsRawFd;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (Ok(start), Ok(len)) = (range.start.try_into(), range.len().try_into()) else { return false };
    // SAFETY: I7: the descriptor is open; no memory is involved.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn punch(_file: &File, _range: &Range<usize>) -> bool {
    false
}

/// Maps the memory of this name that a process has made, to be read.
#[cfg(target_os = "linux")]
pub(crate) fn find(process: u32, name: &str) -> io::Result<Mapping> {
    find_part(process, name, usize::MAX)
}

/// Maps the first `len` bytes of it, or all if that is less.
#[cfg(target_os = "linux")]
pub(crate) fn find_part(process: u32, name: &str, len: usize) -> io::Result<Mapping> {
    let kept = KeptFile::not_in_children(|| memfd::find(process, name))?;
    let file = kept.open()?;
    let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?.min(len);
    if rlimit::refuses(len as u64, 0).is_some() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let mapping = Mapping::sparse(file, len, false)?;
    mapping.leave_out_of_dumps();
    Ok(mapping)
}

/// Makes something without bytes, which only has a name, as long as the file is open.
#[cfg(target_os = "linux")]
pub(crate) fn make_note(name: &str) -> io::Result<KeptFile> {
    KeptFile::not_in_children(|| memfd::make_named(0, name))
}

/// What follows this beginning in a name of a process.
#[cfg(target_os = "linux")]
pub(crate) fn find_note(process: u32, beginning: &str) -> io::Result<String> {
    memfd::rest_of_name(process, beginning)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn find_part(_process: u32, _name: &str, _len: usize) -> io::Result<Mapping> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_note(_name: &str) -> io::Result<KeptFile> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn find_note(_process: u32, _beginning: &str) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn find(_process: u32, _name: &str) -> io::Result<Mapping> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn create(name: &str, len: u64) -> io::Result<File> {
    memfd::make_named(len, name)
}

#[cfg(not(target_os = "linux"))]
fn create(_name: &str, _len: u64) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memfds")]
    fn memory_is_found_by_its_name_as_long_as_its_maker_has_it() {
        use super::*;

        // SAFETY: a mapping has at least a page, and nobody writes it meanwhile.
        let first_byte = |mapping: &Mapping| unsafe { mapping.start().read_volatile() };
        let name = format!("findable_{}", std::process::id());
        let (file, own) = make(&name, 8192).unwrap();
        assert!(allocate(Some(&file), &own, 0..4096).unwrap());
        // SAFETY: as above.
        unsafe { own.start().write_volatile(7) };
        let found = find(std::process::id(), &name).unwrap();
        assert_eq!((found.len(), first_byte(&found)), (8192, 7));
        assert!(find(std::process::id(), &name[1..]).is_err());
        // SAFETY: there is no reference to it.
        unsafe { give_back(Some(&file), &own, 0..4096) };
        assert_eq!((first_byte(&own), first_byte(&found)), (0, 0));
        // A part of it, and a note.
        let part = find_part(std::process::id(), &name, 4096).unwrap();
        assert_eq!((part.len(), find_part(std::process::id(), &name, 1 << 20).unwrap().len()), (4096, 8192));
        let note = make_note(&format!("{name}_note_12")).unwrap();
        assert_eq!(find_note(std::process::id(), &format!("{name}_note_")).unwrap(), "12");
        drop(note);
        assert!(find_note(std::process::id(), &format!("{name}_note_")).is_err());
        drop(file);
        assert!(find(std::process::id(), &name).is_err());
        assert_eq!(first_byte(&found), 0);
    }
}
