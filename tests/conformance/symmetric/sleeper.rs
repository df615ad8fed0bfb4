//! How long after a write a sleeping rank has it.
//!
//! A wake-up that was lost is a delay of up to 10 ms, after which a sleeper looks again. On a busy machine a thread that is
//! awake may get its processor as late. So the time for which the threads wait for a processor, which the kernel counts, is
//! no part of the delay. A hypervisor, too, may take the processor away for as long: a turn in which it did is left out.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use intranode::{Communicator, Symmetric, Until};
use nix::time::ClockId;

/// What the two sides of a turn have in common. Even ranks write, and the odd rank after each sleeps.
pub(super) struct Turns<'c> {
    comm: &'c Communicator,
    /// What the sleeper waits for.
    pub(super) cells: Symmetric<u64>,
    /// In the writer's instance: the turn for which the sleeper is ready.
    ready: Symmetric<u64>,
    /// In the writer's instance: when it wrote.
    written: Symmetric<u64>,
    /// In the writer's instance, by turn: whether the writer itself was held up while it wrote.
    held_up: Symmetric<u32>,
    /// In the writer's instance: the sleeper's process and thread.
    sleeper: Symmetric<i32>,
    turns: u64,
}

impl<'c> Turns<'c> {
    /// Collective, with an even number of ranks.
    pub(super) fn new(comm: &'c Communicator, turns: u64) -> anyhow::Result<Self> {
        let this = Turns {
            comm,
            cells: comm.symmetric(8)?,
            ready: comm.symmetric(1)?,
            written: comm.symmetric(1)?,
            held_up: comm.symmetric(turns as usize)?,
            sleeper: comm.symmetric(2)?,
            turns,
        };
        if !this.writes() {
            this.sleeper.at(this.other())?.put(0, &thread());
        }
        comm.barrier()?;
        Ok(this)
    }

    fn writes(&self) -> bool {
        self.comm.rank().is_multiple_of(2)
    }

    fn other(&self) -> usize {
        self.comm.rank() ^ 1
    }

    /// Waits until the sleeper's thread sleeps.
    pub(super) fn await_asleep(&self) -> anyhow::Result<()> {
        let mut thread = [0; 2];
        self.sleeper.at(self.comm.rank())?.get(0, &mut thread);
        await_asleep(thread)
    }

    /// In each turn the sleeper waits until its element 0 is at least the turn's number, counted from 1, and the writer makes
    /// it so: it calls `before`, and then `write` with the sleeper's rank and that number. Collective. Returns the sleeper's
    /// delays, but for those turns in which the writer was held up or a processor was stolen; nothing on a writer.
    pub(super) fn play(
        &self,
        mut before: impl FnMut(u64) -> anyhow::Result<()>,
        write: impl Fn(usize, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut delays = Vec::new();
        let clock = Queued::new();
        for turn in 1..=self.turns {
            if self.writes() {
                self.one_write(turn, &mut before, &write)?;
            } else {
                delays.push(self.one_sleep(&clock, turn)?);
            }
        }
        self.comm.barrier()?;
        if self.writes() {
            // The sleeper looks for what is in this instance.
            self.comm.barrier()?;
            return Ok(Vec::new());
        }
        let mut held_up = vec![0; self.turns as usize];
        self.held_up.at(self.other())?.get(0, &mut held_up);
        self.comm.barrier()?;
        Ok(delays
            .into_iter()
            .zip(held_up)
            .filter(|(_, held_up)| *held_up == 0)
            .filter_map(|(delay, _)| delay)
            .collect())
    }

    fn one_write(
        &self,
        turn: u64,
        before: &mut impl FnMut(u64) -> anyhow::Result<()>,
        write: &impl Fn(usize, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let own = self.comm.rank();
        let ready = self.ready.at(own)?;
        let mut polls = 0;
        while ready.load(0) < turn {
            polls += 1;
            if polls % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        before(turn)?;
        let start = now();
        self.written.at(own)?.store(0, start);
        write(self.other(), turn)?;
        // A write takes less than a thousandth of that.
        const HELD_UP: u64 = 1_000_000;
        if now() - start > HELD_UP {
            self.held_up.at(own)?.store(turn as usize - 1, 1);
        }
        Ok(())
    }

    /// `None`: the hypervisor has taken a processor away.
    fn one_sleep(&self, clock: &Queued, turn: u64) -> anyhow::Result<Option<Duration>> {
        let writer = self.other();
        let (stolen, queued) = (stolen(), clock.read());
        self.ready.at(writer)?.store(0, turn);
        // Both sides are at the decisive place at the same time in some of the turns.
        spin(turn % 61);
        self.cells.wait_until(0, Until::Ge(turn))?;
        let (end, queued) = (now(), clock.read() - queued);
        let written = self.written.at(writer)?.load(0);
        let delay = Duration::from_nanos(end.saturating_sub(written).saturating_sub(queued));
        // What may be a wake-up that was lost.
        const LONG: Duration = Duration::from_millis(5);
        Ok(Some(delay).filter(|delay| *delay < LONG || !rises(stolen)))
    }
}

/// For how long the hypervisor has taken processors away, in hundredths of a second. 0 where the system does not say so.
fn stolen() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let steal = text.lines().next().and_then(|processors| processors.split_whitespace().nth(8));
    steal.and_then(|steal| steal.parse().ok()).unwrap_or(0)
}

/// Whether [`stolen`] is more than before, or becomes so at the next ticks of the kernel, when it counts that.
fn rises(before: u64) -> bool {
    const TICKS: Duration = Duration::from_millis(20);
    let start = Instant::now();
    loop {
        match stolen() > before {
            false if start.elapsed() < TICKS => std::thread::yield_now(),
            rises => return rises,
        }
    }
}

/// Does nothing for about as many times 20 ns.
pub(super) fn spin(times: u64) {
    (0..times).for_each(|_| std::hint::spin_loop());
}

/// The middle one.
pub(super) fn median(mut delays: Vec<Duration>) -> Option<Duration> {
    delays.sort();
    delays.get(delays.len() / 2).copied()
}

/// Nanoseconds of the clock that all processes share.
fn now() -> u64 {
    let time = nix::time::clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has it");
    Duration::from(time).as_nanos() as u64
}

/// For how long this thread has waited for a processor.
struct Queued(Option<File>);

impl Queued {
    fn new() -> Self {
        Queued(File::open("/proc/thread-self/schedstat").ok())
    }

    /// In nanoseconds; 0 where the system does not count it.
    fn read(&self) -> u64 {
        let mut text = [0; 64];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split(' ').nth(1).and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or(0)
    }
}

/// This process and thread.
pub(crate) fn thread() -> [i32; 2] {
    #[cfg(target_os = "linux")]
    let thread = nix::unistd::gettid().as_raw();
    #[cfg(not(target_os = "linux"))]
    let thread = 0;
    [nix::unistd::getpid().as_raw(), thread]
}

/// Waits until a thread sleeps. Where the system does not say so, it waits for longer than that takes.
pub(crate) fn await_asleep([process, thread]: [i32; 2]) -> anyhow::Result<()> {
    let path = format!("/proc/{process}/task/{thread}/stat");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        let Ok(text) = std::fs::read_to_string(&path) else {
            std::thread::sleep(Duration::from_millis(8));
            return Ok(());
        };
        // The name, which may contain anything, ends with the last parenthesis.
        if text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    anyhow::bail!("the thread {thread} of process {process} does not sleep")
}
