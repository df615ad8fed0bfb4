//! `--report` and `--trace` of `intranode run`: what the ranks have counted, as a page, as JSON and as a timeline.
//!
//! The ranks count in a file without a name, which the launcher makes and keeps. So what a rank has counted is there when the
//! rank was killed, and nothing is left when the launcher was.

mod page;
mod summary;
mod timeline;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
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
        let is_json = page.extension().is_some_and(|ending| ending == "json");
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
        for (index, (option, path)) in all.iter().enumerate() {
            let shown = path.display();
            if path.file_name().is_none() || path.is_dir() {
                bail!("{option} {shown} is a directory: name a file");
            }
            let folder = folder(path);
            if !folder.is_dir() {
                bail!("{option} {shown}: there is no directory {}: make it first", folder.display());
            }
            // A file is replaced by another one, which takes the right to write into its directory.
            let place = if is_device(path) { path } else { folder };
            access(place, AccessFlags::W_OK)
                .with_context(|| format!("{option} {shown}: {} cannot be written", place.display()))?;
            if all[..index].iter().any(|(_, other)| other == path) {
                bail!("{option} {shown} is written for --report already: name another file");
            }
        }
        Ok(())
    }
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

    /// Writes all files, when all ranks have ended.
    pub(crate) fn write(&self, files: &Files, ended: &Ended<'_>) -> Result<()> {
        let ranks = RankRecord::read_all(&self.file).context("cannot read what the ranks have counted")?;
        let summary = Summary::new(&self.job, ended, (self.began, now()?), &ranks);
        if let Some((page, json)) = files.report() {
            replace(&page, |file| Ok(file.write_all(page::page(&summary).as_bytes())?))?;
            replace(&json, |file| {
                serde_json::to_writer_pretty(&mut *file, &summary)?;
                Ok(file.write_all(b"\n")?)
            })?;
        }
        if let Some(trace) = &files.trace {
            replace(trace, |file| timeline::write(file, &summary, self.began, &ranks))?;
        }
        Ok(())
    }
}

/// Writes a file under another name first, so that what was there before stays if that fails.
fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if is_device(path) {
        let mut file = BufWriter::new(File::options().write(true).open(path).with_context(cannot)?);
        return write(&mut file).and_then(|()| Ok(file.flush()?)).with_context(cannot);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let draw_up = || {
        let mut file = BufWriter::new(File::create(&draft)?);
        write(&mut file)?;
        file.flush()?;
        Ok(fs::rename(&draft, path)?)
    };
    let written: Result<()> = draw_up();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.with_context(cannot)
}

/// Whether it is a device, as /dev/stdout, which is written where it is.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
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
