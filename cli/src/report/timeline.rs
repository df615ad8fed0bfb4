//! The timeline of a job, as trace events: the JSON that Perfetto and chrome://tracing open.
//!
//! The format: Trace Event Format, Google 2016. A track a rank, a slice a call. Calls that
//! threads of one rank make at the same time have slices that overlap, so these get further tracks.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use intranode::job::recorded::{RankRecord, SliceRecord};
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
        for (index, mut slices) in tracks(&record.slices).into_iter().enumerate() {
            // Tracks begin with 1: 0 has a meaning of its own.
            let (track, name) = match index {
                0 => (rank + 1, format!("rank {rank}")),
                _ => (next, format!("rank {rank}, another thread")),
            };
            next += usize::from(index > 0);
            event(file, &metadata("thread_name", track, json!({"name": name})))?;
            event(file, &metadata("thread_sort_index", track, json!({"sort_index": rank})))?;
            slices.sort_by_key(|slice| slice.start);
            for slice in slices {
                event(file, &call(track, slice, began))?;
            }
            if index == 0 {
                for unfinished in unfinished(track, summary, rank) {
                    event(file, &unfinished)?;
                }
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

fn call(track: usize, slice: &SliceRecord, began: Duration) -> Value {
    let mut args = json!({"bytes": slice.bytes});
    if let Some(rank) = slice.waited_for {
        args["waited_for"] = json!(rank);
    }
    if slice.continues {
        args["continues"] = json!(true);
    }
    let start = Duration::from_nanos(slice.start).saturating_sub(began);
    json!({
        "ph": "X", "cat": "call", "name": name(slice.operation), "pid": GROUP, "tid": track,
        "ts": microseconds(start), "dur": microseconds(Duration::from_nanos(slice.duration_ns)), "args": args,
    })
}

/// The calls in which the rank was when it ended, to the end of the job.
fn unfinished(track: usize, summary: &Summary, rank: usize) -> Vec<Value> {
    let calls = summary.ranks[rank].unfinished.iter().take(1);
    let slice = |call: &super::summary::UnfinishedCall| {
        let duration = (summary.seconds - call.since_seconds).max(0.0);
        json!({
            "ph": "X", "cat": "call", "name": call.operation, "pid": GROUP, "tid": track,
            "ts": call.since_seconds * 1e6, "dur": duration * 1e6,
            "args": {"unfinished": true, "waited_for": call.waits_for},
        })
    };
    calls.map(slice).collect()
}

/// The unit of the format, with the nanoseconds behind the point.
fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// The slices of each track, none of which overlap. There is one track at least.
fn tracks(slices: &[SliceRecord]) -> Vec<Vec<&SliceRecord>> {
    let mut sorted: Vec<&SliceRecord> = slices.iter().collect();
    sorted.sort_by_key(|slice| slice.start);
    let mut tracks: Vec<Vec<&SliceRecord>> = vec![Vec::new()];
    for slice in sorted {
        let fits = |track: &Vec<&SliceRecord>| {
            track.last().is_none_or(|last| last.start + last.duration_ns <= slice.start)
        };
        match tracks.iter_mut().find(|track| fits(track)) {
            Some(track) => track.push(slice),
            None => tracks.push(vec![slice]),
        }
    }
    tracks
}

#[cfg(test)]
mod tests {
    use super::*;
    use intranode::Operation;

    #[test]
    fn slices_that_overlap_are_on_different_tracks() {
        let slice = |start, duration_ns| SliceRecord {
            operation: Operation::Barrier,
            continues: false,
            start,
            duration_ns,
            bytes: 0,
            waited_for: None,
        };
        let slices = [slice(30, 5), slice(10, 10), slice(15, 15), slice(20, 10), slice(35, 1)];
        let starts = |track: &Vec<&SliceRecord>| track.iter().map(|slice| slice.start).collect::<Vec<_>>();
        let tracks: Vec<Vec<u64>> = tracks(&slices).iter().map(starts).collect();
        assert_eq!(tracks, [vec![10, 20, 30, 35], vec![15]]);
        assert_eq!(super::tracks(&[]).len(), 1);
    }
}
