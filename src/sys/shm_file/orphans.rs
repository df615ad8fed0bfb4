//! Files that dead processes have left: those with this library's signature that belong to this user and are not locked.
//! No other files are touched.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file::{self, Unusable};
use super::identity::Identity;
use super::lock::{self, Holder};
use super::names::{self, Kind};
use super::signature::{IsSegment, Signature};

/// A file that no live process uses.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    path: PathBuf,
    identity: Identity,
    is_segment: IsSegment,
    pub(crate) signature: Signature,
    /// The allocated memory.
    pub(crate) bytes: u64,
    /// The last write by a system call, if the file system records it.
    pub(crate) modified: Option<SystemTime>,
}

/// The result of removing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// This call has removed it.
    Removed,
    /// Another process has removed or replaced it.
    Gone,
    /// Another process is removing it.
    Busy,
}

/// The files that dead jobs have left: of these names, or of any if none is given.
pub(crate) fn find(names: &[String], is_segment: IsSegment) -> io::Result<Vec<Orphan>> {
    find_in(Path::new(file::DIRECTORY), names, is_segment)
}

fn find_in(directory: &Path, names: &[String], is_segment: IsSegment) -> io::Result<Vec<Orphan>> {
    let files = signed_files(directory, names, is_segment)?.into_iter();
    let mut orphans: Vec<_> =
        files.filter(|(_, holder)| *holder == Holder::Nobody).map(|(orphan, _)| orphan).collect();
    orphans.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(orphans)
}

/// Whether a live process holds a file of one of these jobs.
pub(crate) fn in_use(names: &[String], is_segment: IsSegment) -> io::Result<bool> {
    let files = signed_files(Path::new(file::DIRECTORY), names, is_segment)?;
    Ok(files.iter().any(|(_, holder)| *holder != Holder::Nobody))
}

/// All signed files of these jobs, or of any if no names are given, with the holders of their locks.
fn signed_files(
    directory: &Path,
    names: &[String],
    is_segment: IsSegment,
) -> io::Result<Vec<(Orphan, Holder)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if !names.is_empty() && names.iter().all(|name| names::kind(name, file).is_none()) {
            continue;
        }
        // A file that cannot be read proves nothing.
        if let Ok(Some((orphan, holder))) = inspect(&path, is_segment)
            && is_of(&orphan.signature, file, names)
        {
            files.push((orphan, holder));
        }
    }
    Ok(files)
}

/// Whether one of these jobs, or any job if no names are given, gives this name to a file with this signature.
fn is_of(signature: &Signature, file: &str, names: &[String]) -> bool {
    match signature {
        Signature::Segment(_) => {
            let is_its = |name: &String| matches!(names::kind(name, file), Some(Kind::Segment | Kind::Draft));
            names.is_empty() || names.iter().any(is_its)
        }
        Signature::Region(trailer) => {
            let is_its = matches!(names::kind(&trailer.job, file), Some(Kind::Region | Kind::Draft));
            is_its && (names.is_empty() || names.contains(&trailer.job))
        }
    }
}

fn inspect(path: &Path, is_segment: IsSegment) -> Result<Option<(Orphan, Holder)>, Unusable> {
    let io = Unusable::io(path);
    // Checked before it is opened: opening a device may have effects.
    file::check(path, &fs::symlink_metadata(path).map_err(&io)?)?;
    let Some(kept) = file::open_existing(path)? else { return Ok(None) };
    let file = kept.open().map_err(&io)?;
    // A file is locked before it is signed. So the signature is read first: a live creator's lock is then seen.
    let Some(signature) = Signature::of(file, is_segment).map_err(&io)? else { return Ok(None) };
    let holder = lock::holder(file).map_err(&io)?;
    let metadata = file.metadata().map_err(&io)?;
    let orphan = Orphan {
        path: path.to_owned(),
        identity: Identity::of(file).map_err(&io)?,
        is_segment,
        signature,
        bytes: metadata.blocks() * 512,
        modified: metadata.modified().ok(),
    };
    Ok(Some((orphan, holder)))
}

impl Orphan {
    /// The name with its '/', with replacement characters where it is not UTF-8.
    pub(crate) fn name(&self) -> String {
        format!("/{}", self.path.file_name().unwrap_or(OsStr::new("")).to_string_lossy())
    }

    /// Removes it, if it has not changed since it was found.
    pub(crate) fn remove(&self) -> Result<Removal, Unusable> {
        let io = Unusable::io(&self.path);
        let Some(kept) = file::open_existing(&self.path)? else { return Ok(Removal::Gone) };
        let file = kept.open().map_err(&io)?;
        if Identity::of(file).map_err(&io)? != self.identity {
            return Ok(Removal::Gone);
        }
        // No job reuses an existing file, so a process that holds the lock is removing the file too.
        if !lock::reclaim(file).map_err(&io)? {
            return Ok(Removal::Busy);
        }
        // The inode may have been reused for another file.
        let unchanged = Signature::of(file, self.is_segment).map_err(&io)?.as_ref() == Some(&self.signature);
        let removed = unchanged && self.identity.remove(&self.path).map_err(&io)?;
        Ok(if removed { Removal::Removed } else { Removal::Gone })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, symlink};

    use super::super::draft::Draft;
    use super::super::signature::Trailer;
    use super::super::{CreateMode, CreateRequest, Created, create_in};
    use super::*;
    use crate::codes::Codes;
    use crate::sys::testing::no_spawning;

    fn is_ours(preamble: &[u8]) -> bool {
        preamble.starts_with(b"ours")
    }

    /// A segment with its name and its lock.
    fn segment(directory: &Path, name: &str) -> Created {
        let request = CreateRequest { name, len: 4096, signature: b"ours", is_segment: is_ours };
        create_in(directory, request, |_| (), CreateMode::ALL).unwrap()
    }

    /// A segment as a killed creator leaves it.
    fn leave(directory: &Path, name: &str) {
        let created = segment(directory, name);
        std::mem::forget(created.link);
        drop(created.mapping);
    }

    fn trailer(job: &str) -> Trailer {
        Trailer { at: 4096, pid: 42, job: job.to_owned() }
    }

    /// A region of a job as a killed creator leaves it.
    fn leave_region(directory: &Path, name: &str, job: &str) {
        let file = fs::File::create_new(directory.join(name)).unwrap();
        file.write_all_at(&trailer(job).encode(), 4096).unwrap();
    }

    fn found(directory: &Path, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        find_in(directory, &names, is_ours).unwrap().iter().map(Orphan::name).collect()
    }

    #[test]
    fn only_signed_files_without_a_lock_are_found() {
        let _no_spawning = no_spawning();
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
        assert_eq!(found(directory.path(), &[]), ["/stale", "/stale_region_7"]);
        for orphan in find_in(directory.path(), &[], is_ours).unwrap() {
            assert!(matches!(&orphan.signature, Signature::Segment(bytes) if bytes.starts_with(b"ours")));
            assert_eq!(orphan.bytes, 4096);
            assert_eq!(orphan.remove().unwrap(), Removal::Removed);
            assert_eq!(orphan.remove().unwrap(), Removal::Gone);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6);
        drop(live);
        assert!(!at("live").exists());
    }

    #[test]
    fn a_region_is_found_by_its_signature_and_not_by_its_name() {
        let _no_spawning = no_spawning();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        leave(directory.path(), "/job2");
        leave_region(directory.path(), "job_region_3", "/job");
        leave_region(directory.path(), "job_new_ff", "/job");
        leave_region(directory.path(), "job2_region_1", "/job2");
        // Another job's region, and one that was renamed.
        leave_region(directory.path(), "job_region_9", "/job2");
        leave_region(directory.path(), "renamed", "/job");
        for name in ["job_region_4", "job_region_x", "job_new_1", "job_other", "zeros"] {
            fs::write(directory.path().join(name), [0; 8192]).unwrap();
        }
        let of_job = ["/job", "/job_new_ff", "/job_region_3"];
        assert_eq!(found(directory.path(), &["/job"]), of_job);
        assert_eq!(found(directory.path(), &["/job2", "/none"]), ["/job2", "/job2_region_1"]);
        assert_eq!(
            found(directory.path(), &[]),
            ["/job", "/job2", "/job2_region_1", "/job_new_ff", "/job_region_3"]
        );
        assert!(found(directory.path(), &["/zeros", "/jo", "/renamed"]).is_empty());
        let [region] = &find_in(directory.path(), &["/job2".into()], is_ours).unwrap()[1..] else {
            panic!("not one region")
        };
        assert_eq!(region.signature, Signature::Region(trailer("/job2")));
        assert_eq!(region.remove().unwrap(), Removal::Removed);
    }

    #[test]
    fn a_draft_is_found_after_its_creator_has_died() {
        let _no_spawning = no_spawning();
        let directory = tempfile::tempdir().unwrap();
        let draft = Draft::new(directory.path(), "/job", CreateMode::Excl, b"ours", 0).unwrap();
        assert!(found(directory.path(), &["/job"]).is_empty());
        let [path] = &fs::read_dir(directory.path()).unwrap().collect::<Vec<_>>()[..] else {
            panic!("not one")
        };
        let path = path.as_ref().unwrap().path();
        fs::hard_link(&path, directory.path().join("kept")).unwrap();
        drop(draft);
        assert!(!path.exists());
        fs::rename(directory.path().join("kept"), &path).unwrap();
        assert_eq!(found(directory.path(), &["/job"]).len(), 1);
    }

    #[test]
    fn a_file_that_has_replaced_an_orphan_stays() {
        let _no_spawning = no_spawning();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        let [orphan] = &find_in(directory.path(), &[], is_ours).unwrap()[..] else { panic!("not one") };
        let next = segment(directory.path(), "/job");
        assert!(next.reclaimed);
        assert_ne!(orphan.remove().unwrap(), Removal::Removed);
        drop(next);
        fs::write(directory.path().join("job"), b"another's").unwrap();
        assert_eq!(orphan.remove().unwrap(), Removal::Gone);
        assert!(directory.path().join("job").exists());
    }

    #[test]
    fn an_orphan_that_another_process_is_removing_is_busy() {
        let _no_spawning = no_spawning();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        let [orphan] = &find_in(directory.path(), &[], is_ours).unwrap()[..] else { panic!("not one") };
        let reclaimer = file::open_existing(&directory.path().join("job")).unwrap().unwrap();
        assert!(lock::reclaim(reclaimer.open().unwrap()).unwrap());
        assert_eq!(orphan.remove().unwrap(), Removal::Busy);
        assert!(found(directory.path(), &[]).is_empty());
        drop(reclaimer);
        assert_eq!(orphan.remove().unwrap(), Removal::Removed);
    }
}
