//! One communicator over time.

use std::time::Instant;

use intranode::job::observe::{Seen, SeenRank};
use nix::unistd::{SysconfVar, sysconf};

use super::found::Found;
use super::processes::{self, Stat};
use super::report::{JobReport, RankReport, RankState};

/// Rounds are counted modulo this.
const ROUNDS: u32 = 1 << 28;

pub(super) struct Tracker {
    found: Found,
    began: Instant,
    /// The last sample. A job of which nothing can be read any more keeps it.
    seen: Option<Seen>,
    /// Whether nothing can be read any more: all processes have unmapped the segment, and perhaps have another one there.
    gone: bool,
    /// The ranks of which no process was found.
    unknown: Vec<u32>,
    sampled: Instant,
    samples: u32,
    ranks: Vec<Track>,
}

/// One rank since the tracker began.
#[derive(Clone, Copy, Default)]
struct Track {
    /// When its round has changed last, as far as it was seen.
    changed: Option<Instant>,
    rounds: u32,
    /// Of the calls seen, one for each sample.
    bytes: u64,
    late: u32,
    /// Its process, and how it was at first and last.
    pid: Option<u32>,
    first: Option<Stat>,
    last: Option<Stat>,
}

impl Tracker {
    pub(super) fn new(found: Found) -> Self {
        let ranks = vec![Track::default(); found.control.ranks()];
        let now = Instant::now();
        let mut tracker = Tracker {
            found,
            began: now,
            seen: None,
            gone: false,
            unknown: Vec::new(),
            sampled: now,
            samples: 0,
            ranks,
        };
        tracker.sample();
        tracker
    }

    /// Looks once.
    pub(super) fn sample(&mut self) {
        let now = Instant::now();
        let is_same = |seen: &Seen| self.seen.as_ref().is_none_or(|before| follows(before, seen));
        let seen = if self.gone { None } else { self.found.see().filter(is_same) };
        seen.iter().for_each(|seen| self.find_processes(seen));
        for (rank, track) in self.ranks.iter_mut().enumerate() {
            let new = seen.as_ref().map(|seen| seen.ranks[rank]);
            let old = self.seen.as_ref().map(|seen| seen.ranks[rank]);
            if let Some(new) = new {
                track.advance(old, &new, now);
                track.pid = new.pid.and_then(|own_pid| self.found.member(own_pid)).map(|member| member.pid);
            }
            track.last = track.pid.and_then(processes::stat);
            track.first = track.first.or(track.last);
        }
        self.samples += 1;
        self.sampled = now;
        self.gone = seen.is_none();
        self.seen = seen.or(self.seen.take());
    }

    /// Finds the processes of ranks that have joined since it was found. Once for each: one may have ended before.
    fn find_processes(&mut self, seen: &Seen) {
        let has_process = |found: &Found, own_pid: &u32| found.member(*own_pid).is_some();
        let pids = || seen.ranks.iter().filter_map(|rank| rank.pid);
        if pids().all(|own_pid| has_process(&self.found, &own_pid) || self.unknown.contains(&own_pid)) {
            return;
        }
        self.found.look_again();
        self.unknown = pids().filter(|own_pid| !has_process(&self.found, own_pid)).collect();
    }

    /// Whether it goes on, and any of its processes is left.
    pub(super) fn is_alive(&self) -> bool {
        !self.gone && self.ranks.iter().any(|track| track.last.is_some())
    }

    /// By which communicators are told apart.
    pub(super) fn is_of(&self, found: &Found) -> bool {
        self.found.file == found.file
    }

    /// Begins to measure anew, and keeps since when the ranks are where they are.
    pub(super) fn restart(&mut self) {
        (self.began, self.samples) = (self.sampled, 0);
        for track in &mut self.ranks {
            *track = Track {
                changed: track.changed,
                pid: track.pid,
                first: track.last,
                last: track.last,
                ..Track::default()
            };
        }
    }

    pub(super) fn report(&self) -> JobReport {
        let seconds = self.sampled.duration_since(self.began).as_secs_f64();
        let most = self.ranks.iter().map(|track| track.late).max().unwrap_or(0);
        let slowest_is_one = most > 0 && self.ranks.iter().filter(|track| track.late == most).count() == 1;
        let seen: &[SeenRank] = self.seen.as_ref().map_or(&[], |seen| &seen.ranks);
        let behind: Vec<usize> = (0..seen.len()).filter(|rank| seen[*rank].is_behind).collect();
        let rank = |(rank, (track, own)): (usize, (&Track, &SeenRank))| {
            let state = self.state(rank, own, !behind.is_empty());
            let waits = state == RankState::Waits;
            let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
            let mean_bytes = track.bytes as f64 / f64::from(self.samples.max(1));
            RankReport {
                rank,
                pid: track.pid.filter(|_| track.last.is_some()),
                cpu: track.last.map(|stat| stat.processor),
                cpu_percent: track.ticks().map(|ticks| 100.0 * rate(ticks as f64 / ticks_per_second())),
                state,
                operation: own.operation.map(intranode::Operation::as_str),
                round: own.round,
                rounds_per_second: rate(f64::from(track.rounds)),
                bytes_per_second: rate(f64::from(track.rounds) * mean_bytes),
                waits_for: if waits { behind.clone() } else { Vec::new() },
                slept_on: own.is_slept_on,
                seconds_at_round: track
                    .changed
                    .map_or(0.0, |changed| self.sampled.duration_since(changed).as_secs_f64()),
                late_percent: 100.0 * f64::from(track.late) / f64::from(self.samples.max(1)),
                slowest: slowest_is_one && track.late == most,
                memory_bytes: track.pid.and_then(processes::memory),
            }
        };
        JobReport {
            name: self.found.name.clone(),
            split: self.found.is_split,
            segment_bytes: self.found.control.segment_bytes(),
            ended: self.seen.as_ref().and_then(|seen| seen.ended.clone()),
            seconds,
            ranks: self.ranks.iter().zip(seen).enumerate().map(rank).collect(),
        }
    }

    fn state(&self, rank: usize, own: &SeenRank, some_are_behind: bool) -> RankState {
        let Some(seen) = &self.seen else { return RankState::Joining };
        let has_ended = (self.gone || seen.ended.is_some()) && seen.dead != Some(rank);
        match self.ranks[rank].last.map(|stat| stat.state) {
            _ if own.pid.is_none() => RankState::Joining,
            None | Some('Z' | 'X') if has_ended => RankState::Left,
            None | Some('Z' | 'X') => RankState::Dead,
            Some(_) if self.gone => RankState::Left,
            Some('T' | 't') => RankState::Frozen,
            Some(_) if some_are_behind && !own.is_behind && seen.ended.is_none() => RankState::Waits,
            Some(_) => RankState::Runs,
        }
    }
}

/// Whether both are of one communicator. Ranks neither go back nor change their processes; where a process has unmapped one and
/// mapped another, they seem to.
fn follows(before: &Seen, seen: &Seen) -> bool {
    let follows = |(before, new): (&SeenRank, &SeenRank)| {
        let is_same = before.pid.is_none() || before.pid == new.pid;
        is_same && new.round.wrapping_sub(before.round) % ROUNDS < ROUNDS / 2
    };
    before.ranks.iter().zip(&seen.ranks).all(follows)
}

impl Track {
    fn advance(&mut self, old: Option<SeenRank>, new: &SeenRank, now: Instant) {
        let rounds = old.map_or(0, |old| new.round.wrapping_sub(old.round) % ROUNDS);
        if rounds > 0 || self.changed.is_none() {
            self.changed = Some(now);
        }
        self.rounds = self.rounds.saturating_add(rounds);
        self.bytes = self.bytes.saturating_add(new.bytes);
        self.late += u32::from(new.is_behind);
    }

    fn ticks(&self) -> Option<u64> {
        Some(self.last?.ticks.saturating_sub(self.first?.ticks))
    }
}

fn ticks_per_second() -> f64 {
    // 100 on all systems that can run this.
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ranks: &[(Option<u32>, u32)]) -> Seen {
        let rank = |&(pid, round): &(Option<u32>, u32)| SeenRank {
            pid,
            round,
            operation: None,
            bytes: 0,
            is_slept_on: false,
            is_behind: false,
        };
        Seen { ranks: ranks.iter().map(rank).collect(), ended: None, dead: None }
    }

    #[test]
    fn another_communicator_at_the_same_address_is_told_apart() {
        let before = seen(&[(Some(7), 5), (None, 2)]);
        for same in [[(Some(7), 5), (None, 2)], [(Some(7), 900), (Some(8), 2)]] {
            assert!(follows(&before, &seen(&same)), "{same:?}");
        }
        for other in [[(Some(7), 4), (None, 2)], [(Some(9), 5), (None, 2)], [(None, 5), (None, 2)]] {
            assert!(!follows(&before, &seen(&other)), "{other:?}");
        }
        assert!(follows(&seen(&[(Some(7), ROUNDS - 1)]), &seen(&[(Some(7), 1)])), "rounds are counted modulo");
    }
}
