//! The timeline of a job, as trace events: the JSON that Perfetto and chrome://tracing open.
//!
//! The format: Trace Event Format, Google 2016. A track a rank, a slice a call. Calls that
//! threads of one rank make at the same time have slices that overlap, so these get further tracks.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use intranode::job::recorded::{RankRecord, SliceRecord, Unfinished};
use serde_json::{Value, json};

use super::summary::{Summary, name};

/// The tracks of a job, in one group.
const GROUP: u32 = 1;

pub(super) fn write(
    file: &mut impl Write,
    summary: &Summary,
    began: Duration,
    ranks: &[RankRecord],
) -> Result<()> {
    let lost: Vec<u64> = ranks.iter().map(|rank| rank.slices_lost).collect();
    let other = json!({
        "job": summary.job,
        "program": summary.program,
        "seconds": summary.seconds,
        "calls_overwritten": lost,
        "about": "calls_overwritten, by rank: calls before the first slice of a rank, which its ring buffer has no room for",
    });
    write!(file, "{{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    serde_json::to_writer(&mut *file, &other)?;
    writeln!(file, ",\"traceEvents\":[")?;
    let name = json!({"ph": "M", "name": "process_name", "pid": GROUP, "args": {"name": summary.job}});
    serde_json::to_writer(&mut *file, &name)?;
    let mut next = ranks.len() + 1;
    for (rank, record) in ranks.iter().enumerate() {
        for (index, bars) in tracks(record).into_iter().enumerate() {
            // Tracks begin with 1: 0 has a meaning of its own.
            let (track, name) = match index {
                0 => (rank + 1, format!("rank {rank}")),
                _ => (next, format!("rank {rank}, another thread")),
            };
            next += usize::from(index > 0);
            event(file, &metadata("thread_name", track, json!({"name": name})))?;
            event(file, &metadata("thread_sort_index", track, json!({"sort_index": rank})))?;
            for bar in bars {
                event(file, &bar.event(track, summary, began))?;
            }
        }
    }
    Ok(write!(file, "\n]}}\n")?)
}

fn event(file: &mut impl Write, event: &Value) -> Result<()> {
    writeln!(file, ",")?;
    Ok(serde_json::to_writer(file, event)?)
}

fn metadata(name: &str, track: usize, args: Value) -> Value {
    json!({"ph": "M", "name": name, "pid": GROUP, "tid": track, "args": args})
}

/// A call on a track.
#[derive(Clone, Copy)]
enum Bar<'a> {
    Complete(&'a SliceRecord),
    /// To the end of the job.
    Unfinished(&'a Unfinished),
}

impl Bar<'_> {
    fn start(self) -> u64 {
        match self {
            Bar::Complete(slice) => slice.start,
            Bar::Unfinished(call) => call.since,
        }
    }

    fn end(self) -> u64 {
        match self {
            Bar::Complete(slice) => slice.start + slice.duration_ns,
            Bar::Unfinished(_) => u64::MAX,
        }
    }

    fn event(self, track: usize, summary: &Summary, began: Duration) -> Value {
        let start = microseconds(Duration::from_nanos(self.start()).saturating_sub(began));
        let (operation, duration, args) = match self {
            Bar::Complete(slice) => {
                let mut args = json!({"bytes": slice.bytes});
                if let Some(rank) = slice.waited_for {
                    args["waited_for"] = json!(rank);
                }
                if slice.continues {
                    args["continues"] = json!(true);
                }
                (slice.operation, microseconds(Duration::from_nanos(slice.duration_ns)), args)
            }
            Bar::Unfinished(call) => {
                let args = json!({"unfinished": true, "waited_for": call.waits_for});
                (call.operation, (summary.seconds * 1e6 - start).max(0.0), args)
            }
        };
        json!({
            "ph": "X", "cat": "call", "name": name(operation), "pid": GROUP, "tid": track,
            "ts": start, "dur": duration, "args": args,
        })
    }
}

/// The unit of the format, with the nanoseconds behind the point.
fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The calls of each track, in the order of their starts, none of which overlap. There is one track at least.
fn tracks(record: &RankRecord) -> Vec<Vec<Bar<'_>>> {
    let mut sorted: Vec<Bar> = record.slices.iter().map(Bar::Complete).collect();
    sorted.extend(record.unfinished.iter().map(Bar::Unfinished));
    sorted.sort_by_key(|bar| bar.start());
    let mut tracks: Vec<Vec<Bar>> = vec![Vec::new()];
    for bar in sorted {
        let fits = |track: &Vec<Bar>| track.last().is_none_or(|last| last.end() <= bar.start());
        match tracks.iter_mut().position(|track| fits(track)) {
            Some(track) => tracks[track].push(bar),
            None => tracks.push(vec![bar]),
        }
    }
    tracks
}

#[cfg(test)]
mod tests {
    use super::*;
    use intranode::Operation;

    /// The starts on each track.
    fn starts(complete: &[(u64, u64)], unfinished: &[u64]) -> Vec<Vec<u64>> {
        let slice = |&(start, duration_ns): &(u64, u64)| SliceRecord {
            operation: Operation::Barrier,
            continues: false,
            start,
            duration_ns,
            bytes: 0,
            waited_for: None,
        };
        let call = |&since: &u64| Unfinished { operation: Operation::Recv, since, waits_for: None };
        let record = RankRecord {
            slices: complete.iter().map(slice).collect(),
            unfinished: unfinished.iter().map(call).collect(),
            ..RankRecord::default()
        };
        tracks(&record).iter().map(|track| track.iter().map(|bar| bar.start()).collect()).collect()
    }

    #[test]
    fn calls_that_overlap_are_on_different_tracks() {
        let slices = [(30, 5), (10, 10), (15, 15), (20, 10), (35, 1)];
        assert_eq!(starts(&slices, &[]), [vec![10, 20, 30, 35], vec![15]]);
        assert_eq!(starts(&[], &[]).len(), 1);
    }

    #[test]
    fn an_unfinished_call_overlaps_all_that_follow() {
        assert_eq!(starts(&[(10, 10), (25, 5)], &[20]), [vec![10, 20], vec![25]]);
        assert_eq!(starts(&[(10, 10)], &[15]), [vec![10], vec![15]]);
        assert_eq!(starts(&[], &[10, 15]), [vec![10], vec![15]]);
    }
}
