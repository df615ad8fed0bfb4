//! A live segment, read and written by a process that is no rank.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use intranode::protocol::call::INLINE;
use intranode::segment::layout::{Layout, PAIR, PAIRS, PREAMBLE};

use super::job::Job;

/// The length of a slot.
pub(crate) const SLOT: usize = 128;

/// A segment, through its file or through the memory of a process.
pub(crate) struct Segment {
    bytes: File,
    /// The offset of the segment in `bytes`.
    start: u64,
    layout: Layout,
}

impl Segment {
    /// The segment of a job that still has its name.
    pub(crate) fn by_name(job: &Job, layout: Layout) -> Result<Self> {
        let bytes = File::options().read(true).write(true).open(job.path())?;
        Ok(Segment { bytes, start: 0, layout })
    }

    /// The first mapping of this length in `/proc/<pid>/maps` whose line `is_its_file` accepts.
    pub(crate) fn in_process(process: u32, layout: Layout, is_its_file: impl Fn(&str) -> bool) -> Result<Self> {
        let process = format!("/proc/{process}");
        let maps = fs::read_to_string(format!("{process}/maps"))?;
        let start = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
            let pages = layout.len().next_multiple_of(4096) as u64;
            start.filter(|start| is_its_file(line) && Some(start + pages) == end)
        };
        let start = maps.lines().find_map(start).with_context(|| format!("no segment in {maps}"))?;
        let bytes = File::options().read(true).write(true).open(format!("{process}/mem"))?;
        Ok(Segment { bytes, start, layout })
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        Ok(self.bytes.read_exact_at(bytes, self.start + offset as u64)?)
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.bytes.write_all_at(bytes, self.start + offset as u64)?)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The ranges of a segment's parts. `pthread`: with the word that chooses the pthread wait, and its mutexes.
pub(crate) fn parts(layout: &Layout, pthread: bool) -> Result<Vec<Range<usize>>> {
    let word = |offset: usize| offset..offset + size_of::<u32>();
    let words = |offset: usize| offset..offset + size_of::<u32>() * layout.ranks();
    let first_pair = layout.pair(0).context("there are pairs")?;
    let mut parts = vec![
        0..PREAMBLE,
        layout.cause()..layout.cause() + size_of::<u64>(),
        word(layout.barrier_shape()),
        word(layout.single_copy()),
        word(layout.swap()),
        word(layout.spread()),
        layout.key()..layout.key() + size_of::<u64>(),
        word(layout.notices()),
        words(layout.claims()),
        words(layout.pid_namespaces()),
        words(layout.fates()),
        layout.alive(0, 0).context("there is a rank")?..layout.slots(),
        layout.slots()..first_pair,
        layout.staging(0, 0).context("there is a rank")?..layout.len(),
    ];
    if pthread {
        parts.extend([word(layout.wait()), first_pair..first_pair + PAIRS * PAIR]);
    }
    Ok(parts)
}

/// The ranges of a segment that contain the ranks' data. Scribbling there changes results, and does not end the job.
pub(crate) fn data(layout: &Layout) -> Result<Vec<Range<usize>>> {
    // A slot ends with its header, and that with the inline contribution.
    let slots = (layout.slots()..layout.pair(0).context("there are pairs")?).step_by(SLOT);
    let mut parts: Vec<_> = slots.map(|slot| slot + SLOT - INLINE..slot + SLOT).collect();
    parts.push(layout.staging(0, 0).context("there is a rank")?..layout.len());
    Ok(parts)
}
