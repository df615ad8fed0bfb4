//! What dead processes have left in the directory of names: files that prove by their signature to be this library's,
//! belong to this user, and are locked by nobody. Nothing else is proof.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file::{self, Identity, Unusable};
use super::lock::{self, Holder};
use super::names::{self, Kind};
use super::signature::{IsSegment, Signature};

/// A file that nobody will ever use again.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    path: PathBuf,
    identity: Identity,
    is_segment: IsSegment,
    /// What it proves itself by.
    pub(crate) signature: Signature,
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

/// What dead jobs have left; with names, only those jobs.
pub(crate) fn find(names: &[String], is_segment: IsSegment) -> io::Result<Vec<Leftover>> {
    find_in(Path::new(file::DIRECTORY), names, is_segment)
}

fn find_in(directory: &Path, names: &[String], is_segment: IsSegment) -> io::Result<Vec<Leftover>> {
    let files = survey(directory, names, is_segment)?.into_iter();
    let mut found: Vec<_> =
        files.filter(|(_, holder)| *holder == Holder::Nobody).map(|(leftover, _)| leftover).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Whether a live process holds a file of one of these jobs.
pub(crate) fn in_use(names: &[String], is_segment: IsSegment) -> io::Result<bool> {
    let files = survey(Path::new(file::DIRECTORY), names, is_segment)?;
    Ok(files.iter().any(|(_, holder)| *holder != Holder::Nobody))
}

/// All files that prove to be of these jobs, or of any if no names are given, and who holds them.
fn survey(directory: &Path, names: &[String], is_segment: IsSegment) -> io::Result<Vec<(Leftover, Holder)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if !names.is_empty() && names.iter().all(|name| names::kind(name, file).is_none()) {
            continue;
        }
        // What can not be looked at is not proven to be anything.
        if let Ok(Some((leftover, holder))) = look(&path, is_segment)
            && is_of(&leftover.signature, file, names)
        {
            found.push((leftover, holder));
        }
    }
    Ok(found)
}

/// Whether a file with this signature was given this name by one of these jobs, or by any if no names are given.
fn is_of(signature: &Signature, file: &str, names: &[String]) -> bool {
    match signature {
        Signature::Segment(_) => {
            let is_its = |name: &String| matches!(names::kind(name, file), Some(Kind::Segment | Kind::Draft));
            names.is_empty() || names.iter().any(is_its)
        }
        Signature::Part(trailer) => {
            let is_its = matches!(names::kind(&trailer.job, file), Some(Kind::Part | Kind::Draft));
            is_its && (names.is_empty() || names.contains(&trailer.job))
        }
    }
}

fn look(path: &Path, is_segment: IsSegment) -> Result<Option<(Leftover, Holder)>, Unusable> {
    let io = Unusable::io(path);
    // Before it is opened: a device or another user's file is none of our business.
    file::check(path, &fs::symlink_metadata(path).map_err(&io)?)?;
    let Some(file) = file::existing(path)? else { return Ok(None) };
    // Whoever signs has locked before, so in this order nobody's file is nobody's.
    let Some(signature) = Signature::of(&file, is_segment).map_err(&io)? else { return Ok(None) };
    let holder = lock::holder(&file).map_err(&io)?;
    let metadata = file.metadata().map_err(&io)?;
    let leftover = Leftover {
        path: path.to_owned(),
        identity: Identity::of(&file).map_err(&io)?,
        is_segment,
        signature,
        bytes: metadata.blocks() * 512,
        modified: metadata.modified().ok(),
    };
    Ok(Some((leftover, holder)))
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
        let unchanged = Signature::of(&file, self.is_segment).map_err(&io)?.as_ref() == Some(&self.signature);
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
    use crate::sys::testing::nothing_starts;

    fn is_ours(preamble: &[u8]) -> bool {
        preamble.starts_with(b"ours")
    }

    /// A segment with its name and its lock.
    fn segment(directory: &Path, name: &str) -> Created {
        let wanted = CreateRequest { name, len: 4096, signature: b"ours", is_segment: is_ours };
        create_in(directory, wanted, |_| (), CreateMode::ALL).unwrap()
    }

    /// What is left of one whose maker was killed.
    fn leave(directory: &Path, name: &str) {
        let created = segment(directory, name);
        std::mem::forget(created.link);
        drop(created.mapping);
    }

    fn trailer(job: &str) -> Trailer {
        Trailer { at: 4096, pid: 42, job: job.to_owned() }
    }

    /// A part of a job, as its maker leaves it.
    fn leave_part(directory: &Path, name: &str, job: &str) {
        let file = fs::File::create_new(directory.join(name)).unwrap();
        file.write_all_at(&trailer(job).encode(), 4096).unwrap();
    }

    fn found(directory: &Path, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        find_in(directory, &names, is_ours).unwrap().iter().map(Leftover::name).collect()
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
        assert_eq!(found(directory.path(), &[]), ["/stale", "/stale_region_7"]);
        for leftover in find_in(directory.path(), &[], is_ours).unwrap() {
            assert!(matches!(&leftover.signature, Signature::Segment(bytes) if bytes.starts_with(b"ours")));
            assert_eq!(leftover.bytes, 4096);
            assert_eq!(leftover.remove().unwrap(), Removal::Removed);
            assert_eq!(leftover.remove().unwrap(), Removal::Gone);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 6);
        drop(live);
        assert!(!at("live").exists());
    }

    #[test]
    fn a_part_is_found_by_its_signature_and_not_by_its_name() {
        let _nothing_starts = nothing_starts();
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path(), "/job");
        leave(directory.path(), "/job2");
        leave_part(directory.path(), "job_region_3", "/job");
        leave_part(directory.path(), "job_new_ff", "/job");
        leave_part(directory.path(), "job2_region_1", "/job2");
        // Another job's, and one that was given its name by somebody else.
        leave_part(directory.path(), "job_region_9", "/job2");
        leave_part(directory.path(), "renamed", "/job");
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
        let [part] = &find_in(directory.path(), &["/job2".into()], is_ours).unwrap()[1..] else {
            panic!("not one part")
        };
        assert_eq!(part.signature, Signature::Part(trailer("/job2")));
        assert_eq!(part.remove().unwrap(), Removal::Removed);
    }

    #[test]
    fn a_draft_of_a_live_process_is_left_alone_and_that_of_a_dead_one_is_not() {
        let _nothing_starts = nothing_starts();
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
        assert!(found(directory.path(), &[]).is_empty());
        drop(reclaimer);
        assert_eq!(leftover.remove().unwrap(), Removal::Removed);
    }
}
