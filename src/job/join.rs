//! Joining: a process becomes a rank.
//!
//! 1. Rank 0 creates the segment. The others poll for its name, and validate the file's header.
//! 2. Each process claims its rank, and starts its watcher. From now on a death is detected.
//! 3. All ranks complete a first round, whose time-out is the joining time-out.
//! 4. Rank 0 removes the name, so that another job can use it.
//! 5. The ranks exchange which processors they may use, which decides the spin policy and the shape of the barrier. If
//!    single copy is enabled, they probe whether they can read each other's memory.

use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

use bytemuck::Zeroable;

use crate::collective::allgatherv::{gather, gather_words};
use crate::collective::block_table::BlockTable;
use crate::communicator::Communicator;
use crate::copy::cpu;
use crate::error::{Error, InitFailure, Operation};
use crate::job::config::{Config, WaitKind};
use crate::job::environment;
use crate::liveness::Detection;
use crate::liveness::fatal::FatalSignals;
use crate::liveness::watcher::{Listener, Watcher};
use crate::protocol::{Call, Cause, CauseKind, membership, watch};
use crate::rank::cma_peers::{CmaPeers, ProbeCookie};
use crate::rank::comm_tree::{CommTree, DeathFanout};
use crate::rank::job_state::StateSampler;
use crate::rank::rank_state::RankState;
use crate::rank::shared_processors::SharedProcessors;
use crate::segment::layout::{Layout, LayoutError};
use crate::segment::mapped::{MappedSegment, START};
use crate::segment::platform::{Fences, Hooks, ShmPlatform};
use crate::segment::settings::BarrierShape;
use crate::segment::settings::{SegmentSettings, SingleCopy};
use crate::sys::cma::Token;
use crate::sys::file_size::write_stderr;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::rlimit;
use crate::sys::nodelete;
use crate::sys::processors::Processors;
use crate::sys::shm_file::{self, CreateError, Created, Link, OpenError, Unusable};
use crate::sys::sigusr2;
use crate::sys::wait::spin::SpinPolicy;

const CALL: Call = Call {
    operation: Operation::Init as u8,
    reduction: 0,
    element: 0,
    refused: false,
    phase: 0,
    shape: 0,
    length: 0,
    extra: 0,
};

impl Communicator {
    /// Joins the job given by the environment, under `intranode run`, `mpiexec`, `srun` or `torchrun`:
    /// [`Config::from_env`](crate::Config::from_env), then [`Config::join`](crate::Config::join). Collective.
    ///
    /// ```
    /// use intranode::{Communicator, Error};
    ///
    /// match Communicator::from_env() {
    ///     Ok(comm) => comm.barrier()?,
    ///     // Not started by a launcher.
    ///     Err(Error::InvalidConfiguration(bad)) => assert_eq!(bad.value, None),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// ```
    ///
    /// # Errors
    /// As these.
    pub fn from_env() -> Result<Self, Error> {
        Config::from_env()?.join()
    }

    /// The same, and where no launcher has started this process, a communicator of this rank alone:
    /// [`Config::from_env_or_alone`](crate::Config::from_env_or_alone), then [`Config::join`](crate::Config::join). Collective.
    ///
    /// ```
    /// let comm = intranode::Communicator::from_env_or_alone()?;
    /// comm.barrier()?;
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As these.
    pub fn from_env_or_alone() -> Result<Self, Error> {
        Config::from_env_or_alone()?.join()
    }
}

impl Config {
    /// Joins the job, and returns when all ranks have joined. The ranks may start in any order. Afterwards the name can be
    /// used by another job. Collective.
    ///
    /// ```
    /// use intranode::Config;
    ///
    /// let name = format!("/example-join-{}", std::process::id());
    /// for _ in 0..2 {
    ///     // The name is free again for the second job.
    ///     let comm = Config::new(&name, 0, 1).join()?;
    ///     comm.leave()?;
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfiguration`] for values that are not allowed; [`Error::AllocationFailed`] if there is not enough
    /// memory; [`Error::InvalidLayout`] if the segment does not fit into the address space; [`Error::InitializationFailed`]
    /// if a rank does not join in time, has another size, is claimed by two processes or cannot start its watcher, or if the
    /// file of this name is not a segment that this process can join.
    pub fn join(self) -> Result<Communicator, Error> {
        self.check()?;
        let joined = self.join_segment();
        // No later job has a name that was made of a launcher's job, so no later rank 0 removes what a dead one has left.
        if joined.is_err() && self.launcher.is_some() {
            shm_file::remove_leftover(&self.name, Layout::is_segment);
        }
        joined
    }

    fn join_segment(&self) -> Result<Communicator, Error> {
        let settings = environment::process_settings()?;
        let started = Instant::now();
        let (mapped, link) = if self.rank == 0 { self.create()? } else { (self.open(started)?, None) };
        let platform = ShmPlatform {
            wait: mapped.wait(),
            spin: SpinPolicy::new(self.size, 0),
            timeout: self.join_timeout.map(|timeout| timeout.saturating_sub(started.elapsed())),
            fences: Fences::default(),
            hooks: self.hooks,
            recorder: None,
        };
        self.claim(&mapped, &platform)?;
        let job = self.name.as_str().into();
        let rank_state = RankState::new(Arc::clone(&mapped), platform, self.rank, job, settings, START);
        let joining = Communicator::new(rank_state);
        let joining = self.watch(joining, &mapped, platform, settings.detection)?;
        joining
            .rank_state
            .collective(Operation::Init, |member| member.begin_call(&CALL, |_| ()).map(drop))
            .map_err(|error| self.incomplete(error))?;
        if let Some(mut link) = link
            && let Err(error) = link.unlink()
        {
            return Err(self.failed("its name could not be removed", Some(error)));
        }
        let all = self.exchange_processors(&joining).map_err(|error| self.incomplete(error))?;
        let processors = Processors::count(&all);
        // The time-out begins when a rank sleeps.
        let longest = self.timeout.map(|timeout| timeout / 10);
        let spin = SpinPolicy::chosen(self.spin, self.size, processors).within(longest);
        let platform = ShmPlatform { spin: spin.on_intel(cpu::is_intel()), timeout: self.timeout, ..platform };
        let caches: Vec<u64> = all.iter().map(|rank| rank.cache).collect();
        let oversubscribed = processors < self.size;
        let groups = mapped.barrier_shape().groups(&caches, oversubscribed);
        let co_located = all.iter().map(|rank| rank.is_one(&all[self.rank])).collect();
        let processors = SharedProcessors { groups, oversubscribed, co_located };
        let mut cma_peers = None;
        let choice = mapped.single_copy();
        if choice.is_tried() {
            let is_for_all = choice.is_for_all(oversubscribed);
            cma_peers =
                probe_cma_peers(&joining.rank_state, is_for_all).map_err(|error| self.incomplete(error))?;
        }
        let recording = self.recording(&joining);
        let joined = joining.joined(platform, processors, cma_peers, recording);
        joined.rank_state.debug_transport();
        Ok(joined)
    }

    fn create(&self) -> Result<(Arc<MappedSegment>, Option<Link>), Error> {
        let layout = self.layout()?;
        let pthread = self.wait == WaitKind::Pthread;
        let shape = BarrierShape::chosen(self.group, self.size);
        let settings =
            SegmentSettings { pthread, shape, single_copy: SingleCopy::chosen(self.single_copy, self.size) };
        let mut result = Ok(());
        let init = |mapping: &Mapping| {
            result = MappedSegment::initialise(mapping, &layout, std::process::id(), settings);
        };
        let signature = &layout.preamble(std::process::id());
        let request = shm_file::CreateRequest {
            name: &self.name,
            len: layout.len(),
            signature,
            is_segment: Layout::is_segment,
        };
        let Created { link, mapping, reclaimed } =
            shm_file::create(request, init).map_err(|error| self.not_created(error))?;
        result.map_err(|error| self.failed("its mutexes could not be made", Some(error)))?;
        if reclaimed {
            let name = &self.name;
            write_stderr(&format!("intranode: removed what a job that has ended left under {name}\n"));
        }
        Ok((Arc::new(MappedSegment::new(mapping, layout)), Some(link)))
    }

    fn open(&self, started: Instant) -> Result<Arc<MappedSegment>, Error> {
        let mut found = None;
        let validate = |preamble: &[u8], length: u64| {
            let (layout, _) = Layout::decode(preamble, length)?;
            found = Some(layout);
            Ok::<_, LayoutError>(())
        };
        // None if the sum exceeds the range of the clock.
        let deadline = self.join_timeout.and_then(|timeout| started.checked_add(timeout));
        let mapping = shm_file::open(&self.name, Layout::is_segment, validate, deadline, self.hooks.interrupt)
            .map_err(|error| self.not_opened(error))?;
        let layout = match found {
            Some(layout) if MappedSegment::is_initialised(&mapping) => layout,
            _ => return Err(self.failed("the segment is not what it was a moment before", None)),
        };
        let mapped = Arc::new(MappedSegment::new(mapping, layout));
        if layout.ranks() == self.size {
            return Ok(mapped);
        }
        let platform = ShmPlatform {
            wait: mapped.wait(),
            spin: SpinPolicy::new(1, 1),
            timeout: None,
            fences: Fences::default(),
            hooks: Hooks::NONE,
            recorder: None,
        };
        let cause = Cause { kind: CauseKind::WrongSize, rank: self.rank, detail: self.size as u32 };
        let _ = membership::poison(&platform, mapped.segment(), cause);
        let error = LayoutError::Size { segment: layout.ranks(), expected: self.size };
        Err(self.failed(&error.to_string(), None))
    }

    fn claim(&self, mapped: &MappedSegment, platform: &ShmPlatform) -> Result<(), Error> {
        membership::claim(platform, mapped.segment(), self.rank, std::process::id()).map_err(|owner| {
            let rank = self.rank;
            let reason =
                format!("process {owner} is rank {rank} already; give every process a rank of its own");
            self.failed(&reason, None)
        })
    }

    /// Starts the watcher, which ends the communicator on all ranks when another rank dies.
    fn watch(
        &self,
        comm: Communicator,
        mapped: &Arc<MappedSegment>,
        platform: ShmPlatform,
        detection: Detection,
    ) -> Result<Communicator, Error> {
        nodelete::keep_loaded();
        let mut sampler = None;
        if self.state_reports {
            sigusr2::install()
                .map_err(|error| self.failed("a handler for SIGUSR2 is not allowed", Some(error)))?;
            sampler = Some(Arc::new(StateSampler::new(mapped, &self.name, self.rank)));
        }
        let fanout = Arc::<DeathFanout>::default();
        let handler = DeathHandler {
            mapped: Arc::clone(mapped),
            platform,
            fanout: Arc::clone(&fanout),
            sampler: sampler.clone(),
        };
        // A single rank watches no other, but reports need the thread.
        let watcher = (self.size > 1 || self.state_reports)
            .then(|| Watcher::start(mapped, self.rank, handler, detection))
            .transpose()
            .map_err(|error| self.failed("its watcher's thread could not be started", Some(error)))?;
        let register = || FatalSignals::register(mapped, platform, self.rank);
        let fatal_signals = self
            .fatal_signals
            .then(register)
            .transpose()
            .map_err(|error| self.failed("a handler for fatal signals is not allowed", Some(error)))?;
        let tree = CommTree::new(fanout, watcher, self.fatal_signals);
        Ok(comm.with_tree(tree, fatal_signals).with_sampler(sampler))
    }

    fn exchange_processors(&self, joining: &Communicator) -> Result<Vec<Processors>, Error> {
        let mut own = [Processors::available()];
        if joining.rank_state.mapped.barrier_shape() != BarrierShape::FLAT {
            own = own.map(Processors::with_cache);
        }
        let mut all = vec![Processors::zeroed(); self.size];
        let table = BlockTable::Equal { bytes: size_of::<Processors>() };
        let (send, recv) = (bytemuck::cast_slice(&own), bytemuck::cast_slice_mut(&mut all));
        gather(&mut joining.rank_state.begin(Operation::Init)?, &CALL, send, recv, table)?;
        Ok(all)
    }

    fn failed(&self, reason: &str, source: Option<std::io::Error>) -> Error {
        let reason = source.as_ref().map_or(reason.to_owned(), |error| format!("{reason}: {error}"));
        self.failure(reason, Vec::new(), source)
    }

    fn failure(&self, reason: String, missing: Vec<usize>, source: Option<std::io::Error>) -> Error {
        let name = self.name.clone();
        let failure = InitFailure { name, rank: self.rank, reason, missing, source };
        Error::InitializationFailed(Box::new(failure))
    }

    /// Converts an error of one of the first rounds.
    fn incomplete(&self, error: Error) -> Error {
        let Error::TimedOut { late, .. } = error else {
            return self.failed(&error.to_string(), None);
        };
        let missing = late.into_vec();
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        let timeout = self.join_timeout.unwrap_or_default();
        let reason =
            format!("rank {} never joined within {timeout:?}; {}", names.join(", "), self.all_must_join());
        self.failure(reason, missing, None)
    }

    /// What to do if a rank is missing. It may be alive: in a container that has a `/dev/shm` of its own, ranks find nobody.
    fn all_must_join(&self) -> String {
        let who = match self.launcher {
            Some(launcher) => {
                format!("each of the {} ranks that {launcher} has started here has to join", self.size)
            }
            None => format!("start all {} ranks, with the same name and size", self.size),
        };
        format!("{who}, and ranks in containers have to share one /dev/shm")
    }

    fn not_created(&self, error: CreateError) -> Error {
        match error {
            CreateError::Live { preamble } => {
                let holder = Layout::holder(&preamble);
                let holder = holder.map_or("another program".to_owned(), |pid| format!("process {pid}"));
                let reason = format!("{holder} is rank 0 of a live job of this name; use another name");
                self.failed(&reason, None)
            }
            CreateError::Memory { requested, .. } | CreateError::NoSpace { requested, .. } => {
                no_memory(requested, error.to_string())
            }
            CreateError::Contended { .. } | CreateError::Foreign { .. } => {
                self.failed(&error.to_string(), None)
            }
            CreateError::Unusable(unusable) => self.unusable(unusable),
        }
    }

    fn not_opened(&self, error: OpenError<LayoutError>) -> Error {
        match error {
            OpenError::Rejected(layout) => self.failed(&layout.to_string(), None),
            OpenError::TimedOut { .. } => {
                let text = error.to_string();
                let timeout = self.join_timeout.unwrap_or_default();
                let reason =
                    format!("rank 0 never joined within {timeout:?} ({text}); {}", self.all_must_join());
                self.failure(reason, vec![0], None)
            }
            OpenError::Interrupted { .. } => self.failure(error.to_string(), vec![0], None),
            OpenError::Memory { requested, .. } => no_memory(requested, error.to_string()),
            OpenError::Foreign { .. } => self.failed(&error.to_string(), None),
            OpenError::Unusable(unusable) => self.unusable(unusable),
        }
    }

    fn unusable(&self, error: Unusable) -> Error {
        self.failure(error.to_string(), Vec::new(), error.into_source())
    }
}

fn no_memory(requested_bytes: usize, reason: String) -> Error {
    Error::AllocationFailed { operation: Operation::Init, requested_bytes, reason: reason.into() }
}

/// Probes whether every rank can read the memory of every rank. Collective.
fn probe_cma_peers(rank_state: &RankState, is_for_all: bool) -> Result<Option<CmaPeers>, Error> {
    let mut open = rank_state.begin(Operation::Init)?;
    // The others read it in every call, so it stays where it is.
    let cookie = Arc::new(ProbeCookie::new());
    let Token { address, value } = cookie.token();
    let tokens = gather_words(&mut open, &CALL, [address, value])?;
    let peer = |(rank, [address, value]): (usize, [u64; 2])| (rank_state.pid(rank), Token { address, value });
    let cma_peers = CmaPeers::new(cookie, tokens.into_iter().enumerate().map(peer).collect(), is_for_all);
    let readable = (0..rank_state.size()).all(|rank| cma_peers.probe(rank));
    let all = gather_words(&mut open, &CALL, [u64::from(readable)])?;
    Ok(all.iter().all(|[readable]| *readable == 1).then_some(cma_peers))
}

/// The listener of a rank's watcher.
struct DeathHandler {
    mapped: Arc<MappedSegment>,
    platform: ShmPlatform,
    fanout: Arc<DeathFanout>,
    sampler: Option<Arc<StateSampler>>,
}

impl watch::Listener for DeathHandler {
    fn end(&self, rank: usize) {
        let cause = Cause { kind: CauseKind::Died, rank, detail: 0 };
        // An error occurs in tests only.
        let _ = membership::poison(&self.platform, self.mapped.segment(), cause);
    }

    fn died(&self, rank: usize) {
        self.fanout.died(rank);
    }
}

impl Listener for DeathHandler {
    fn needs_ticks(&self) -> bool {
        self.sampler.is_some()
    }

    fn tick(&self) {
        self.samplers().iter().for_each(|sampler| sampler.sample());
    }

    fn report_requested(&self) {
        let samplers = self.samplers();
        if !samplers.is_empty() && rlimit::refuses(0, rlimit::THREAD).is_none() {
            // In a thread of its own: standard error may block, and the watcher must not. Without a thread there is no
            // report.
            let write = move || samplers.iter().for_each(|sampler| sampler.write());
            let _ = Builder::new().name("intranode-state".to_owned()).spawn(write);
        }
    }
}

impl DeathHandler {
    /// The samplers of the joined communicator and of those that were split from it.
    fn samplers(&self) -> Vec<Arc<StateSampler>> {
        let Some(own) = &self.sampler else { return Vec::new() };
        let mut all = self.fanout.samplers();
        // The rank registers at the end of joining.
        if !all.iter().any(|sampler| Arc::ptr_eq(sampler, own)) {
            all.push(Arc::clone(own));
        }
        all
    }
}
