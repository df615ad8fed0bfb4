//! Ranks as threads of one process.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::communicator::Communicator;
use crate::copy::cpu;
use crate::error::{Error, Operation};
use crate::job::config::Config;
use crate::job::environment;
use crate::protocol::generation::WAITER;
use crate::protocol::membership;
use crate::rank::comm_tree::CommTree;
use crate::rank::rank_state::RankState;
use crate::rank::shared_processors::SharedProcessors;
use crate::segment::mapped::{MappedSegment, START};
use crate::segment::platform::{Fences, ShmPlatform, Wait};
use crate::segment::settings::BarrierShape;
use crate::segment::settings::SegmentSettings;
use crate::sys::memory::headroom::Headroom;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::rlimit;
use crate::sys::nodelete;
use crate::sys::processors::Processors;
use crate::sys::wait::spin::SpinPolicy;
use crate::sys::wait::threads::Ticker;

/// Runs `program` on `size` ranks that are threads of this process. Returns their results, by rank.
///
/// The collectives and their protocols are the same as between processes. It is for tests, and for programs that support
/// both. `size` is 1 to [`Config::MAX_RANKS`]; the settings are those of [`Config::new`].
///
/// ```
/// let ranks = intranode::threads(3, |comm| comm.rank())?;
/// assert_eq!(ranks, [0, 1, 2]);
/// # Ok::<(), intranode::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidConfiguration`] for a size that is not allowed; [`Error::AllocationFailed`] if there is not enough memory;
/// [`Error::ThreadNotStarted`] if the system refuses a thread. It returns when the threads that were started have ended.
///
/// # Panics
/// If a rank panics, after all ranks have ended. The other ranks get an error that names it.
pub fn threads<R, F>(size: usize, program: F) -> Result<Vec<R>, Error>
where
    R: Send,
    F: Fn(Communicator) -> R + Sync,
{
    threads_with(&Config::new("/threads", 0, size), program)
}

/// The same with the size, the time-out, the chunks, the groups, the interrupt and the hook of long waits of `config`. The other settings are checked
/// and have no effect.
///
/// ```
/// use std::time::Duration;
/// use intranode::Config;
///
/// let config = Config::new("/example", 0, 3).timeout(Duration::from_secs(5)).chunk_bytes(4096);
/// let ranks = intranode::threads_with(&config, |comm| comm.rank())?;
/// assert_eq!(ranks, [0, 1, 2]);
/// # Ok::<(), intranode::Error>(())
/// ```
///
/// # Errors
/// As [`threads`]; [`Error::InvalidLayout`] if the segment does not fit into the address space.
///
/// # Panics
/// As [`threads`].
pub fn threads_with<R, F>(config: &Config, program: F) -> Result<Vec<R>, Error>
where
    R: Send,
    F: Fn(Communicator) -> R + Sync,
{
    config.check()?;
    let communicators = communicators(config)?;
    let program = &program;
    std::thread::scope(|scope| {
        let start = |comm: Communicator| {
            let name = format!("rank {}", comm.rank());
            let builder = std::thread::Builder::new().name(name.clone());
            builder.spawn_scoped(scope, move || program(comm)).map_err(|source| not_started(&name, source))
        };
        // All threads are started before the first join. If the system refuses one, its communicator is dropped, and the
        // other ranks get an error.
        let threads: Vec<_> = communicators.into_iter().map(start).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.map(|thread| thread.join())).collect();
        let mut values = Vec::with_capacity(results.len());
        for result in results {
            match result {
                Ok(Ok(value)) => values.push(value),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(error) => return Err(error),
            }
        }
        Ok(values)
    })
}

fn communicators(config: &Config) -> Result<Vec<Communicator>, Error> {
    let (size, timeout) = (config.size, config.timeout);
    let layout = config.layout()?;
    let no_memory = |reason: String| Error::AllocationFailed {
        operation: Operation::Init,
        requested_bytes: layout.len(),
        reason: reason.into(),
    };
    // A thread for each rank, and the ticker.
    let private = (size as u64 + 1).saturating_mul(rlimit::THREAD).saturating_add(layout.len() as u64);
    if let Some(Headroom { bytes, limit }) = rlimit::refuses(0, private) {
        let reason =
            format!("with the threads' stacks, {private} bytes are needed, and {limit} leaves {bytes}");
        return Err(no_memory(reason));
    }
    let mapping = Mapping::anonymous(layout.len()).map_err(|error| no_memory(error.to_string()))?;
    let settings =
        SegmentSettings { shape: BarrierShape::chosen(config.group, size), ..SegmentSettings::default() };
    MappedSegment::initialise(&mapping, &layout, std::process::id(), settings)
        .map_err(|error| no_memory(error.to_string()))?;
    let mapped = Arc::new(MappedSegment::new(mapping, layout));
    let processors = Processors::count(&[Processors::available()]);
    let platform = ShmPlatform {
        wait: Wait::Threads,
        spin: SpinPolicy::new(size, processors).on_intel(cpu::is_intel()),
        timeout,
        fences: Fences::default(),
        hooks: config.hooks,
        recorder: None,
    };
    let ticker = ticker(&mapped).map_err(|source| not_started(Ticker::THREAD, source))?;
    let ticker = Arc::new(ticker);
    let oversubscribed = processors < size;
    let groups = mapped.barrier_shape().groups(&vec![0; size], oversubscribed);
    let shared = SharedProcessors { groups, oversubscribed, co_located: vec![false; size].into() };
    let settings = environment::process_settings()?;
    let job: Arc<str> = format!("/intranode-threads-{}", std::process::id()).into();
    let communicator = |rank| {
        let claimed = membership::claim(&platform, mapped.segment(), rank, std::process::id());
        debug_assert_eq!(claimed, Ok(()), "no other process has the mapping");
        let rank_state = RankState::new(Arc::clone(&mapped), platform, rank, Arc::clone(&job), settings, START);
        let joining = Communicator::new(rank_state).with_tree(CommTree::of_thread(Arc::clone(&ticker)), None);
        let joined = joining.joined(platform, shared.clone(), None, None);
        joined.rank_state.debug_transport();
        joined
    };
    Ok((0..size).map(communicator).collect())
}

fn not_started(thread: &str, source: std::io::Error) -> Error {
    Error::ThreadNotStarted { operation: Operation::Init, thread: thread.into(), source }
}

fn ticker(mapped: &Arc<MappedSegment>) -> std::io::Result<Ticker> {
    nodelete::keep_loaded();
    let mapped = Arc::clone(mapped);
    Ticker::start(move |visit: &mut dyn FnMut(&AtomicU32)| {
        let has_waiter = |word: &&AtomicU32| word.load(Relaxed) & WAITER != 0;
        mapped.segment().words().filter(has_waiter).for_each(visit);
    })
}
