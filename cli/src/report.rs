//! `--report` and `--trace` of `intranode run`: what the ranks have counted, as a page, as JSON and as a timeline.
//!
//! The ranks count in a file without a name, which the launcher makes and keeps. So what a rank has counted is there when the
//! rank was killed, and nothing is left when the launcher was.

mod page;
mod summary;
mod timeline;

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write, stderr, stdout};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use intranode::job::recorded::RankRecord;
use intranode::segment::record::RecordLayout;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{AccessFlags, access};

pub(crate) use summary::Ended;
use summary::Summary;

/// The calls of each rank that a trace holds: those before are overwritten. 2 MiB a rank.
const SLICES: usize = 1 << 16;

/// What is written when the job has ended.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Files {
    /// At the end, write a page of where each rank's time went to FILE, and the same as JSON beside it: FILE with its ending
    /// replaced by `.json`. If FILE ends in `.json`, the page is the one that ends in `.html`
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// At the end, write a timeline of the ranks' last 65536 calls, which ui.perfetto.dev and chrome://tracing open.
    /// Each call is timed then, which costs more than --report
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// The file in which the ranks of a job count.
pub(crate) struct Record {
    file: File,
    job: String,
    began: Duration,
}

impl Files {
    /// The page, and the JSON beside it.
    fn report(&self) -> Option<(PathBuf, PathBuf)> {
        let page = self.report.as_ref()?;
        let is_json = page.extension().is_some_and(|ending| ending == "json") && !names_directory(page);
        let page = if is_json { page.with_extension("html") } else { page.clone() };
        let json = page.with_extension("json");
        Some((page, json))
    }

    /// Every file, with its option.
    fn all(&self) -> Vec<(&'static str, PathBuf)> {
        let mut all = Vec::new();
        if let Some((page, json)) = self.report() {
            all.extend([("--report", page), ("--report", json)]);
        }
        all.extend(self.trace.iter().map(|trace| ("--trace", trace.clone())));
        all
    }

    /// Refuses what could not be written at the end.
    fn check(&self) -> Result<()> {
        let all = self.all();
        let mut places = Vec::new();
        for (option, path) in &all {
            let shown = path.display();
            if names_directory(path) || path.is_dir() {
                bail!("{option} {shown} is a directory: name a file");
            }
            let file = link_end(path);
            let folder = folder(&file);
            if !folder.is_dir() {
                bail!("{option} {shown}: there is no directory {}: make it first", folder.display());
            }
            if !is_in_place(path) {
                let cannot = |what: &Path| format!("{option} {shown}: {} cannot be written", what.display());
                // A file is replaced by another one, which takes the right to write into its directory.
                access(folder, AccessFlags::W_OK).with_context(|| cannot(folder))?;
                // Its own name can be too long.
                let found = fs::symlink_metadata(draft(&file)).err().filter(|error| !is_absent(error));
                found.map_or(Ok(()), Err).with_context(|| cannot(&file))?;
            } else if stream(path).is_none() {
                access(path, AccessFlags::W_OK)
                    .with_context(|| format!("{option} {shown} cannot be written"))?;
            }
            let place = folder.canonicalize().unwrap_or_default().join(file.file_name().unwrap_or_default());
            if places.contains(&place) {
                bail!("{option} {shown} is written for --report already: name another file");
            }
            places.push(place);
        }
        Ok(())
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Whether a path can only be that of a directory, whether it exists or not.
fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    path.file_name().is_none() || bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

/// Where links lead, whether there is a file or not: it is replaced there, and the link stays.
fn link_end(path: &Path) -> PathBuf {
    const MOST: usize = 40; // As the kernel.
    let mut path = path.to_owned();
    for _ in 0..MOST {
        let Ok(target) = fs::read_link(&path) else { break };
        path = folder(&path).join(target);
    }
    path
}

/// The directory of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Record {
    /// For the ranks of this job, if anything is to be written.
    ///
    /// # Errors
    /// If a file could not be written later.
    pub(crate) fn create(files: &Files, job: &str, ranks: u32) -> Result<Option<Self>> {
        if files.all().is_empty() {
            return Ok(None);
        }
        files.check()?;
        let layout = RecordLayout::new(ranks as usize, if files.trace.is_some() { SLICES } else { 0 });
        let make = || {
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            let file = File::from(memfd_create(c"intranode-report", flags)?);
            file.set_len(layout.len() as u64)?;
            file.write_all_at(&layout.header(job), 0)?;
            // A rank that has mapped it must not get a SIGBUS.
            fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
            Ok::<File, io::Error>(file)
        };
        let file = make().context("cannot make the memory in which the ranks count")?;
        Ok(Some(Record { file, job: job.to_owned(), began: now()? }))
    }

    /// Where the ranks find it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Writes all files, when all ranks have ended. Returns why some were not written: each of them is tried.
    pub(crate) fn write(&self, files: &Files, ended: &Ended<'_>) -> Vec<Error> {
        let read = || Ok::<_, Error>((RankRecord::read_all(&self.file)?, now()?));
        let (ranks, end) = match read().context("cannot read what the ranks have counted") {
            Ok(read) => read,
            Err(error) => return vec![error],
        };
        let summary = Summary::new(&self.job, ended, (self.began, end), &ranks);
        let mut written = Vec::new();
        if let Some((page, json)) = files.report() {
            written.push(replace(&page, |file| Ok(file.write_all(page::page(&summary).as_bytes())?)));
            written.push(replace(&json, |file| {
                serde_json::to_writer_pretty(&mut *file, &summary)?;
                Ok(file.write_all(b"\n")?)
            }));
        }
        if let Some(trace) = &files.trace {
            written.push(replace(trace, |file| timeline::write(file, &summary, self.began, &ranks)));
        }
        written.into_iter().filter_map(Result::err).collect()
    }
}

/// Writes a file under another name first, so that what was there before stays if that fails.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if is_in_place(path) {
        let file = stream(path).map_or_else(|| File::options().write(true).open(path), Ok);
        let mut file = BufWriter::new(file.with_context(cannot)?);
        return write(&mut file).and_then(|()| Ok(file.flush()?)).with_context(cannot);
    }
    let path = link_end(path);
    let draft = draft(&path);
    let draw_up = || {
        let mut file = BufWriter::new(File::create(&draft)?);
        write(&mut file)?;
        file.flush()?;
        Ok(fs::rename(&draft, &path)?)
    };
    let written: Result<()> = draw_up();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.with_context(cannot)
}

fn draft(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    draft.into()
}

/// Whether it is a device, or the launcher's own output, as /dev/stdout: that is written where it is.
fn is_in_place(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file()) || stream(path).is_some()
}

/// The launcher's own output, if this is its file. What is written follows what is there.
fn stream(path: &Path) -> Option<File> {
    let file = |found: &Metadata| (found.dev(), found.ino());
    let named = file(&fs::metadata(path).ok()?);
    let streams = [stdout().as_fd().try_clone_to_owned(), stderr().as_fd().try_clone_to_owned()];
    let mut streams = streams.into_iter().flatten().map(File::from);
    streams.find(|stream| stream.metadata().is_ok_and(|found| file(&found) == named))
}

/// The clock of the ranks.
fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(report: &str) -> (String, String) {
        let files = Files { report: Some(report.into()), trace: None };
        let (page, json) = files.report().unwrap();
        (page.display().to_string(), json.display().to_string())
    }

    #[test]
    fn the_page_and_its_json_lie_beside_each_other() {
        for (report, page, json) in [
            ("a/job.html", "a/job.html", "a/job.json"),
            ("job", "job", "job.json"),
            ("job.json", "job.html", "job.json"),
            ("job.1.html", "job.1.html", "job.1.json"),
        ] {
            assert_eq!(names(report), (page.to_owned(), json.to_owned()));
        }
    }

    #[test]
    fn one_name_for_two_files_is_refused() {
        let files = Files { report: Some("x.html".into()), trace: Some("x.json".into()) };
        let error = files.check().unwrap_err().to_string();
        assert!(error.contains("--trace x.json is written for --report already"), "{error}");
        Files { report: Some("x.html".into()), trace: Some("x.trace.json".into()) }.check().unwrap();
    }
}
