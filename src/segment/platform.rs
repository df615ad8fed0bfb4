//! The production platform: atomics in mapped memory.

use core::cell::UnsafeCell;
use core::sync::atomic::{self, AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(target_os = "linux")]
use std::os::fd::RawFd;
use std::time::Duration;

use crate::copy::lines;
use crate::copy::{Sink, Source};
use crate::protocol::call::{HEADER, OPERATION, PROCESSOR};
use crate::protocol::symmetric::SymmetricPlatform;
use crate::protocol::{Expired, Payload, Platform};
use crate::segment::layout::{Layout, SLOT};
use crate::segment::recorder::Lane;
use crate::sys::fence;
#[cfg(target_os = "linux")]
use crate::sys::membarrier;
use crate::sys::processors;
#[cfg(target_os = "linux")]
use crate::sys::socket;
use crate::sys::wait::clock::Moment;
use crate::sys::wait::progress;
use crate::sys::wait::pthread::Pair;
use crate::sys::wait::spin::SpinPolicy;
use crate::sys::wait::{self, TimedOut};
use crate::tuning::{BRIEF_WAIT, NAP, PROGRESS_NAP};

/// How a rank sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// On a futex, across processes.
    #[cfg(target_os = "linux")]
    Futex,
    /// On a mutex and a condition variable in the segment, across processes.
    Pthread(Pairs),
    /// By the descriptors of a connection: who wakes sends a packet by this socket.
    #[cfg(target_os = "linux")]
    Socket(RawFd),
    /// On a private futex or its like, for ranks that are threads of one process.
    Threads,
}

/// The mutexes and condition variables of a segment. Each serves several words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    segment: *mut u8,
    layout: Layout,
}

// SAFETY: I1: only an address; pairs may be used by several threads.
unsafe impl Send for Pairs {}
// SAFETY: I1: as above.
unsafe impl Sync for Pairs {}

impl Pairs {
    /// The pairs of the segment at address `segment`.
    ///
    /// # Safety
    /// The segment has this layout, its pairs are initialised, and it stays mapped for as long as this value is used.
    pub(crate) unsafe fn new(segment: *mut u8, layout: Layout) -> Self {
        Pairs { segment, layout }
    }

    /// The pair for a word of the segment: the same on every rank.
    fn of(&self, word: &AtomicU32) -> &Pair {
        let offset = word.as_ptr().addr().wrapping_sub(self.segment.addr());
        let pair =
            self.layout.pair(self.layout.pair_of(offset)).expect("the layout has the pairs that it names");
        // SAFETY: I1: the promise to `new`.
        unsafe { Pair::at(self.segment.wrapping_add(pair)) }
    }
}

/// The platform of one rank: how it spins and sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShmPlatform {
    pub(crate) wait: Wait,
    pub(crate) spin: SpinPolicy,
    /// The longest wait; `None`: unlimited.
    pub(crate) timeout: Option<Duration>,
    /// How fences between a rank that writes and one that is about to sleep work: the same on all ranks.
    pub(crate) fences: Fences,
    /// What of the program is called by a rank that waits.
    pub(crate) hooks: Hooks,
    /// What counts this rank's waits, with `INTRANODE_REPORT`.
    pub(crate) recorder: Option<&'static Lane>,
}

/// Functions of the program, called on the thread that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    /// Asks whether this rank is to wait no longer.
    pub(crate) interrupt: Option<fn() -> bool>,
    /// Is told that a wait will take longer than a few polls.
    pub(crate) long_wait: Option<fn()>,
}

impl Hooks {
    pub(crate) const NONE: Hooks = Hooks { interrupt: None, long_wait: None };
}

/// The two sides of the fences between a rank that writes and one that is about to sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fences {
    /// A fence on both sides.
    #[default]
    Symmetric,
    /// The rank that is about to sleep lets the system interrupt all others, which then need no fence. All have registered.
    #[cfg(target_os = "linux")]
    Membarrier,
}

impl ShmPlatform {
    /// That of a connection between two endpoints, which polls and sleeps by itself.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_connection(wait: Wait) -> Self {
        let (fences, hooks, recorder) = (Fences::Symmetric, Hooks::NONE, None);
        ShmPlatform { wait, spin: SpinPolicy::NONE, timeout: None, fences, hooks, recorder }
    }

    /// Registers this process for [`Fences::Membarrier`], if that pays: a rank without a processor of its own sleeps often.
    pub(crate) fn registers_fences(&self) -> bool {
        #[cfg(target_os = "linux")]
        return !self.spin.yields() && !matches!(self.wait, Wait::Threads) && membarrier::register();
        #[cfg(not(target_os = "linux"))]
        false
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, deadline: Option<Moment>) -> Result<(), Expired> {
        match self.wait {
            #[cfg(target_os = "linux")]
            Wait::Futex => wait::futex::wait(word, expected, deadline).map_err(|TimedOut| Expired),
            Wait::Pthread(pairs) => {
                let expired = pairs.of(word).wait(word, expected, deadline.map(Moment::nanoseconds));
                if expired { Err(Expired) } else { Ok(()) }
            }
            // A process that is woken by descriptors sleeps there.
            #[cfg(target_os = "linux")]
            Wait::Socket(_) => Ok(()),
            Wait::Threads => wait::threads::wait(word, expected, deadline).map_err(|TimedOut| Expired),
        }
    }

    /// The same platform, with membarrier if every rank is registered.
    pub(crate) fn with_fences(self, all_registered: bool) -> Self {
        #[cfg(target_os = "linux")]
        if all_registered {
            return ShmPlatform { fences: Fences::Membarrier, ..self };
        }
        let _ = all_registered;
        ShmPlatform { fences: Fences::Symmetric, ..self }
    }
}

impl ShmPlatform {
    /// The rest of a spin. Where ranks share processors it is not recorded: the clock would cost more than some switches.
    #[cold]
    fn spin_long(&self, word: &AtomicU32, order: Ordering, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        if let Some(begins) = self.hooks.long_wait {
            begins();
        }
        let (mut value, mut done) = (0, false);
        let mut spin = || {
            self.spin.spin_long(|| {
                value = word.load(order);
                done = until(value);
                done
            });
        };
        match self.recorder {
            Some(lane) if !self.spin.yields() => lane.wait(word, word.load(Ordering::Relaxed), spin),
            _ => spin(),
        }
        if done { Ok(value) } else { Err(value) }
    }
}

// SAFETY: I3: the operations are those of the standard library's atomics, with the given orderings.
unsafe impl Platform for ShmPlatform {
    type Word = AtomicU32;
    type Word64 = AtomicU64;
    type Header = Header;
    type Buffer = Buffer;
    type Deadline = Option<Moment>;

    #[inline(always)]
    fn load(&self, _: &'static str, word: &AtomicU32, order: Ordering) -> u32 {
        word.load(order)
    }

    #[inline(always)]
    fn store(&self, _: &'static str, word: &AtomicU32, value: u32, order: Ordering) {
        word.store(value, order);
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        _: &'static str,
        word: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        word.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_or(&self, _: &'static str, word: &AtomicU32, bits: u32, order: Ordering) -> u32 {
        word.fetch_or(bits, order)
    }

    #[inline(always)]
    fn load64(&self, _: &'static str, word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }

    #[inline(always)]
    fn compare_exchange64(
        &self,
        _: &'static str,
        word: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        word.compare_exchange(current, new, success, failure)
    }

    #[inline(always)]
    fn spin(
        &self,
        _: &'static str,
        word: &AtomicU32,
        order: Ordering,
        co_located: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let poll = || Some(word.load(order)).filter(|value| until(*value));
        match self.spin.spin_briefly(co_located, poll) {
            Some(value) => Ok(value),
            None => self.spin_long(word, order, until),
        }
    }

    #[inline(always)]
    fn processor(&self) -> Option<u8> {
        if self.spin.yields() { processors::current() } else { None }
    }

    #[inline(always)]
    fn peek(&self, header: &Header) -> u8 {
        header.peek(PROCESSOR)
    }

    #[inline(always)]
    fn prefetch_for_write(&self, word: &AtomicU32) {
        // The second line too: processors prefetch lines in pairs, so that a core that polls the word takes both.
        let slot = core::ptr::from_ref(word).cast::<u8>();
        lines::prefetchw(slot);
        lines::prefetchw(slot.wrapping_add(SLOT / 2));
    }

    fn deadline(&self) -> Option<Moment> {
        self.timeout.map(Moment::after)
    }

    fn brief_deadline(&self) -> Option<Moment> {
        let brief = self.timeout.map_or(BRIEF_WAIT, |timeout| timeout.min(BRIEF_WAIT));
        Some(Moment::after(brief))
    }

    #[cold]
    fn wait(
        &self,
        _: &'static str,
        word: &AtomicU32,
        expected: u32,
        deadline: &Option<Moment>,
    ) -> Result<(), Expired> {
        // A signal may be handled by another thread, and ends no sleep then.
        let mut until = if self.hooks.interrupt.is_some() { self.nap(deadline) } else { *deadline };
        if progress::any() {
            let soon = Moment::after(PROGRESS_NAP);
            // Relaxed: the caller loads it again.
            progress::go_on_while(|| word.load(Ordering::Relaxed) == expected && !soon.has_passed());
            if progress::any() {
                until = Some(until.map_or(soon, |until| until.min(soon)));
            }
        }
        let sleep = || self.sleep(word, expected, until);
        let slept = match self.recorder {
            None => sleep(),
            Some(lane) => lane.park(word, expected, sleep),
        };
        match slept {
            Err(Expired) if until != *deadline && !self.has_passed(deadline) => Ok(()),
            slept => slept,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.hooks.interrupt.is_some_and(|is_interrupted| is_interrupted())
    }

    #[cold]
    fn wake_all(&self, _: &'static str, word: &AtomicU32) {
        if let Some(lane) = self.recorder {
            lane.wakes(word);
        }
        match self.wait {
            #[cfg(target_os = "linux")]
            Wait::Futex => wait::futex::wake_all(word),
            Wait::Pthread(pairs) => pairs.of(word).wake_all(),
            #[cfg(target_os = "linux")]
            Wait::Socket(socket) => socket::ring(socket),
            Wait::Threads => wait::threads::wake_all(word),
        }
    }
}

// SAFETY: I3: the fences are the standard library's, or membarrier's: each other thread of a process that has registered has
// executed a full fence between the beginning and the end of the call. Of one that the system leaves out a wake-up is missed
// at most, and no memory depends on that.
unsafe impl SymmetricPlatform for ShmPlatform {
    #[inline(always)]
    fn fence(&self, _: &'static str, order: Ordering) {
        atomic::fence(order);
    }

    #[inline(always)]
    fn fence_light(&self, _: &'static str) {
        match self.fences {
            Fences::Symmetric => fence::full(),
            #[cfg(target_os = "linux")]
            Fences::Membarrier => atomic::compiler_fence(Ordering::SeqCst),
        }
    }

    #[cold]
    fn fence_heavy(&self, _: &'static str) {
        atomic::fence(Ordering::SeqCst);
        #[cfg(target_os = "linux")]
        if self.fences == Fences::Membarrier {
            membarrier::all_registered();
        }
    }

    #[inline(always)]
    fn poll<R>(&self, _: &'static str, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        let mut found = None;
        self.spin.spin_for_write(|| {
            found = poll();
            found.is_some()
        });
        found
    }

    fn nap(&self, deadline: &Option<Moment>) -> Option<Moment> {
        let soon = Moment::after(NAP);
        Some(deadline.map_or(soon, |deadline| deadline.min(soon)))
    }

    fn has_passed(&self, deadline: &Option<Moment>) -> bool {
        deadline.is_some_and(Moment::has_passed)
    }
}

/// A header inside a [`Slot`](crate::protocol::Slot): the rest of its two cache lines.
#[repr(transparent)]
pub(crate) struct Header(UnsafeCell<[u32; HEADER / 4]>);

impl Header {
    /// The operation of the owner's current call. Not synchronised with the owner.
    pub(crate) fn operation(&self) -> u8 {
        self.peek(OPERATION)
    }

    /// One of the bytes that the owner stores atomically.
    #[inline(always)]
    fn peek(&self, offset: usize) -> u8 {
        assert!(offset == OPERATION || offset == PROCESSOR);
        let byte = self.0.get().cast::<u8>().wrapping_add(offset);
        // SAFETY: I1 and I3: inside the header; its owner stores these two bytes atomically.
        unsafe { AtomicU8::from_ptr(byte) }.load(Ordering::Relaxed)
    }
}

// SAFETY: I2 and I6: all access is by the protocols, which give a header to one writer or to readers, but for the bytes that
// `peek` reads, which are stored atomically.
unsafe impl Sync for Header {}

// SAFETY: I1: the view is exactly the cell.
unsafe impl Payload for Header {
    #[inline(always)]
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        fill(unsafe { Sink::new(self.0.get().cast(), HEADER) })
    }

    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        read(unsafe { Source::new(self.0.get().cast(), HEADER) })
    }
}

/// A staging buffer in the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    start: *mut u8,
    len: usize,
}

impl Buffer {
    /// The buffer of `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay mapped for as long as the chunk is used, and belong to no other part of the layout.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Buffer { start, len }
    }
}

// SAFETY: I2 and I6: all access is by the protocols, which give a chunk to one writer or to readers.
unsafe impl Sync for Buffer {}
// SAFETY: I2: as above; a chunk is only an address.
unsafe impl Send for Buffer {}

// SAFETY: I1: the view is exactly the buffer.
unsafe impl Payload for Buffer {
    #[inline(always)]
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        let sink = unsafe { Sink::new(self.start, self.len) };
        #[cfg(test)]
        return super::observed::writing(self, (self.start, self.len), || fill(sink));
        #[cfg(not(test))]
        fill(sink)
    }

    #[inline]
    fn prefetch_for_write(&self, start: usize, len: usize) {
        let end = start.saturating_add(len).min(self.len);
        #[cfg(test)]
        super::observed::prefetches((self.start, self.len), start..end);
        for offset in (start..end).step_by(64) {
            lines::prefetchw(self.start.wrapping_add(offset));
        }
    }

    #[inline(always)]
    fn read<R>(&self, read: impl FnOnce(Source<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        read(unsafe { Source::new(self.start, self.len) })
    }
}
