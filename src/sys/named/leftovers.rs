//! What dead jobs have left in the directory of names: segments that begin as ours do, belong to this user, and are locked
//! by nobody.
//!
//! Nothing else is proof. A file of zeros may be a segment that was never finished, or anything of anybody's: whoever
//! knows the job's name may remove it ([`super::create`]), who only sees the file may not.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file::{self, Identity, Unusable};
use super::lock::{self, Holder};
use super::part::PREFIX;
use super::{preamble, remove};

/// A file that nobody will ever use again.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    path: PathBuf,
    identity: Identity,
    /// Its first bytes.
    pub(crate) preamble: Vec<u8>,
    /// How much memory it takes.
    pub(crate) bytes: u64,
    /// When it was last written by a system call, if the file system says so.
    pub(crate) modified: Option<SystemTime>,
}

/// What has become of a file that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// It is gone, by this.
    Removed,
    /// Somebody else has removed it.
    Gone,
    /// Somebody is at work on it now.
    Busy,
}

/// What dead jobs have left; with names, only those jobs. `ours` tells by the first bytes of a file whether a job has made
/// it.
pub(crate) fn find(names: &[String], ours: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Leftover>> {
    find_in(Path::new(file::DIRECTORY), names, ours)
}

fn find_in(directory: &Path, names: &[String], ours: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let place = place(&path, names);
        if place == Place::Elsewhere {
            continue;
        }
        // The parts of a job are zeros as long as they have a name. That is proof only for who knows the job's name.
        let zeros = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
        let ours = |bytes: &[u8]| ours(bytes) || place == Place::Part && zeros(bytes);
        // What can not be looked at is not proven to be anything.
        if let Ok(Some(leftover)) = look(&path, &ours) {
            found.push(leftover);
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// What a path is to the jobs of these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing.
    Elsewhere,
    /// One of their names; or no names are given, and it may be anybody's.
    Name,
    /// The name of one of their parts.
    Part,
}

fn place(path: &Path, names: &[String]) -> Place {
    let Some(file) = path.file_name().and_then(OsStr::to_str).filter(|_| !names.is_empty()) else {
        return if names.is_empty() { Place::Name } else { Place::Elsewhere };
    };
    let rests = names.iter().filter_map(|name| file.strip_prefix(name.strip_prefix('/')?));
    let place = |rest: &str| match rest.strip_prefix(PREFIX) {
        _ if rest.is_empty() => Place::Name,
        Some(number) if number.parse::<u64>().is_ok() => Place::Part,
        _ => Place::Elsewhere,
    };
    rests.map(place).find(|place| *place != Place::Elsewhere).unwrap_or(Place::Elsewhere)
}

fn look(path: &Path, ours: &impl Fn(&[u8]) -> bool) -> Result<Option<Leftover>, Unusable> {
    let io = Unusable::io(path);
    // Before it is opened: a device or another user's file is none of our business.
    file::check(path, &fs::symlink_metadata(path).map_err(&io)?)?;
    let Some(file) = file::existing(path)? else { return Ok(None) };
    let preamble = preamble(&file).map_err(&io)?;
    if !is_leftover(&file, &preamble, ours).map_err(&io)? {
        return Ok(None);
    }
    let metadata = file.metadata().map_err(&io)?;
    Ok(Some(Leftover {
        path: path.to_owned(),
        identity: Identity::of(&file).map_err(&io)?,
        preamble,
        bytes: metadata.blocks() * 512,
        modified: metadata.modified().ok(),
    }))
}

/// The proof. A job locks its file before the name shows a finished segment, and for as long as it lives.
fn is_leftover(file: &fs::File, preamble: &[u8], ours: &impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    Ok(ours(preamble) && lock::holder(file)? == Holder::Nobody)
}

impl Leftover {
    /// The name, with its '/', as far as it can be written.
    pub(crate) fn name(&self) -> String {
        format!("/{}", self.path.file_name().unwrap_or(OsStr::new("")).to_string_lossy())
    }

    /// Removes it, if it is still what was found.
    pub(crate) fn remove(&self) -> Result<Removal, Unusable> {
        let io = Unusable::io(&self.path);
        let Some(file) = file::existing(&self.path)? else { return Ok(Removal::Gone) };
        if Identity::of(&file).map_err(&io)? != self.identity {
            return Ok(Removal::Gone);
        }
        // Nobody makes a job of a file that has ended: a new one gets a file of its own. So whoever holds the lock is
        // removing it too.
        if !lock::reclaim(&file).map_err(&io)? {
            return Ok(Removal::Busy);
        }
        // Some file systems give the number of a file that is gone to the next.
        let unchanged = preamble(&file).map_err(&io)? == self.preamble;
        let removed = unchanged && remove(&self.path, &file).map_err(&io)?;
        Ok(if removed { Removal::Removed } else { Removal::Gone })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::{Created, Way, create_in};
    use super::*;
    use crate::sys::testing::nothing_starts;

    fn is_ours(preamble: &[u8]) -> bool {
        preamble.starts_with(b"ours")
    }

    /// A segment with its name and its lock.
    fn segment(directory: &Path, name: &str) -> Created {
        let sign = |mapping: &crate::sys::mapping::Mapping| {
            // SAFETY: the mapping has a page, and nobody else has it yet.
            unsafe { core::ptr::copy_nonoverlapping(b"ours".as_ptr(), mapping.start(), 4) };
        };
        create_in(directory, name, 4096, is_ours, sign, Way::Nameless).unwrap()
    }

    /// What is left of one whose maker was killed.
    fn leave(directory: &Path, name: &str) {
        let created = segment(directory, name);
        std::mem::forget(created.link);
        drop(created.mapping);
    }

    fn found(directory: &Path) -> Vec<String> {
        find_in(directory, &[], is_ours).unwrap().iter().map(Leftover::name).collect()
    }

    #[test]
    fn only_what_nobody_holds_and_a_job_has_signed_is_found() {
        let _nothing_starts = nothing_starts();
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let live = segment(directory.path(), "/live");
        leave(directory.path(), "/stale");
        leave(directory.path(), "/stale_region_7");
        for (name, content) in [("empty", &b""[..]), ("zeros", &[0; 4096]), ("other", b"another's")] {
            fs::write(at(name), content).unwrap();
        }
        symlink(at("stale"), at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        assert_eq!(found(directory.path()), ["/stale", "/stale_region_7"]);
        for leftover in find_in(directory.path(), &[], is_ours).unwrap() {
            assert_eq!((&leftover.preamble[..4], leftover.bytes), (&b"ours"[..], 4096));
            assert_eq!(leftover.remove().unwrap(), Removal::Removed);
            assert_eq!(leftover.remove().unwrap(), Removal::Gone);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6);
        drop(live);
        assert!(!at("live").exists());
    }

    #[test]
    fn of_a_named_job_parts_without_a_signature_are_found_too() {
        let _nothing_starts = nothing_starts();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        leave(directory.path(), "/job2");
        for name in ["job_region_3", "job2_region_1", "job_region_x", "job_other", "zeros"] {
            fs::write(directory.path().join(name), [0; 4096]).unwrap();
        }
        fs::write(directory.path().join("job_region_4"), b"populated by another program").unwrap();
        let of = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            find_in(directory.path(), &names, is_ours).unwrap().iter().map(Leftover::name).collect()
        };
        assert_eq!(of(&["/job"]), ["/job", "/job_region_3"]);
        assert_eq!(of(&["/job2", "/none"]), ["/job2", "/job2_region_1"]);
        assert_eq!(of(&[]), ["/job", "/job2"]);
        assert_eq!(of(&["/zeros", "/jo"]), [""; 0]);
    }

    #[test]
    fn what_another_has_put_in_its_place_meanwhile_stays() {
        let _nothing_starts = nothing_starts();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        let [leftover] = &find_in(directory.path(), &[], is_ours).unwrap()[..] else { panic!("not one") };
        let next = segment(directory.path(), "/job");
        assert!(next.reclaimed);
        assert_ne!(leftover.remove().unwrap(), Removal::Removed);
        drop(next);
        fs::write(directory.path().join("job"), b"another's").unwrap();
        assert_eq!(leftover.remove().unwrap(), Removal::Gone);
        assert!(directory.path().join("job").exists());
    }

    #[test]
    fn what_somebody_is_removing_is_left_to_him() {
        let _nothing_starts = nothing_starts();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        let [leftover] = &find_in(directory.path(), &[], is_ours).unwrap()[..] else { panic!("not one") };
        let reclaimer = file::existing(&directory.path().join("job")).unwrap().unwrap();
        assert!(lock::reclaim(&reclaimer).unwrap());
        assert_eq!(leftover.remove().unwrap(), Removal::Busy);
        assert!(found(directory.path()).is_empty());
        drop(reclaimer);
        assert_eq!(leftover.remove().unwrap(), Removal::Removed);
    }
}
